"""Two runs beside each other; intervals are those of paired differences."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from bdl.reports.paired import change_sections, changes, moved, moved_section

METRICS = ["nmll", "runtime"]


@pytest.fixture
def scores():
    rng = np.random.default_rng(0)
    return rng.normal(2.6, 0.3, 20)


def only(found):
    (change,) = found
    return change


def test_known_answer(make_trials, scores):
    """As the paired t-test; durations are of machines and are left out."""
    later = scores - 0.1 + 0.01 * np.arange(20)
    first, second = (make_trials("energy", "vifa-nn", values) for values in (scores, later))
    change = only(changes(first, second.sample(frac=1, random_state=0), METRICS, (), {}))
    interval = ttest_rel(later, scores).confidence_interval(0.95)
    found = change.difference
    np.testing.assert_allclose([found.mean, found.low, found.high], [-0.005, interval.low, interval.high], rtol=1e-9)
    assert (found.n, change.verdict) == (20, "undecided")
    wider = only(changes(first, second, METRICS, (), {"energy": 1 / 9})).difference
    assert wider.half / found.half == pytest.approx((1 + 20 / 9) ** 0.5), "Nadeau and Bengio"


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (lambda values: values, "same"),
        (lambda values: values * (1 + 1e-12), "same"),
        (lambda values: values - 1, "better"),
        (lambda values: values + 1, "worse"),
        (lambda values: values[:10] - 1, "better"),
        (lambda values: values[:10], "undecided"),  # the same where both have splits, but not the same splits
        (lambda values: np.where(np.arange(20), values - 1, np.inf), "undecided"),  # one failed
    ],
)
def test_verdicts(make_trials, scores, change, verdict):
    first, second = (make_trials("energy", "vifa-nn", values) for values in (scores, change(scores)))
    assert only(changes(first, second, ["nmll"], (), {})).verdict == verdict


def test_cells_of_one_run_alone(make_trials):
    first, second = make_trials("energy", "vifa-lr", [1.0]), make_trials("yacht", "vifa-lr", [1.0])
    found = changes(first, second, ["nmll"], (), {})
    assert [(c.difference.dataset, c.verdict) for c in found] == [
        ("energy", "only in the first"), ("yacht", "only in the second"),
    ]  # fmt: skip
    assert found[0].record["verdict"] == "only in the first"
    (section,) = change_sections(found, "a and b")
    assert section.rows[0] == ("energy", "vifa-lr", "", "", "only in the first", "0")


def test_points_of_a_sweep_are_cells(make_trials):
    rows = pd.concat([make_trials("energy", "vifa-lr", [1.0, 2.0]).assign(width=text) for text in ("[20]", "[50]")])
    other = rows.assign(nmll=rows.nmll.where(rows.width == "[20]", rows.nmll + 1))
    found = changes(rows, other, ["nmll"], ["width"], {})
    assert [(c.difference.point, c.same) for c in found] == [({"width": "[20]"}, True), ({"width": "[50]"}, False)]


def test_hyper_parameters_that_moved(make_trials):
    """Rates of three shared splits are 1, 2, 3 and 1, 4, 6: two differ, and the medians are 2 and 4."""
    first, second = (
        make_trials("energy", "vifa-lr", [1.0] * len(rates)).assign(hyper_learning_rate=rates, hyper_same=0.5)
        for rates in ([1.0, 2.0, 3.0], [1.0, 4.0, 6.0, 9.0])
    )
    (found,) = moved(first, second, ())
    assert found[2:] == ({}, "learning_rate", 2.0, 4.0, 2)
    assert moved_section([found]).rows == [("energy", "vifa-lr", "learning_rate", "2", "4", "2")]
    assert moved(first, first, ()) == []
