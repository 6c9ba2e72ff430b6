"""The benchmarks of Figures 4 to 6 and 8 of the SLANG paper follow its protocol."""

import math
from pathlib import Path

import pytest

from bdl.methods.counters import StepCounters
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark

ROOT = Path(__file__).parents[2]
ROWS = {"australian": (345, 32, 1e-5), "breast_cancer": (341, 32, 1), "usps_3v5": (770, 64, 25)}
"""Training rows, rows of a minibatch and prior precision."""
RATES = {
    "mf-hessian": (0.0215, 0.0215, 0.0063),
    "full-hessian": (0.0117, 0.0398, 0.0398),
    "slang-1": (0.0117, 0.0215, 0.0117),
    "slang-2": (0.0117, 0.0398, 0.0117),
    "slang-5": (0.0117, 0.0398, 0.0215),
    "slang-10": (0.0117, 0.0398, 0.0398),
}


@pytest.mark.parametrize("dataset", ROWS)
def test_convergence_of_logistic_regressions(dataset):
    """Constant rates by data set, 2,000 epochs counted as floor(2000 N / M) updates, 12 samples."""
    benchmark = load_benchmark("slang-convergence")
    rows, size, precision = ROWS[dataset]
    assert (benchmark.splits, benchmark.preparation.split) == (10, "first")
    position = list(ROWS).index(dataset)
    for name, rates in RATES.items():
        assert benchmark.entries[name].on(dataset).hyper["learning_rate"] == rates[position]
    for entry in benchmark.entries.values():
        settings = entry.on(dataset)
        schedule, method = settings.training.build(), settings.method.build()
        assert (schedule.batch_size, schedule.sampling, schedule.dtype) == (
            size,
            "with_replacement",
            "float64",
        )
        assert schedule.constant
        assert abs(schedule.updates(rows, 1) - 2000 * rows // size) <= 10
        assert settings.hyper["prior_precision"] == precision
        assert settings.prior.build().bias_precision == 1e-5
        assert (method.samples, method.initial_scale, method.initial_precision) == (12, 0, 1)
        assert getattr(method, "momentum", 0.9) == 0.9


@pytest.mark.parametrize(
    ("dataset", "precision"), [("australian", 8), ("breast_cancer", 8), ("usps_3v5", 32)]
)
def test_convergence_of_networks(dataset, precision):
    benchmark = load_benchmark("slang-convergence-networks")
    for name, entry in benchmark.entries.items():
        settings = entry.on(dataset)
        schedule, method = settings.training.build(), settings.method.build()
        assert (schedule.epochs, schedule.batch_size, schedule.incomplete) == (
            500,
            ROWS[dataset][1],
            "keep",
        )
        assert settings.prior.build().bias_precision == 1e-6
        assert settings.hyper["prior_precision"] == precision
        assert (method.samples, method.initial_scale) == (20, None)
        assert settings.hyper["learning_rate"] == (0.01 if name == "bbb" else 0.02154435)
    assert [
        entry.method.build().rank for name, entry in benchmark.entries.items() if name != "bbb"
    ] == [8, 16, 32]
    assert benchmark.metrics[0] == "neg_elbo"
    assert benchmark.metrics[0].build().samples == 20


@pytest.mark.parametrize("updates", [1, 100, 10_000])
def test_rates_of_the_toy_problem(updates):
    """SLANG: 10 / (1 + t^0.5) and 0.5 / (1 + t^0.25).

    Bayes by Backprop: 0.1 t^-0.25, from t = 1.
    """
    benchmark, counters = (
        load_benchmark("slang-toy"),
        StepCounters(updates, updates - 1, True, 1.0),
    )
    for name in ("slang-1", "slang-5"):
        entry = benchmark.entries[name]
        method, schedule = entry.method.build(), entry.training.build()
        factors = schedule.factors(counters, method.groups)
        rates = [
            entry.hyper["learning_rate"] * a * b
            for a, b in zip(method.lr_factors, factors, strict=True)
        ]
        assert rates == pytest.approx([10 / (1 + updates**0.5), 0.5 / (1 + updates**0.25)])
        assert (method.momentum, method.samples, schedule.updates(30, 1)) == (0, 100, 10_000)
    bbb = benchmark.entries["bbb"]
    (factor,) = bbb.training.build().factors(counters, ())
    assert bbb.hyper["learning_rate"] * factor == pytest.approx(0.1 * updates**-0.25)
    assert math.log1p(math.exp(bbb.method.build().initial_rho)) == pytest.approx(1, abs=1e-4)
    for entry in benchmark.entries.values():
        assert (entry.hyper["prior_precision"], entry.hyper["noise_precision"]) == (0.01, 0.1)
        assert entry.prior.build().bias_precision == 1e-6


@pytest.mark.parametrize("name", ["slang-1", "slang-5"])
def test_selected_fits_of_the_toy_problem_end_where_the_elbo_was_best(name):
    folder = ROOT / "results/slang-toy"
    curve = (
        RunFolder(folder).tabulate_curve_points().query("metric == 'neg_elbo' and entry == @name")
    )
    best = curve.loc[curve["value"].idxmin()]
    assert sorted(curve["at"]) == [*range(1, 10_001)]
    assert load_benchmark("slang-toy", "selected").entries[name].training.epochs == best["at"]
    (score,) = RunFolder(folder / "selected").tabulate().query("entry == @name")["neg_elbo"]
    assert score == best["value"]
