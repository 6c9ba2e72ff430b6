"""Verdicts of our numbers on the printed ones; the rules are in ``docs/verdicts.md``."""

import math
from typing import NamedTuple

from scipy.special import stdtr, stdtrit

from bdl.metrics import MetricInfo
from bdl.reports.papers import PaperValue, Printed
from bdl.reports.replicates import SeedNoise

LEVEL = 0.05
"""Level of the two-sided test: how often a difference is outside by chance alone."""
MIN_SPLITS = 3
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

FEW_SPLITS = (
    "Fewer than three splits: the spread over splits is taken to be the paper's, "
    "and a difference beyond it is undecided."
)
NO_SPREAD = (
    "No spread is known: a match has the printed digits, a unit of the last of which is within "
    "the margin; all else is undecided."
)
BEYOND_CHANCE = "The difference is beyond chance, and inside the margin."
PERHAPS_SMALL = "The difference is beyond chance, and perhaps inside the margin."
SURVIVORS = (
    "Trials failed: mean and median are of the others alone, so that nothing is better or a "
    "match. In parentheses: the median of all trials, the failed ones counted as worst."
)
GIVEN_THE_SPLITS = (
    "Tested given the splits, which are the paper's own ({evidence}): the noise is that of "
    "training seeds, of which ours are {replicates}, and the paper's is taken to be the same."
)
COARSE_TRUTH = (
    "Undecided: the paper's truth is sampled as well, by draws whose number is not known, "
    "and a coarse sample lengthens distances."
)


class Estimate(NamedTuple):
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
    seed_noise: SeedNoise | None = None
    """The noise of training seeds, given the splits; None without replicates."""


class Difference(NamedTuple):
    """Our number minus the printed one, in the metric's unit."""

    value: float
    se: float
    df: float
    """Degrees of freedom of the standard error; infinite where all of it is known."""
    rounding: float = 0.0
    """Half a unit of the last printed digit, by which the number may have been rounded."""

    @property
    def z(self) -> float:
        """The part of the difference that rounding does not explain, in standard errors."""
        return math.copysign(max(abs(self.value) - self.rounding, 0.0), self.value) / self.se

    @property
    def p(self) -> float:
        """Probability of such a z, of either sign, if there is no difference."""
        return float(2 * stdtr(self.df, -abs(self.z)))

    @property
    def half_width(self) -> float:
        """Half the length of the 95 % interval, which is longer by the rounding at both ends."""
        return interval_half_width(self.se, self.df) + self.rounding

    def within(self, margin: float) -> bool:
        """Return whether the whole interval is inside the margin, to either side of zero."""
        return abs(self.value) + self.half_width <= margin


class Judgement(NamedTuple):
    """A verdict, with the remark that it needs."""

    verdict: str
    note: str | None = None
    difference: Difference | None = None
    """The difference that was judged; None where its spread is not known."""


def interval_half_width(se: float, df: float) -> float:
    """Compute half the length of a 95 % interval from a standard error with `df` > 0."""
    return float(stdtrit(df, 1 - LEVEL / 2)) * se


def difference_from_print(estimate: Estimate, paper: PaperValue) -> Difference | None:
    """Compute the difference of our number from the printed one; None where no spread is known.

    If the paper does not say of how many splits its number is, it counts as one run.

    Notes
    -----
    Where the splits are the paper's own (`is_tested_given_splits`), the difference has the noise
    of seeds alone: of one seed in the printed number and of the mean of R in ours, (1 + 1/R) times
    the variance of `SeedNoise`. Elsewhere it is Welch's test. With s and t the standard errors
    over n and m splits, the variance of the difference is s^2 + t^2, and its degrees of freedom
    (s^2 + t^2)^2 / (s^4 / (n - 1) + t^4 / (m - 1)). Where one of the two is not known, the spread
    over splits is that of the other, which alone has degrees of freedom then. An error that all
    trials share is that of both truths, and known.
    """
    if is_tested_given_splits(estimate, paper):
        terms = _seed_terms(estimate.seed_noise)
    else:
        terms = _variance_terms(estimate, paper)
    if estimate.value is None or not terms:
        return None
    # An error that all trials share is in our number and in the printed one.
    variance = math.fsum(term for term, _ in terms) + 2 * (estimate.shared or 0.0) ** 2
    if not 0 < variance < math.inf:
        return None
    # In units of the variance, since the square of a large one overflows.
    share = math.fsum((term / variance) ** 2 / df for term, df in terms)
    df = 1 / share if share else math.inf
    return Difference(estimate.value - paper.value, math.sqrt(variance), df, paper.value.rounding)


def is_tested_given_splits(estimate: Estimate, paper: PaperValue) -> bool:
    """Return whether both numbers are of the same splits, and the noise of seeds is known.

    They are if the paper's splits are ours, and none of them lacks a score of ours.
    """
    is_complete = estimate.n == paper.n and not estimate.failed
    return bool(paper.same_splits and estimate.seed_noise and is_complete)


def _seed_terms(noise: SeedNoise | None) -> list[tuple[float, float]]:
    if noise is None:
        return []
    return [(noise.variance * (1 + 1 / noise.replicates), noise.df)]


def _variance_terms(estimate: Estimate, paper: PaperValue) -> list[tuple[float, float]]:
    """List the independent terms of the variance of a difference, with their degrees of freedom.

    Squares are products, which are infinite where a power would raise an exception.
    """
    n, m = estimate.n, paper.n or 1
    s, t = _usable_error(estimate.se, n), _usable_error(paper.stderr, m)
    if s is not None and t is not None:
        return [(s * s, n - 1), (t * t, m - 1)]
    if s is not None:
        return [(s * s * (1 + n / m), n - 1)]
    if t is not None and n:
        return [(t * t * (1 + m / n), m - 1)]
    return []


def _usable_error(se: float | None, n: int) -> float | None:
    """Return a standard error that shows the spread, else None.

    It is of enough splits, and not rounded to zero in print.
    """
    rounded_to_zero = isinstance(se, Printed) and not se
    return None if n < MIN_SPLITS or rounded_to_zero else se


def judge(
    estimate: Estimate,
    paper: PaperValue | None,
    metric_info: MetricInfo,
    *,
    in_error: bool = False,
    protocol: bool = True,
) -> Judgement:
    """Judge one number by the verdicts that are listed for `bdl.reports.TableEntry`.

    The printed number may be known to be `in_error`; ours may not be made as the `protocol` says,
    and then nothing follows from a difference.
    """
    if estimate.value is None:
        return Judgement("failed")
    if paper is None:
        return Judgement(NO_PAPER)
    if not protocol:
        return Judgement(WITHHELD)
    if metric_info.direction == "ratio":
        faster = estimate.value <= paper.value
        factor = paper.value / estimate.value if faster else estimate.value / paper.value
        decimals = 0 if factor >= 9.95 else 1
        return Judgement(f"{factor:.{decimals}f}x {'faster' if faster else 'slower'}")
    difference = difference_from_print(estimate, paper)
    margin = metric_info.margin_of(paper.value)
    if difference is None:
        return _judge_by_digits(estimate, paper.value, margin, in_error)
    few_splits = FEW_SPLITS if estimate.n < MIN_SPLITS else None
    beyond_chance = difference.p < LEVEL
    if difference.within(margin):
        note = few_splits or (BEYOND_CHANCE if beyond_chance else None)
        return Judgement("undecided" if estimate.failed else "match", note, difference)
    if not beyond_chance or few_splits:
        return Judgement("undecided" if beyond_chance else NOT_SHOWN, few_splits, difference)
    if in_error:
        return Judgement("print in error", None, difference)
    perhaps_small = abs(difference.value) - difference.half_width < margin
    note = PERHAPS_SMALL if perhaps_small else None
    return _judge_beyond_chance(estimate, difference, metric_info, note)


def _judge_by_digits(
    estimate: Estimate, paper: Printed, margin: float, in_error: bool
) -> Judgement:
    """Judge where no spread is known.

    A match has the printed digits, and these are finer than the margin.
    """
    assert estimate.value is not None
    same_digits = paper.shows(estimate.value)
    if same_digits and 2 * paper.rounding <= margin:
        return Judgement("undecided" if estimate.failed else "match", NO_SPREAD)
    if in_error and not same_digits:
        return Judgement("print in error", NO_SPREAD)
    return Judgement("undecided", NO_SPREAD)


def _judge_beyond_chance(
    estimate: Estimate, difference: Difference, metric_info: MetricInfo, note: str | None
) -> Judgement:
    """Judge a difference beyond chance.

    A difference in our favour is undecided where fits failed or the truth is sampled.
    """
    if metric_info.direction == "none":
        return Judgement("differs", note, difference)
    if (difference.value < 0) != (metric_info.direction == "lower"):
        return Judgement("worse", note, difference)
    if estimate.shared is not None:
        return Judgement("undecided", COARSE_TRUTH, difference)
    return Judgement("undecided" if estimate.failed else "better", note, difference)
