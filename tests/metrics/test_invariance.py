"""Scores do not depend on the units or the origins of inputs and targets, nor on the order of the test rows.

What is in the target's unit follows it. Numbers are such that offsets of 1e10 lose none of their
digits in float64.
"""

from dataclasses import replace
from functools import cache
from math import log

import numpy as np
import pytest
import torch
import yaml

import bdl
from bdl.execution.scoring import make_evaluation
from bdl.metrics import METRICS
from bdl.metrics.evaluation import Evaluation
from bdl.plan.fittings import build_final_fitting
from bdl.plan.planning import list_tasks
from bdl.references import REFERENCES
from bdl.spec import load_benchmark
from bdl.training.direct import TrainingData
from bdl.training.fitting import run_to_end

ROWS, BETA = 60, 25.0
GRAIN = (
    2.0**-16
)  # of every number: below 2^36, which is beyond 1e10, float64 has all multiples of 2^-17
RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(ROWS, 2)) / GRAIN) * GRAIN
Y = np.round((X @ [1.0, -2.0] + 0.2 * RNG.normal(size=ROWS)) / GRAIN) * GRAIN
LABELS = np.where(X[:, 0] + 0.5 * RNG.normal(size=ROWS) > 0, 1.0, 0.0)

SHIFTS = [(1e10, 1.0), (0.0, 1e-12), (0.0, 1e12), (-1e8, 1e-12)]
"""A number is moved by the first, then multiplied by the second."""

REGRESSION = {
    "likelihood": {"name": "gaussian"},
    "hyper": {"prior_precision": 1.0, "noise_precision": BETA},
}
FITS = {
    "vifa": REGRESSION
    | {
        "method": {"name": "vifa", "latent_dim": 1},
        "reference": {"name": "conjugate"},
        "training": {"epochs": 5, "batch_size": 10, "dtype": "float64"},
        "hyper": REGRESSION["hyper"] | {"learning_rate": 0.05},
    },
    "conjugate": REGRESSION | {"method": {"name": "conjugate"}},
    "weighted": REGRESSION | {"method": {"name": "importance-sampling", "samples": 200}},
    "labels": {
        "likelihood": {"name": "bernoulli"},
        "method": {"name": "laplace"},
        "reference": {"name": "exact-gaussian"},
        "hyper": {"prior_precision": 1.0},
    },
}
"""Entries of a benchmark."""

AS_THEY_ARE = (0.0, 1.0)

POWERS = {"rmse": 1, "spread": 1, "crps": 1, "interval_width": 1, "mse_at_mean": 2}
"""Scores that are multiplied by a power of the target's unit."""
LOGS = dict.fromkeys(
    [
        "nmll",
        "training_nmll",
        "joint_nll",
        "dyadic_nll",
        "calibrated_nll",
        "neg_elbo",
        "neg_elbo_printed",
    ],
    1,
)
LOGS |= {"neg_log_joint": 1, "log_evidence": -1}
"""Scores of densities of targets: a unit that is c times as small makes them c times as large, of
N rows or of one.
"""
APART = {"runtime", "truth_rank"}
"""Measured while a fit runs, or of simulated data alone."""
SETTINGS = {
    "function_joint_kl": [{"sets": 10}],
    "spread": [{"low": -10, "high": 10}],
    "accuracy": [{}, {"kept": 0.5}, {"kept": 0.5, "by": "disagreement"}],
    "precision": [{}, {"kept": 0.5}],
    "recall": [{}, {"kept": 0.5}],
    "f1": [{}, {"kept": 0.5}],
    "auroc": [{}, {"kept": 0.5}],
    "aurc": [{}, {"by": "disagreement"}],
}
CASES = [
    (name, settings)
    for name in METRICS.names()
    if name not in APART
    for settings in SETTINGS.get(name, [{}])
]


def fit_of(name: str) -> str:
    info = METRICS.get(name).info
    if info.task == "classification":
        return "labels"
    return "weighted" if name == "ess" else "vifa"


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Fit an entry to data that are moved and multiplied, from a file, and give what its scores are functions of."""

    @cache
    def made(fit: str, x_shift=AS_THEY_ARE, y_shift=AS_THEY_ARE) -> Evaluation:
        folder, entry = tmp_path_factory.mktemp("data"), dict(FITS[fit])
        x, y = moved(x_shift, X), moved(y_shift, Y)
        if fit == "labels":
            y = LABELS
        else:
            entry["hyper"] = entry["hyper"] | {"noise_precision": BETA / y_shift[1] ** 2}
        kind = "classification" if fit == "labels" else "regression"
        rows = [",".join(map(repr, map(float, row))) for row in np.column_stack([x, y])]
        (folder / "d.csv").write_text("\n".join(["a,b,y", *rows]))
        content = {
            "name": "probe",
            "title": "Probe",
            "datasets": [
                {"name": "csv", "path": str(folder / "d.csv"), "target": "y", "task": kind}
            ],
            "splits": 1,
            "entries": {"own": {"model": {"name": "linear"}} | entry},
            "metrics": ["nll" if fit == "labels" else "nmll"],
        }
        (folder / "b.yaml").write_text(yaml.safe_dump(content))
        (cell,) = list_tasks(load_benchmark(str(folder / "b.yaml")))
        work = build_final_fitting([(cell, 0)], [content["entries"]["own"]["hyper"]], False)
        return make_evaluation(
            cell, 0, work.posterior(run_to_end(work), 0), {}, content["entries"]["own"]["hyper"]
        )

    return made


def score(name: str, settings: dict, evaluated: Evaluation) -> dict[str, float]:
    found = METRICS.build(name, settings)(evaluated)
    return found if isinstance(found, dict) else {"": found}


def tolerance(*shifts: tuple[float, float]) -> float:
    """Rounding of float32 outputs.

    Of means and deviations about a distant origin, some steps of 2^-52 of it.
    """
    return 2e-6 + 50 * 2.0**-52 * max(abs(offset) for offset, _ in shifts)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_scores_do_not_depend_on_units(make, name, settings, shift):
    """Of inputs, and of targets, whose unit they follow."""
    fit = fit_of(name)
    before = score(name, settings, make(fit))
    rows = len(make(fit).trained.y) if name == "log_evidence" else 1
    for moves, factor in (((shift, AS_THEY_ARE), 1.0), ((AS_THEY_ARE, shift), shift[1])):
        after = score(name, settings, make(fit, *moves))
        unit = factor ** POWERS.get(name, 0)
        for part, value in before.items():
            expected = value * unit + (0 if part else LOGS.get(name, 0) * rows * log(factor))
            close = rows * tolerance(shift) * max(1.0, abs(value)) * unit
            assert after[part] == pytest.approx(expected, rel=0, abs=close)


def moved(shift: tuple[float, float], values: np.ndarray) -> np.ndarray:
    return (values + shift[0]) * shift[1]


def answers(entry: str, x_shift: tuple[float, float], y_shift: tuple[float, float]) -> np.ndarray:
    """Fit by the programming interface.

    Means, deviations, densities and probabilities in the units of old.
    """
    x, y = moved(x_shift, X), moved(y_shift, Y)
    hyper = {"prior_precision": 1.0, "noise_precision": BETA / y_shift[1] ** 2}
    if entry == "Regressor":
        fitted = bdl.Regressor(hyper=hyper).fit(x, y)
        mean, deviation = fitted.predict(x, return_std=True)
    else:
        training = {"epochs": 5, "batch_size": 10} if entry == "vifa" else None
        rate = {"learning_rate": 0.05} if entry == "vifa" else {}
        fitted = bdl.fit(entry, "linear", "gaussian", x, y, hyper | rate, training=training)
        mean, deviation = fitted.predict(x), fitted.predict_distribution(x).stddev.numpy()
    law, at = fitted.predict_distribution(x), torch.from_numpy(y)
    means = [values / y_shift[1] - y_shift[0] for values in (law.mean.numpy(), mean)]
    densities = (law.log_prob(at) + log(y_shift[1])).numpy()
    return np.stack([*means, deviation / y_shift[1], densities, law.cdf(at).numpy()])


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("entry", ["conjugate", "vifa", "Regressor"])
def test_the_programming_interface_follows_the_units(entry, shift):
    expected = answers(entry, AS_THEY_ARE, AS_THEY_ARE)
    # training in float32 carries the rounding of the standardised rows along, which are as far off
    # as the mean of y
    slack = 10 if entry == "vifa" else 1
    for moves in ((AS_THEY_ARE, shift), (shift, AS_THEY_ARE)):
        np.testing.assert_allclose(
            answers(entry, *moves), expected, rtol=0, atol=4 * slack * tolerance(shift)
        )


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", ["conjugate", "bayesian-ridge", "exact-gaussian"])
def test_references_are_of_standardised_targets(make, name, shift):
    """The posterior is of parameters as the model sees them, and precisions go back to the target's unit."""
    found = []
    for y in (AS_THEY_ARE, shift):
        seen = make("conjugate", y_shift=y)
        x = (seen.trained.x, (seen.trained.y - seen.trained.y_origin) / seen.trained.y_unit)
        data = TrainingData(*x, seen.trained.y_unit, seen.trained.y_origin)
        truth = REFERENCES.build(name, {}).fit(
            seen.model, data.x, data.y, data.hyper(seen.hyper, seen.model)
        )
        back = seen.model.likelihood.to_original_units(truth.hyper, data.y_unit)
        noise = float(back.get("noise_precision", 0)) * y[1] ** 2
        found.append(np.concatenate([truth.mean, truth.covariance.flatten(), [noise / BETA]]))
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=tolerance(shift))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_scores_do_not_depend_on_the_order_of_test_rows(make, name, settings):
    """Of rows that are there four times; labels of the copies are at odds, so that ties matter."""
    seen = make(fit_of(name))
    rows = seen.tested._replace(x=seen.tested.x.repeat(4, 1), y=seen.tested.y.repeat(4), rows=None)
    if fit_of(name) == "labels":
        rows = rows._replace(y=(torch.arange(len(rows.y)) % 5 < 2).double())
    whole = replace(seen, test=lambda: rows).predictions
    found = []
    for seed in range(3):
        order = torch.randperm(len(rows.y), generator=torch.Generator().manual_seed(seed))
        of_rows = [field for field, value in whole._asdict().items() if len(value) == len(order)]
        moved = whole._replace(**{field: getattr(whole, field)[order] for field in of_rows})
        tested = rows.take(order)
        found.append(
            score(name, settings, replace(seen, test=lambda own=tested: own, predicted=moved))
        )
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-12)
