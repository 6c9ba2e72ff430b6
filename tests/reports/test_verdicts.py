"""The rules of ``docs/verdicts.md``, one example a line, many of them published cells; and the published verdicts."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bdl.metrics.base import MetricInfo
from bdl.reports.papers import PaperValue, Printed
from bdl.reports.verdicts import (
    COARSE,
    DIGITS,
    FEW,
    NO_SPREAD,
    ROUNDED_AWAY,
    VACUOUS,
    WIDE,
    Difference,
    Judgement,
    Ours,
    difference,
    judge,
    reach,
)

RESULTS = Path(__file__).parents[2] / "results"
LOWER = MetricInfo("Loss", "nats", "lower", "predictive")
HIGHER = MetricInfo("Accuracy", "1", "higher", "predictive")
BIAS = MetricInfo("Mean of the bias", "1", "none", "posterior")
RUNTIME = MetricInfo("Runtime", "minutes", "ratio", "time")


def printed(text, stderr=None, n=20):
    return PaperValue(Printed(text), Printed(stderr) if stderr else None, "a paper", n == 1, None, n)


def verdict(ours, paper, about=LOWER, in_error=False):
    found = difference(ours, paper) if paper else None
    return judge(ours, paper, about, found, in_error)


@pytest.mark.parametrize(
    ("ours", "paper", "about", "expected", "note"),
    [
        # Twenty splits each: |z| of 2.02 is the limit, not 2.
        (Ours(2.52, 0.027, 20), printed("2.53", "0.02"), LOWER, "match", None),
        (Ours(2.60, 0.02, 20), printed("2.53", "0.02"), LOWER, "worse", None),
        (Ours(2.46, 0.02, 20), printed("2.53", "0.02"), LOWER, "better", None),
        (Ours(2.587, 0.02, 20), printed("2.53", "0.02"), LOWER, "match", None),  # z = 2.015
        (Ours(0.97, 0.01, 20), printed("0.90", "0.01"), HIGHER, "better", None),
        (Ours(0.83, 0.01, 20), printed("0.90", "0.01"), HIGHER, "worse", None),
        (Ours(0.6, 0.01, 20), printed("0.50", "0.01"), BIAS, "differs", None),
        # Ours at the printed digits, whatever the spread.
        (Ours(2.5349, 1e-6, 20), printed("2.53", "0.02"), LOWER, "match", None),
        (Ours(2.5349, None, 1), printed("2.53"), LOWER, "match", None),
        # Three splits are few, but they are what the test is for: t needs 4.3 here.
        (Ours(1.3, 0.1, 3), printed("1.00"), LOWER, "match", None),
        # No standard error in print: the spread is taken to be ours.
        (Ours(2.4, 0.02, 20), printed("2.53"), LOWER, "better", None),
        # One split or two: energy and yacht of `slang-online-eig-uci`, kin8nm of `slang-uci`.
        (Ours(1.381, None, 1), printed("1.20", "0.05"), LOWER, "match", FEW),
        (Ours(1.982, 0.164, 2), printed("1.55", "0.03"), LOWER, "undecided", FEW),
        (Ours(1.806, 0.061, 2), printed("1.99", "0.02"), LOWER, "undecided", FEW),
        (Ours(-1.076, 0.010, 2), printed("-1.06", "0.00"), LOWER, "undecided", NO_SPREAD),
        (Ours(0.0816, 0.0003, 2), printed("0.08", "0.00"), LOWER, "match", None),
        (Ours(1.063, 0.055, 2), printed("1.07", "0.08"), LOWER, "undecided", WIDE),
        # One run each: a1a of `slang-logistic`, and the bias of split 0.
        (Ours(0.37656, None, 1), printed("0.3766", "0.0000", 1), LOWER, "match", None),
        (Ours(0.37649, None, 1), printed("0.3766", "0.0000", 1), LOWER, "undecided", NO_SPREAD),
        (Ours(0.33870, None, 1), printed("0.3386", "0.0000", 1), LOWER, "undecided", NO_SPREAD),
        (Ours(1.180, None, 1), printed("1.17", None, 1), BIAS, "differs", DIGITS),
        (Ours(1.174, None, 1), printed("1.17", None, 1), BIAS, "match", None),
        # Vacuous: energy and yacht of `uci-regression`.
        (Ours(1.138, 0.010, 20), printed("2.13e7", "2.01e7"), LOWER, "uninformative", VACUOUS),
        (Ours(4.244e17, 4.244e17, 20), printed("2.13e7", "2.01e7"), LOWER, "uninformative", VACUOUS),
        (Ours(5.335, 2.873, 20), printed("8.03", "4.58"), LOWER, "uninformative", VACUOUS),
        (Ours(1.144, 4.8e14, 20), printed("1.19"), LOWER, "uninformative", VACUOUS),
        # Too wide to call a match: boston of the same.
        (Ours(19.35, 8.108, 20), printed("15.87", "4.36"), LOWER, "undecided", WIDE),
        # A printed zero: naval of `slang-uci`, and a divergence from itself.
        (Ours(0.0018, None, 1), printed("0.00", "0.00"), LOWER, "uninformative", ROUNDED_AWAY),
        (Ours(3e-9, 1e-9, 20), printed("0.0000", "0.0000"), LOWER, "match", None),
        # Failures: what flatters is undecided, what does not stands.
        (Ours(2.52, 0.02, 18, failed=2), printed("2.53", "0.02"), LOWER, "undecided", None),
        (Ours(2.533, 0.02, 18, failed=2), printed("2.53", "0.02"), LOWER, "undecided", None),
        (Ours(2.40, 0.02, 18, failed=2), printed("2.53", "0.02"), LOWER, "undecided", None),
        (Ours(2.70, 0.02, 18, failed=2), printed("2.53", "0.02"), LOWER, "worse", None),
        (Ours(0.60, 0.01, 18, failed=2), printed("0.50", "0.01"), BIAS, "differs", None),
        # A sampled truth: a1a and breast cancer of `logistic-posterior`.
        (Ours(0.0127, 0.0002, 10, shared=0.0004), printed("0.0204", None, 1), LOWER, "undecided", COARSE),
        (Ours(0.2508, 0.0080, 10, shared=0.003), printed("0.1729", None, 1), LOWER, "worse", None),
        # Nothing to judge.
        (Ours(2.6, 0.1, 20), None, LOWER, "no paper value", None),
        (Ours(None, None, 0, failed=3), printed("2.53"), LOWER, "failed", None),
        (Ours(None, None, 0), None, LOWER, "failed", None),
        (Ours(None, None, 0), printed("22.59"), RUNTIME, "failed", None),
        # Durations are ratios.
        (Ours(0.4, 0.1, 20), printed("21.2"), RUNTIME, "53x faster", None),
        (Ours(8.0, None, 1), printed("22.0"), RUNTIME, "2.8x faster", None),
        (Ours(44.0, None, 1), printed("22.0"), RUNTIME, "2.0x slower", None),
        (Ours(300.0, None, 1), printed("20"), RUNTIME, "15x slower", None),
        (Ours(22.0, None, 1), printed("22.0"), RUNTIME, "1.0x faster", None),
    ],
)
def test_rules(ours, paper, about, expected, note):
    assert verdict(ours, paper, about) == Judgement(expected, note)


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (Ours(2.40, 0.02, 20), "print in error"),
        (Ours(2.70, 0.02, 20), "print in error"),
        (Ours(2.52, 0.02, 20), "match"),  # its error is less than chance: nothing to explain
        (Ours(1.00, None, 1), "undecided"),
        (Ours(2.40, 0.02, 20, shared=0.001), "print in error"),
    ],
)
def test_a_print_in_error_explains_a_difference_and_nothing_else(ours, expected):
    assert verdict(ours, printed("2.53", "0.02"), in_error=True).verdict == expected


def test_welch_is_that_of_scipy():
    """Unequal standard errors over 10 and 20 splits."""
    s, t, n, m = 0.03, 0.02, 10, 20
    found = difference(Ours(2.60, s, n), printed("2.53", "0.02", m))
    expected = stats.ttest_ind_from_stats(2.60, s * math.sqrt(n), n, 2.53, t * math.sqrt(m), m, equal_var=False)
    assert (found.z, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-12)
    assert found.df == pytest.approx(1.69e-6 / (81e-8 / 9 + 16e-8 / 19), rel=1e-12)
    assert found.half == pytest.approx(stats.t.interval(0.95, found.df, scale=found.se)[1], rel=1e-12)


def test_the_spread_of_ours_stands_for_that_of_the_paper():
    """A single run is one more draw; a statistic over m splits has sd / sqrt(m). Our degrees of freedom alone."""
    values = np.array([0.04, 0.05, 0.06, 0.07])
    ours = Ours(values.mean(), stats.sem(values), 4)
    run = difference(ours, printed("0.0468", None, 1))
    assert run.z == pytest.approx((ours.value - 0.0468) / (values.std(ddof=1) * math.sqrt(1 + 1 / 4)), rel=1e-12)
    many = difference(ours, printed("0.0468", None, 16))
    assert many.se == pytest.approx(values.std(ddof=1) * math.sqrt(1 / 4 + 1 / 16), rel=1e-12)
    assert run.df == many.df == 3


def test_the_spread_of_the_paper_stands_for_ours_below_three_splits():
    """Two splits: sd of the paper 0.02 sqrt(20), degrees of freedom 19, whatever our two happen to say."""
    expected = 0.02 * math.sqrt(20) * math.sqrt(1 / 2 + 1 / 20)
    found = difference(Ours(2.60, 1e-9, 2), printed("2.53", "0.02", 20))
    assert (found.se, found.df) == pytest.approx((expected, 19), rel=1e-12)
    assert reach(1.0, 1) == pytest.approx(12.706, abs=1e-3), "what t needs for two splits by themselves"


def test_an_error_of_both_truths_is_known():
    """It is twice in the variance and has no degrees of freedom to lose."""
    found = difference(Ours(0.41, 0.004, 10, shared=0.01), printed("0.38", "0.003", 10))
    own, theirs, both = 0.004**2, 0.003**2, 2 * 0.01**2
    assert found.se == pytest.approx(math.sqrt(own + theirs + both), rel=1e-12)
    assert found.df == pytest.approx((own + theirs + both) ** 2 / (own**2 / 9 + theirs**2 / 9), rel=1e-12)


def test_no_spread():
    assert difference(Ours(2.6, None, 1), printed("2.53", None, 20)) is None
    assert difference(Ours(2.6, 0.0, 20), printed("2.53", None, 20)) is None
    assert difference(Ours(2.6, None, 1), printed("2.53", "0.02", None)) is None
    assert difference(Ours(None, None, 0), printed("2.53", "0.02")) is None
    assert difference(Ours(1e308, 1e200, 20), printed("2.53")) is None


def test_large_numbers_keep_their_degrees_of_freedom():
    assert difference(Ours(4e150, 1e150, 20), printed("2.13e7", "2.01e7")).df == pytest.approx(19)


def test_interval_of_a_known_error_is_that_of_the_normal():
    assert Difference(1.0, 0.5, math.inf).half == pytest.approx(0.98, abs=1e-3)


def published(name):
    return json.loads((RESULTS / name / "table.json").read_text("utf-8"))


def test_none_of_the_seventeen_is_better():
    """What is shorter than printed by the authors' matrix root or by their draws alone.

    Twelve printed values come out of ``scripts/paper_conditions.py``; for five the number of the paper's draws would
    have to be known.
    """
    found = {}
    for name in ("online-fa", "logistic-posterior", "uci-linear-posterior"):
        for cell in published(name):
            if cell["p"] is not None and cell["p"] < 0.05 and cell["ours"] < cell["paper"]:
                found.setdefault((name, cell["verdict"]), []).append((cell["dataset"], cell["metric"]))
    assert {place: len(cells) for place, cells in found.items()} == {
        ("online-fa", "print in error"): 10,
        ("logistic-posterior", "print in error"): 1,
        ("uci-linear-posterior", "print in error"): 1,
        ("logistic-posterior", "undecided"): 5,
    }
    assert {metric for _, metric in found["online-fa", "print in error"]} == {"scaled_w2"}
    assert found["logistic-posterior", "print in error"] == [("australian", "scaled_w2")]
    assert found["uci-linear-posterior", "print in error"] == [("energy", "scaled_w2")]


def test_published_verdicts_claim_nothing_of_less_than_three_splits_or_of_survivors():
    for path in RESULTS.glob("*/table.json"):
        for cell in published(path.parent.name):
            if cell["n_trials"] < 3:
                assert cell["verdict"] not in ("better", "worse"), cell
            if cell["n_failed"]:
                assert cell["verdict"] not in ("better", "match"), cell


def test_survivors_are_said_to_be_survivors():
    """SWAG on yacht: 2 of 20 failed, and with those counted as worst the median is no better than the others'."""
    cells = [c for c in published("uci-regression") if (c["dataset"], c["method"]) == ("yacht", "swag-nn")]
    nmll = next(c for c in cells if (c["metric"], c["statistic"]) == ("nmll", "mean"))
    assert (nmll["n_trials"], nmll["n_failed"]) == (20, 2)
    assert nmll["failed_as_worst"] > nmll["ours"]
    assert "Trials failed" in nmll["note"]
