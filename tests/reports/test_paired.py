"""Paired differences against SciPy's paired t-test."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from bdl.metrics import MetricInfo
from bdl.reports import paired
from bdl.reports.paired import PairedDifference, paired_differences

NAN = float("nan")


def test_known_answer(paired_benchmark, make_trials, scores):
    """Mean and interval as in the paired t-test, whatever the order of the rows."""
    base, other = scores
    rows = pd.concat([make_trials("energy", "vifa-lr", base), make_trials("energy", "vifa-nn", other)])
    found = paired_differences(paired_benchmark(), rows.sample(frac=1, random_state=0), {})
    nmll, rmse = found
    interval = ttest_rel(other, base).confidence_interval(0.95)
    assert nmll[:4] == ("energy", "vifa-nn", "nmll", 20)
    np.testing.assert_allclose(nmll[4:7], [np.mean(other - base), interval.low, interval.high], rtol=1e-12)
    assert rmse == nmll._replace(metric="rmse")
    assert paired_differences(paired_benchmark(baseline=None), rows, {}) == []


def test_only_splits_that_both_finished_are_paired(paired_benchmark, make_trials, scores):
    """Failed: 3 of the baseline, 5 of the other; not finite: 7; missing: 0 of the baseline, 19 of the other."""
    base, other = (values.copy() for values in scores)
    other[7] = np.inf
    rows = [
        make_trials("energy", name, values, status=["failed" if i == failed else "ok" for i in range(20)])
        for name, values, failed in (("vifa-lr", base, 3), ("vifa-nn", other, 5))
    ]
    rows = pd.concat([rows[0][rows[0]["split"] != 0], rows[1][rows[1]["split"] != 19]])
    found, _ = paired_differences(paired_benchmark(), rows, {})
    kept = [i for i in range(20) if i not in (0, 3, 5, 7, 19)]
    interval = ttest_rel(other[kept], base[kept]).confidence_interval(0.95)
    assert found.n == len(kept)
    np.testing.assert_allclose((found.low, found.high), (interval.low, interval.high), rtol=1e-12)


def test_splits_that_overlap_have_the_variance_of_nadeau_and_bengio(paired_benchmark, make_trials):
    """By hand: differences -1, 0, 1, 2 have mean 0.5 and variance 5/3; 31 test rows to 277 for training.

    Standard error sqrt((1/4 + 31/277) 5/3) = 0.77665, t with 3 degrees of freedom 3.18245: 0.5 ± 2.47165.
    """
    rows = [make_trials("energy", "vifa-lr", [1.0] * 4), make_trials("energy", "vifa-nn", [0.0, 1.0, 2.0, 3.0])]
    found = paired_differences(paired_benchmark(), pd.concat(rows), {"energy": 31 / 277})[0]
    assert (found.mean, found.low, found.high) == pytest.approx((0.5, 0.5 - 2.47165, 0.5 + 2.47165), abs=1e-5)
    apart = paired_differences(paired_benchmark(), pd.concat(rows), {"yacht": 31 / 277})[0]
    assert apart.half == pytest.approx(3.18245 * (5 / 3 / 4) ** 0.5, abs=1e-5), "of another data set"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "better"),
        ({"failed": 1}, "undecided"),
        ({"baseline_failed": 1}, "better"),
        ({"low": 1.0, "high": 2.0}, "worse"),
        ({"low": 1.0, "high": 2.0, "failed": 1}, "worse"),
        ({"low": 1.0, "high": 2.0, "baseline_failed": 1}, "undecided"),
        ({"n": 2}, "undecided"),
    ],
)
def test_what_failed_where_the_other_did_not_gains_nothing(changes, verdict):
    found = PairedDifference("energy", "vifa-nn", "nmll", 18, -1.5, -2.0, -1.0)
    assert found._replace(**changes).verdict == verdict


def test_a_split_that_was_not_run_has_not_failed(paired_benchmark, make_trials):
    """Of the other: split 1 failed, split 2 not finite, split 3 not there."""
    other = make_trials("energy", "vifa-nn", [1.0, 1.0, np.inf], status=["ok", "failed", "ok"])
    found = paired_differences(paired_benchmark(), pd.concat([make_trials("energy", "vifa-lr", [1.0] * 4), other]), {})[
        0
    ]
    assert (found.n, found.failed, found.baseline_failed) == (1, 2, 0)


def test_fewer_than_two_pairs_give_no_interval(paired_benchmark, make_trials):
    one = pd.concat([make_trials("energy", "vifa-lr", [1.0, NAN]), make_trials("energy", "vifa-nn", [1.5, 2.0])])
    single = PairedDifference("energy", "vifa-nn", "nmll", 1, 0.5, baseline_failed=1)
    assert paired_differences(paired_benchmark(), one, {})[0] == single
    assert (single.low, single.high, single.verdict) == (None, None, "undecided")
    none = paired_differences(paired_benchmark(), make_trials("energy", "vifa-nn", [1.5, 2.0]), {})[0]
    assert (none.n, none.mean, none.low) == (0, None, None)
    assert [found.n for found in paired_differences(paired_benchmark(), pd.DataFrame(), {})] == [0, 0]


def test_order_and_what_is_left_out(paired_benchmark, make_trials):
    """No durations, no baseline against itself, and no data set on which the baseline does not run."""
    entries = ["swag", "vifa-lr", "vifa-nn"]
    pairs = [("energy", entry) for entry in entries] + [("yacht", "vifa-nn")]
    benchmark = paired_benchmark(datasets=["energy", "yacht"], entries=dict.fromkeys(entries), pairs=pairs)
    found = paired_differences(benchmark, pd.concat([make_trials(*pair, [1.0, 2.0]) for pair in pairs]), {})
    expected = [(metric, "energy", entry) for metric in ("nmll", "rmse") for entry in ("swag", "vifa-nn")]
    assert [(each.metric, each.dataset, each.entry) for each in found] == expected


@pytest.mark.parametrize(
    ("direction", "low", "high", "verdict"),
    [
        ("lower", -2.0, -1.0, "better"),
        ("lower", 1.0, 2.0, "worse"),
        ("lower", -1.0, 2.0, "undecided"),
        ("lower", 0.0, 0.0, "undecided"),
        ("higher", -2.0, -1.0, "worse"),
        ("higher", 1.0, 2.0, "better"),
    ],
)
def test_verdicts(monkeypatch, direction, low, high, verdict):
    monkeypatch.setattr(paired, "info", lambda label: MetricInfo("Score", "points", direction, "predictive"))
    assert PairedDifference("d", "e", "score", 5, (low + high) / 2, low, high).verdict == verdict


def test_the_baseline_of_a_sweep_is_that_of_the_same_point(swept, scores):
    base, other = scores
    found = paired_differences(*swept, {})
    places = [(each.dataset, each.entry, dict(each.point), each.n) for each in found]
    assert places == [
        ("energy", "vifa-nn", {"model.hidden": "[20]"}, 20),
        ("energy", "vifa-nn", {"model.hidden": "[50]"}, 20),
        ("yacht", "vifa-nn", {"model.hidden": "[20]"}, 20),
        ("yacht", "vifa-nn", {"model.hidden": "[50]"}, 0),
    ]
    mean = np.mean(other - base)
    np.testing.assert_allclose([each.mean for each in found[:3]], [mean, -mean, mean], rtol=1e-10)
    assert [each.verdict for each in found] == ["better", "worse", "better", "undecided"]
