"""The one rule of intervals, by all positions of an interval and the margin."""

import pytest

from bdl.reports.intervals import Failures, Interval, judge_interval


@pytest.mark.parametrize(
    ("interval", "margin", "verdict"),
    [
        ((-2.0, -1.0), 0.0, "better"),
        ((1.0, 2.0), 0.0, "worse"),
        ((-1.0, 2.0), 0.0, "open"),
        ((0.0, 2.0), 0.0, "open"),
        ((0.0, 0.0), 0.0, "equivalent"),
        ((-1.0, 1.0), 1.0, "equivalent"),
        ((-1.0, 1.1), 1.0, "open"),
        ((1.0, 2.0), 1.0, "open"),
        ((-2.0, 2.0), 1.0, "open"),
        ((1.1, 2.0), 1.0, "worse"),
        ((-2.0, -1.1), 1.0, "better"),
    ],
)
def test_positions_of_an_interval(interval, margin, verdict):
    """Of a metric whose lower values are better; of a higher one, and of none, what follows."""
    mirrored = {"better": "worse", "worse": "better"}
    neutral = dict.fromkeys(mirrored, "differs")
    interval = Interval(*interval)
    assert judge_interval(interval, "lower", margin=margin) == verdict
    assert judge_interval(interval, "higher", margin=margin) == mirrored.get(verdict, verdict)
    assert judge_interval(interval, margin=margin) == neutral.get(verdict, verdict)


@pytest.mark.parametrize(
    ("direction", "failures", "verdict"),
    [
        ("lower", Failures(first=1), "undecided"),
        ("lower", Failures(second=1), "better"),
        ("higher", Failures(first=1), "worse"),
        ("higher", Failures(second=1), "undecided"),
        ("none", Failures(1, 1), "differs"),
    ],
)
def test_a_side_that_failed_gains_nothing(direction, failures, verdict):
    assert judge_interval(Interval(-2.0, -1.0), direction, failures=failures) == verdict
