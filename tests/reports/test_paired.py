"""Differences split by split, from a baseline and between two runs, against SciPy's paired t-test."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from bdl.metrics import MetricInfo
from bdl.reports import paired
from bdl.reports.paired import (
    PairedDifference,
    change_sections,
    changed_hyperparameters,
    compare_scores,
    hyperparameter_section,
    interval_texts,
    pair_scores,
    paired_differences,
)

from .conftest import make_paired, make_trials, shuffled


def against(baseline_rows, entry_rows, overlap={}, **changes):
    """The differences of NMLL on energy, of two frames or lists of scores."""
    baseline_rows, entry_rows = (
        rows if isinstance(rows, pd.DataFrame) else make_trials("energy", name, rows)
        for name, rows in (("vifa-lr", baseline_rows), ("vifa-nn", entry_rows))
    )
    (difference,) = paired_differences(
        make_paired(metrics=["nmll"], **changes), shuffled(baseline_rows, entry_rows), overlap
    )
    return difference


def test_known_answer(scores):
    """Mean and interval as in the paired t-test, whatever the order of the rows."""
    base, scores_of_entry = scores
    difference = against(base, scores_of_entry)
    interval = ttest_rel(scores_of_entry, base).confidence_interval(0.95)
    assert difference[:4] == ("energy", "vifa-nn", "nmll", 20)
    np.testing.assert_allclose(
        difference[4:7], [np.mean(scores_of_entry - base), interval.low, interval.high], rtol=1e-12
    )
    rows = pd.concat([make_trials("energy", name, base) for name in ("vifa-lr", "vifa-nn")])
    assert paired_differences(make_paired(baseline=None), rows, {}) == []


def test_only_splits_that_both_finished_are_paired(scores):
    """Failed: 3 of the baseline, 5 of the other; not finite: 7.

    Missing: 0 of the baseline, 19 of the other.
    """
    base, other = (values.copy() for values in scores)
    other[7] = np.inf
    first, second = (
        make_trials("energy", name, values, ["failed" if i == failed else "ok" for i in range(20)])
        for name, values, failed in (("vifa-lr", base, 3), ("vifa-nn", other, 5))
    )
    difference = against(first[first["split"] != 0], second[second["split"] != 19])
    shared = [i for i in range(20) if i not in (0, 3, 5, 7, 19)]
    interval = ttest_rel(other[shared], base[shared]).confidence_interval(0.95)
    assert (difference.n, difference.failed, difference.baseline_failed) == (len(shared), 2, 1)
    np.testing.assert_allclose(
        (difference.low, difference.high), (interval.low, interval.high), rtol=1e-12
    )


def test_splits_that_overlap_have_the_variance_of_nadeau_and_bengio():
    """By hand: differences -1, 0, 1, 2 have mean 0.5 and variance 5/3.

    31 test rows to 277 for training.

    Standard error sqrt((1/4 + 31/277) 5/3) = 0.77665, t with 3 degrees of freedom 3.18245: 0.5 ±
    2.47165.
    """
    scores = [1.0] * 4, [0.0, 1.0, 2.0, 3.0]
    overlapping = against(*scores, {"energy": 31 / 277})
    assert (overlapping.mean, overlapping.low, overlapping.high) == pytest.approx(
        (0.5, 0.5 - 2.47165, 0.5 + 2.47165), abs=1e-5
    )
    independent = against(*scores, {"yacht": 31 / 277})
    assert independent.half_width == pytest.approx(3.18245 * (5 / 3 / 4) ** 0.5, abs=1e-5), (
        "of another data set"
    )


def test_fewer_than_two_pairs_give_no_interval():
    single = PairedDifference("energy", "vifa-nn", "nmll", 1, 0.5, baseline_failed=1)
    assert against([1.0, np.nan], [1.5, 2.0]) == single
    assert (single.low, single.high, single.verdict) == (None, None, "undecided")
    none = against([], [1.5, 2.0])
    assert (none.n, none.mean, none.low) == (0, None, None)
    assert [
        difference.n for difference in paired_differences(make_paired(), pd.DataFrame(), {})
    ] == [0, 0]


@pytest.mark.parametrize(("diverged", "mean"), [(1e160, "2.50e159"), (1.7e308, "4.25e307")])
def test_a_diverged_score_whose_square_overflows_leaves_no_interval(diverged, mean):
    scores = pd.Series([1.0, 2.0, diverged, 4.0])
    unpaired = PairedDifference("set", "a", "nmll", 0)
    paired = pair_scores(unpaired, scores, pd.Series([1.0, 1.0, 1.0, 1.5]), 0.1)
    assert (paired.low, paired.high, paired.verdict) == (None, None, "undecided")
    assert interval_texts(paired) == (mean, "")


def test_order_and_what_is_left_out():
    """No durations, no baseline against itself, and no data set on which the baseline does not run."""
    entries = ["swag", "vifa-lr", "vifa-nn"]
    pairs = [("energy", entry) for entry in entries] + [("yacht", "vifa-nn")]
    benchmark = make_paired(
        datasets=["energy", "yacht"], entries=dict.fromkeys(entries), pairs=pairs
    )
    differences = paired_differences(
        benchmark, pd.concat([make_trials(*pair, [1.0, 2.0]) for pair in pairs]), {}
    )
    expected = [
        (metric, "energy", entry) for metric in ("nmll", "rmse") for entry in ("swag", "vifa-nn")
    ]
    assert [
        (difference.metric, difference.dataset, difference.entry) for difference in differences
    ] == expected


@pytest.mark.parametrize(
    ("direction", "low", "high", "failures", "verdict"),
    [
        ("lower", -2.0, -1.0, {}, "better"),
        ("lower", 1.0, 2.0, {}, "worse"),
        ("lower", -1.0, 2.0, {}, "undecided"),
        ("lower", 0.0, 0.0, {}, "undecided"),
        ("higher", -2.0, -1.0, {}, "worse"),
        ("higher", 1.0, 2.0, {}, "better"),
        ("lower", -2.0, -1.0, {"n": 2}, "undecided"),
        # What failed where the other did not gains nothing.
        ("lower", -2.0, -1.0, {"failed": 1}, "undecided"),
        ("lower", -2.0, -1.0, {"baseline_failed": 1}, "better"),
        ("lower", 1.0, 2.0, {"failed": 1}, "worse"),
        ("lower", 1.0, 2.0, {"baseline_failed": 1}, "undecided"),
    ],
)
def test_verdicts(monkeypatch, direction, low, high, failures, verdict):
    monkeypatch.setattr(
        paired,
        "get_metric_info",
        lambda label: MetricInfo("Score", "points", direction, "predictive"),
    )
    difference = PairedDifference("d", "e", "score", 5, (low + high) / 2, low, high)
    assert difference._replace(**failures).verdict == verdict


def test_the_baseline_of_a_sweep_is_that_of_the_same_point(swept, scores):
    base, other = scores
    differences = paired_differences(*swept, {})
    assert [
        (difference.dataset, difference.entry, dict(difference.point), difference.n)
        for difference in differences
    ] == [
        ("energy", "vifa-nn", {"model.hidden": "[20]"}, 20),
        ("energy", "vifa-nn", {"model.hidden": "[50]"}, 20),
        ("yacht", "vifa-nn", {"model.hidden": "[20]"}, 20),
        ("yacht", "vifa-nn", {"model.hidden": "[50]"}, 0),
    ]
    mean = np.mean(other - base)
    np.testing.assert_allclose(
        [difference.mean for difference in differences[:3]], [mean, -mean, mean], rtol=1e-10
    )
    assert [difference.verdict for difference in differences] == [
        "better",
        "worse",
        "better",
        "undecided",
    ]


def change(first, second, overlap={}):
    """What became of a score of one cell; durations are of machines and are left out."""
    runs = [make_trials("energy", "vifa-nn", values) for values in (first, second)]
    (score_change,) = compare_scores(runs[0], shuffled(runs[1]), ["nmll", "runtime"], (), overlap)
    return score_change


def test_known_answer_of_a_change(scores):
    base, _ = scores
    later = base - 0.1 + 0.01 * np.arange(20)
    score_change = change(base, later)
    interval, difference = (
        ttest_rel(later, base).confidence_interval(0.95),
        score_change.difference,
    )
    np.testing.assert_allclose(
        [difference.mean, difference.low, difference.high],
        [-0.005, interval.low, interval.high],
        rtol=1e-9,
    )
    assert (difference.n, score_change.verdict) == (20, "undecided")
    wider = change(base, later, {"energy": 1 / 9}).difference
    assert wider.half_width / difference.half_width == pytest.approx((1 + 20 / 9) ** 0.5), (
        "Nadeau and Bengio"
    )


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        (lambda values: values * (1 + 1e-12), "same"),
        (lambda values: values - 1, "better"),
        (lambda values: values + 1, "worse"),
        (lambda values: values[:10] - 1, "better"),
        (
            lambda values: values[:10],
            "undecided",
        ),  # the same where both have splits, but not the same splits
        (lambda values: np.where(np.arange(20), values - 1, np.inf), "undecided"),  # one failed
    ],
)
def test_verdicts_of_changes(scores, later, verdict):
    assert change(scores[0], later(scores[0])).verdict == verdict


def test_cells_of_one_run_alone():
    first, second = make_trials("energy", "vifa-lr", [1.0]), make_trials("yacht", "vifa-lr", [1.0])
    changes = compare_scores(first, second, ["nmll"], (), {})
    verdicts = [("energy", "only in the first"), ("yacht", "only in the second")]
    assert [
        (score_change.difference.dataset, score_change.verdict) for score_change in changes
    ] == verdicts
    assert changes[0].record["verdict"] == "only in the first"
    (section,) = change_sections(changes, "a and b")
    assert section.rows[0] == ("energy", "vifa-lr", "", "", "only in the first", "0")


def test_points_of_a_sweep_are_cells():
    rows = pd.concat(
        [
            make_trials("energy", "vifa-lr", [1.0, 2.0]).assign(width=text)
            for text in ("[20]", "[50]")
        ]
    )
    second_rows = rows.assign(nmll=rows.nmll.where(rows.width == "[20]", rows.nmll + 1))
    changes = compare_scores(rows, second_rows, ["nmll"], ["width"], {})
    assert [(c.difference.point, c.same) for c in changes] == [
        ({"width": "[20]"}, True),
        ({"width": "[50]"}, False),
    ]


def test_hyper_parameters_that_moved():
    """Rates of three shared splits are 1, 2, 3 and 1, 4, 6: two differ, and the medians are 2 and 4."""
    first, second = (
        make_trials("energy", "vifa-lr", [1.0] * len(rates)).assign(
            hyper_learning_rate=rates, hyper_same=0.5
        )
        for rates in ([1.0, 2.0, 3.0], [1.0, 4.0, 6.0, 9.0])
    )
    (rate,) = changed_hyperparameters(first, second, ())
    assert rate[2:] == ({}, "learning_rate", 2.0, 4.0, 2)
    assert hyperparameter_section([rate]).rows == [
        ("energy", "vifa-lr", "learning_rate", "2", "4", "2")
    ]
    assert changed_hyperparameters(first, first, ()) == []
