"""What our number says about the printed one; the rules are in ``docs/verdicts.md``."""

import math
from typing import NamedTuple

from scipy.special import stdtr, stdtrit

from bdl.metrics import MetricInfo
from bdl.reports.papers import PaperValue, Printed

LEVEL = 0.05
"""Of the two-sided test: how often a difference is outside by chance alone."""
FEWEST = 3
"""Fewer splits of ours than this show no spread, and nothing is better or worse."""
MATTERS = 0.5
"""A difference of this part of the printed number would matter, so that a match must be able to exclude it."""
NOTHING = 0.01
"""Up to this part of a unit of the last printed digit, a number beside a printed zero is zero itself."""

NO_PAPER = "no paper value"
"""The verdict on a number that no paper prints."""

FEW = (
    "Fewer than three splits: the spread over splits is taken to be the paper's, and a difference beyond it is "
    "undecided."
)
NO_SPREAD = "No spread is known: a match is ours at the printed digits, and what is not is undecided."
DIGITS = "No spread is known: the printed digits are compared."
WIDE = "Undecided: the 95 % interval of the difference reaches further than half the printed number."
VACUOUS = "Uninformative: the 95 % interval of ours or of the printed number reaches zero."
ROUNDED_AWAY = "Uninformative: ours rounds to the printed zero as well, and so does anything smaller."
SURVIVORS = (
    "Trials failed: mean and median are of the others alone, so that nothing is better or a match. In parentheses: the "
    "median of all trials, the failed ones counted as worst."
)
COARSE = (
    "Undecided: the paper's truth is sampled as well, by draws whose number is not known, and a coarse sample "
    "lengthens distances."
)


class Ours(NamedTuple):
    """A statistic over our trials."""

    value: float | None
    """None if no trial succeeded."""
    se: float | None
    """Its standard error; None with fewer than two values."""
    n: int
    """Values that it is a statistic of."""
    failed: int = 0
    """Trials that failed."""
    shared: float | None = None
    """Where the truth is sampled, the standard error that all trials share; None elsewhere."""


class Difference(NamedTuple):
    """Ours minus the printed number, in the metric's unit."""

    value: float
    se: float
    df: float
    """Degrees of freedom of the standard error; infinite where all of it is known."""

    @property
    def z(self) -> float:
        """The difference in standard errors."""
        return self.value / self.se

    @property
    def p(self) -> float:
        """Probability of a difference as large, of either sign, if there is none."""
        return float(2 * stdtr(self.df, -abs(self.z)))

    @property
    def half(self) -> float:
        """Half the length of its 95 % interval."""
        return reach(self.se, self.df)


class Judgement(NamedTuple):
    """A verdict, and the remark that it needs."""

    verdict: str
    note: str | None = None


def reach(se: float, df: float) -> float:
    """Return half the length of a 95 % interval.

    Parameters
    ----------
    se
        Standard error.
    df
        Its degrees of freedom, more than 0.
    """
    return float(stdtrit(df, 1 - LEVEL / 2)) * se


def difference(ours: Ours, paper: PaperValue) -> Difference | None:
    """Set our number against the printed one.

    Parameters
    ----------
    ours
        Our number.
    paper
        The printed one, with the number of splits that it is of.

    Returns
    -------
    Difference or None
        None where no spread is known.

    Notes
    -----
    Welch's test. With s and t the standard errors over n and m splits, the variance of the difference is s^2 + t^2,
    and its degrees of freedom (s^2 + t^2)^2 / (s^4 / (n - 1) + t^4 / (m - 1)). Where one of the two is not known,
    the spread over splits is that of the other, which alone has degrees of freedom then. An error that all trials
    share is that of both truths, and known.
    """
    parts = _parts(ours, paper)
    if ours.value is None or not parts:
        return None
    variance = math.fsum(part for part, _ in parts) + 2 * (ours.shared or 0.0) ** 2
    if not 0 < variance < math.inf:
        return None
    # In units of the variance, since the square of a large one overflows.
    share = math.fsum((part / variance) ** 2 / df for part, df in parts)
    return Difference(ours.value - paper.value, math.sqrt(variance), 1 / share if share else math.inf)


def _parts(ours: Ours, paper: PaperValue) -> list[tuple[float, int]]:
    """List the independent parts of the variance of the difference, each with its degrees of freedom.

    Squares are products, which are infinite where a power would raise an exception.
    """
    n, m, s, t = ours.n, paper.n, _se(ours.se, ours.n), _se(paper.stderr, paper.n)
    if s is not None and t is not None and m is not None:
        return [(s * s, n - 1), (t * t, m - 1)]
    if s is not None and m:
        return [(s * s * (1 + n / m), n - 1)]
    if t is not None and m and n:
        return [(t * t * (1 + m / n), m - 1)]
    return []


def _se(se: float | None, n: int | None) -> float | None:
    """Return a standard error that tells of the spread: of enough splits, and not rounded to zero in print."""
    return se if n is not None and n >= FEWEST and not (isinstance(se, Printed) and not se) else None


def judge(
    ours: Ours, paper: PaperValue | None, about: MetricInfo, found: Difference | None, in_error: bool
) -> Judgement:
    """Judge one number.

    Parameters
    ----------
    ours
        Our number.
    paper
        The printed one, or None.
    about
        The metric, which says what is better.
    found
        What `difference` gives.
    in_error
        Whether the printed number is known to be wrong.

    Returns
    -------
    Judgement
        The verdict as listed for `bdl.reports.Cell`.
    """
    if ours.value is None:
        return Judgement("failed")
    if paper is None:
        return Judgement(NO_PAPER)
    if about.direction == "ratio":
        return Judgement(_ratio(ours.value, paper.value))
    if paper.value.shows(ours.value):
        return _same_digits(ours.value, paper.value, ours.failed)
    if vacuous(ours, paper):
        return Judgement("uninformative", VACUOUS)
    if found is None:
        return Judgement("differs", DIGITS) if about.direction == "none" else Judgement("undecided", NO_SPREAD)
    if found.p >= LEVEL:
        return _inside(ours, paper.value, found)
    return _outside(ours, paper.value, about, in_error)


def vacuous(ours: Ours, paper: PaperValue) -> bool:
    """Return whether the 95 % interval of ours or of the printed number, as far as they have one, reaches zero."""
    for value, se, n in ((ours.value, ours.se, ours.n), (paper.value, paper.stderr, paper.n)):
        known = _se(se, n)
        if value is not None and known is not None and n is not None and reach(known, n - 1) >= abs(value):
            return True
    return False


def _same_digits(ours: float, paper: Printed, failed: int) -> Judgement:
    if not paper and abs(ours) > NOTHING * 10**paper.exponent:
        return Judgement("uninformative", ROUNDED_AWAY)
    return Judgement("undecided") if failed else Judgement("match")


def _inside(ours: Ours, paper: float, found: Difference) -> Judgement:
    if found.half > MATTERS * abs(paper):
        return Judgement("undecided", WIDE)
    few = FEW if ours.n < FEWEST else None
    return Judgement("undecided" if ours.failed else "match", few)


def _outside(ours: Ours, paper: float, about: MetricInfo, in_error: bool) -> Judgement:
    if about.direction == "none":
        return Judgement("print in error" if in_error else "differs")
    if ours.n < FEWEST:
        return Judgement("undecided", FEW)
    if in_error:
        return Judgement("print in error")
    assert ours.value is not None
    if (ours.value < paper) != (about.direction == "lower"):
        return Judgement("worse")  # failures do not speak against it
    if ours.shared is not None:
        return Judgement("undecided", COARSE)
    return Judgement("undecided" if ours.failed else "better")


def _ratio(ours: float, paper: float) -> str:
    factor, word = (paper / ours, "faster") if ours <= paper else (ours / paper, "slower")
    return f"{factor:.0f}x {word}" if factor >= 9.95 else f"{factor:.1f}x {word}"
