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

NO_PAPER = "no paper value"
"""The verdict on a number that no paper prints."""
NO_PARAMETERS = "no parameters"
"""The verdict on a score of parameters, of which the method left none."""
WITHHELD = "withheld"
"""The verdict on a number that was not made as the protocol says."""
NOT_SHOWN = "no difference shown"
"""The verdict where zero is inside the interval of the difference, and the interval is not inside
the margin.
"""

FEW = (
    "Fewer than three splits: the spread over splits is taken to be the paper's, and a difference beyond it is "
    "undecided."
)
NO_SPREAD = (
    "No spread is known: a match has the printed digits, a unit of the last of which is within the margin; all else is "
    "undecided."
)
REAL = "The difference is beyond chance, and inside the margin."
PERHAPS_SMALL = "The difference is beyond chance, and perhaps inside the margin."
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
    rounding: float = 0.0
    """Half a unit of the last printed digit, by which the number may have been rounded."""

    @property
    def z(self) -> float:
        """What rounding does not explain of the difference, in standard errors."""
        return math.copysign(max(abs(self.value) - self.rounding, 0.0), self.value) / self.se

    @property
    def p(self) -> float:
        """Probability of such a z, of either sign, if there is no difference."""
        return float(2 * stdtr(self.df, -abs(self.z)))

    @property
    def half(self) -> float:
        """Half the length of the 95 % interval, which is longer by the rounding at both ends."""
        return reach(self.se, self.df) + self.rounding

    def within(self, margin: float) -> bool:
        """Return whether the whole interval is inside the margin, to either side of zero."""
        return abs(self.value) + self.half <= margin


class Judgement(NamedTuple):
    """A verdict, the remark that it needs, and the difference that it is about, where its spread is known."""

    verdict: str
    note: str | None = None
    found: Difference | None = None


def reach(se: float, df: float) -> float:
    """Return half the length of a 95 % interval, from a standard error and its degrees of freedom, more than 0."""
    return float(stdtrit(df, 1 - LEVEL / 2)) * se


def difference(ours: Ours, paper: PaperValue) -> Difference | None:
    """Set our number against the printed one; None where no spread is known.

    If the paper does not say of how many splits its number is, it counts as one run.

    Notes
    -----
    Welch's test. With s and t the standard errors over n and m splits, the variance of the
    difference is s^2 + t^2, and its degrees of freedom (s^2 + t^2)^2 / (s^4 / (n - 1) + t^4 / (m -
    1)). Where one of the two is not known, the spread over splits is that of the other, which
    alone has degrees of freedom then. An error that all trials share is that of both truths, and
    known.
    """
    parts = _parts(ours, paper)
    if ours.value is None or not parts:
        return None
    variance = math.fsum(part for part, _ in parts) + 2 * (ours.shared or 0.0) ** 2
    if not 0 < variance < math.inf:
        return None
    # In units of the variance, since the square of a large one overflows.
    share = math.fsum((part / variance) ** 2 / df for part, df in parts)
    df = 1 / share if share else math.inf
    return Difference(ours.value - paper.value, math.sqrt(variance), df, paper.value.rounding)


def _parts(ours: Ours, paper: PaperValue) -> list[tuple[float, int]]:
    """List the independent parts of the variance of the difference, each with its degrees of freedom.

    Squares are products, which are infinite where a power would raise an exception.
    """
    n, m = ours.n, paper.n or 1
    s, t = _se(ours.se, n), _se(paper.stderr, m)
    if s is not None and t is not None:
        return [(s * s, n - 1), (t * t, m - 1)]
    if s is not None:
        return [(s * s * (1 + n / m), n - 1)]
    if t is not None and n:
        return [(t * t * (1 + m / n), m - 1)]
    return []


def _se(se: float | None, n: int) -> float | None:
    """Return a standard error that tells of the spread: of enough splits, and not rounded to zero in print."""
    return se if n >= FEWEST and not (isinstance(se, Printed) and not se) else None


def judge(
    ours: Ours,
    paper: PaperValue | None,
    about: MetricInfo,
    *,
    in_error: bool = False,
    protocol: bool = True,
) -> Judgement:
    """Judge one number, by the verdicts that are listed for `bdl.reports.Cell`.

    The printed number may be known to be `in_error`; ours may not be made as the `protocol` says,
    and then nothing follows from a difference.
    """
    if ours.value is None:
        return Judgement("failed")
    if paper is None:
        return Judgement(NO_PAPER)
    if not protocol:
        return Judgement(WITHHELD)
    if about.direction == "ratio":
        faster = ours.value <= paper.value
        factor = paper.value / ours.value if faster else ours.value / paper.value
        return Judgement(
            f"{factor:.{0 if factor >= 9.95 else 1}f}x {'faster' if faster else 'slower'}"
        )
    found, margin = difference(ours, paper), about.margin_of(paper.value)
    if found is None:
        return _by_digits(ours, paper.value, margin, in_error)
    few = FEW if ours.n < FEWEST else None
    real = found.p < LEVEL
    if found.within(margin):
        return Judgement(
            "undecided" if ours.failed else "match", few or (REAL if real else None), found
        )
    if not real or few:
        return Judgement("undecided" if real else NOT_SHOWN, few, found)
    if in_error:
        return Judgement("print in error", None, found)
    return _beyond(
        ours, found, about, PERHAPS_SMALL if abs(found.value) - found.half < margin else None
    )


def _by_digits(ours: Ours, paper: Printed, margin: float, in_error: bool) -> Judgement:
    """Compare where no spread is known: a match has the printed digits, and these are finer than the margin."""
    assert ours.value is not None
    if paper.shows(ours.value) and 2 * paper.rounding <= margin:
        return Judgement("undecided" if ours.failed else "match", NO_SPREAD)
    return Judgement(
        "print in error" if in_error and not paper.shows(ours.value) else "undecided", NO_SPREAD
    )


def _beyond(ours: Ours, found: Difference, about: MetricInfo, note: str | None) -> Judgement:
    """Name a difference beyond chance.

    What flatters us is undecided where fits failed or the truth is sampled.
    """
    if about.direction == "none":
        return Judgement("differs", note, found)
    if (found.value < 0) != (about.direction == "lower"):
        return Judgement("worse", note, found)
    if ours.shared is not None:
        return Judgement("undecided", COARSE, found)
    return Judgement("undecided" if ours.failed else "better", note, found)
