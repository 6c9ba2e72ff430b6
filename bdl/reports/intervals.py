"""The rule that turns the 95 % interval of a difference into a verdict.

Claims, paired differences and printed numbers are judged by it; each says the verdict in its own
words.
"""

from typing import NamedTuple

from scipy.special import stdtrit

LEVEL = 0.05
"""Level of the two-sided test: how often a difference is outside by chance alone."""
MIN_SPLITS = 3
"""Fewer splits than this show no spread, and nothing is better or worse."""

BETTER, WORSE = "better", "worse"
"""The first number is the better, or the worse, by more than the margin."""
DIFFERS = "differs"
"""Beyond the margin, of numbers without a better and a worse."""
EQUIVALENT = "equivalent"
"""The whole interval is inside the margin."""
OPEN = "open"
"""The interval holds numbers inside of the margin and beyond it; zero, if there is no margin."""
UNDECIDED = "undecided"
"""The number would be better, but its side failed on splits that the other finished."""


class Interval(NamedTuple):
    """Ends of the interval of first minus second."""

    low: float
    high: float


class Failures(NamedTuple):
    """Numbers of splits on which one side failed and the other did not."""

    first: int = 0
    second: int = 0


NO_FAILURES = Failures()


def interval_half_width(se: float, df: float) -> float:
    """Compute half the length of a 95 % interval from a standard error with `df` > 0."""
    return float(stdtrit(df, 1 - LEVEL / 2)) * se


def judge_interval(
    interval: Interval,
    direction: str = "none",
    *,
    margin: float = 0.0,
    failures: Failures = NO_FAILURES,
) -> str:
    """Judge the first of two numbers by the interval of their difference.

    `direction` is that of the metric: which of two numbers is the better one.
    """
    low, high = interval
    if -margin <= low and high <= margin:
        return EQUIVALENT
    if low <= margin and high >= -margin:
        return OPEN
    if direction == "none":
        return DIFFERS
    # A side that failed where the other did not lacks its hardest splits, so that it gains
    # nothing.
    if (high < 0) == (direction == "lower"):
        return UNDECIDED if failures.first else BETTER
    return UNDECIDED if failures.second else WORSE
