"""What must hold of the published rows, whatever they were made on."""

from pathlib import Path

import pytest

from bdl.records.run_folder import RunFolder
from bdl.reports.distributions import gather_truth_ranks
from bdl.spec import load_benchmark

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="module")
def logistic():
    """Final rows of the logistic regressions."""
    rows = RunFolder(RESULTS / "slang-logistic").tabulate()
    return rows[(rows.stage == "final") & (rows.status == "ok")]


@pytest.mark.parametrize(
    ("optimum", "others", "count"),
    [("full-exact", None, 400), ("mf-exact", ["mf-fisher", "mf-hessian", "bbb"], 100)],
)
def test_no_gaussian_has_a_better_elbo_than_the_best_of_its_kind(logistic, optimum, others, count):
    """On every split; to 1e-10, what rounding leaves of methods that come that close."""
    best = logistic[logistic.entry == optimum].set_index(["dataset", "split"]).neg_elbo
    rows = logistic[logistic.entry.isin(others) if others else logistic.entry != optimum]
    gap = (
        rows.neg_elbo.to_numpy()
        - best.loc[list(zip(rows.dataset, rows.split, strict=True))].to_numpy()
    )
    assert len(gap) > count
    assert (gap > -1e-10).all()


def test_the_divergence_from_itself_is_zero(logistic):
    assert (logistic[logistic.entry == "full-exact"].sym_kl.abs() < 1e-8).all()


def test_ranks_are_uniform_under_the_exact_posterior_and_not_under_mean_field():
    rows = RunFolder(RESULTS / "simulation-calibration").tabulate()
    ranked = gather_truth_ranks(load_benchmark("simulation-calibration"), rows)
    inside = {(one.entry, one.quantity): not one.outside_envelope.any() for one in ranked}
    assert [inside["conjugate", f"parameter {index}"] for index in (0, 1, 3)] == [True, True, True]
    assert [inside["mean-field", f"parameter {index}"] for index in (0, 1)] == [False, False]
