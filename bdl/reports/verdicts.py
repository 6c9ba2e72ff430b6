"""Verdicts of our numbers on the printed ones.

`judge` decides each; ``docs/verdicts.md`` gives the reasons of its rules.
"""

import math
from typing import NamedTuple

from scipy.special import stdtr

from bdl.metrics import MetricInfo
from bdl.reports import intervals
from bdl.reports.intervals import (
    LEVEL,
    MIN_SPLITS,
    Failures,
    Interval,
    interval_half_width,
    judge_interval,
)
from bdl.reports.papers import PaperValue, Printed
from bdl.reports.replicates import SeedNoise

_MAX_SPREAD_RATIO = 2.0
"""Ratio of two standard errors over the same splits up to which their noise counts as alike; of
two normal samples of twenty, four pairs in a thousand have a larger one.
"""

NOT_RUN = "not run"
"""The verdict on a number without any trial."""
FAILED = "failed"
"""The verdict on a number of trials all of which failed."""
NO_PAPER = "no paper value"
"""The verdict on a number that no paper prints."""
NO_PARAMETERS = "no parameters"
"""The verdict on a score of parameters, of which the method left none."""
WITHHELD = "withheld"
"""The verdict on a number that was not made as the protocol says."""
SAME_DIGITS = "same digits"
"""The verdict on equal digits, of the standard error as well where one is printed."""
EQUIVALENT = "equivalent"
"""The verdict where the whole interval of the difference is inside the margin."""
CONSISTENT = "consistent"
"""The verdict where the difference is inside the margin, and its interval is wider, with zero."""
UNSETTLED = "unsettled"
"""The verdict where noise, failures or missing errors leave the number open; a note says which."""
IN_ERROR = "print in error"
"""The verdict where the errata explain the printed number."""
GIVEN = "given"
"""The verdict on a number that the data or a definition give, whatever the method."""
DIFFERS_BY_CAUSE = {
    "known": "differs, cause known",
    "settings not printed": "differs, settings not printed",
    "unknown": "differs, cause unknown",
}
"""The verdicts on differences beyond chance and margin, by what is known of the cause."""

FEW_SPLITS = (
    "Fewer than three splits: the spread over splits is taken to be the paper's, "
    "and a difference beyond it is unsettled."
)
NO_SPREAD = "Unsettled: no spread is known, and the digits are others."
TOO_NOISY = "Unsettled: the difference is beyond the margin, and noise may explain it."
PRINTED_ZERO = "Unsettled: a printed zero has no margin."
BEYOND_CHANCE = "The difference is beyond chance, and inside the margin."
PERHAPS_SMALL = "The difference is beyond chance, and perhaps inside the margin."
IN_OUR_FAVOUR, AGAINST_US = "Ours is the better number.", "Ours is the worse number."
SURVIVORS = (
    "Trials failed: mean and median are of the others alone, so that agreement, or a better "
    "number, is unsettled. In parentheses: the median of all trials, the failed ones counted as "
    "worst."
)
GIVEN_THE_SPLITS = (
    "Tested given the splits, which are the paper's own ({evidence}): the noise is that of "
    "training seeds, of which ours are {replicates}, and the paper's is taken to be the same."
)
COARSE_TRUTH = (
    "Unsettled: the paper's truth is sampled as well, by draws whose number is not known, "
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
        """The part of the difference that rounding does not explain, in standard errors.

        Without any noise it is zero or infinite.
        """
        unexplained = math.copysign(max(abs(self.value) - self.rounding, 0.0), self.value)
        if not self.se:
            return math.copysign(math.inf, unexplained) if unexplained else 0.0
        return unexplained / self.se

    @property
    def p(self) -> float:
        """Probability of such a z, of either sign, if there is no difference."""
        return float(2 * stdtr(self.df, -abs(self.z)))

    @property
    def half_width(self) -> float:
        """Half the length of the 95 % interval, which is longer by the rounding at both ends."""
        return interval_half_width(self.se, self.df) + self.rounding

    @property
    def interval(self) -> Interval:
        """The 95 % interval."""
        return Interval(self.value - self.half_width, self.value + self.half_width)


class Judgement(NamedTuple):
    """A verdict, with the remark that it needs."""

    verdict: str
    note: str | None = None
    difference: Difference | None = None
    """The difference that was judged; None where its spread is not known."""


def difference_from_print(estimate: Estimate, paper: PaperValue) -> Difference | None:
    """Compute the difference of our number from the printed one; None where no spread is known.

    If the paper does not say of how many splits its number is, it counts as one run.

    Notes
    -----
    Where the splits are the paper's own (`is_tested_given_splits`), the difference has the noise
    of seeds alone: of one seed in the printed number and of the mean of R in ours, (1 + 1/R) times
    the variance of `SeedNoise`, which is zero for a deterministic method.

    Elsewhere it is Welch's test. With s and t the standard errors over n and m splits, the variance
    of the difference is s^2 + t^2, and its degrees of freedom
    (s^2 + t^2)^2 / (s^4 / (n - 1) + t^4 / (m - 1)). Where one of the two is not known, the spread
    over splits is that of the other, which alone has degrees of freedom then. A score that all our
    splits share has no noise. An error that all trials share is that of both truths, and known.
    """
    is_given_splits = is_tested_given_splits(estimate, paper)
    if is_given_splits:
        terms = _seed_terms(estimate.seed_noise)
    else:
        terms = _variance_terms(estimate, paper)
    if estimate.value is None or not terms:
        return None
    # An error that all trials share is in our number and in the printed one.
    variance = math.fsum(term for term, _ in terms) + 2 * (estimate.shared or 0.0) ** 2
    if variance == math.inf:
        return None
    # In units of the variance, since the square of a large one overflows. A term of zero is that
    # of a deterministic method, or of a score that no split changes.
    share = math.fsum((term / variance) ** 2 / df for term, df in terms if term)
    df = 1 / share if share else math.inf
    return Difference(estimate.value - paper.value, math.sqrt(variance), df, paper.value.rounding)


def is_tested_given_splits(estimate: Estimate, paper: PaperValue) -> bool:
    """Return whether both numbers are of the same splits, and the noise of seeds is known.

    They are if the paper's splits are ours, and none of them lacks a score of ours. The noise of
    its seeds is taken to be ours only where its spread over the splits is like ours.
    """
    noise = estimate.seed_noise
    is_complete = estimate.n == (paper.n or 1) and not estimate.failed
    if not (paper.same_splits and noise and is_complete):
        return False
    printed = _usable_error(paper.stderr, paper.n or 1)
    if not estimate.se or printed is None:
        return True
    # The printed error is of one seed. Ours is of the mean over R, with 1/R of the noise of one.
    variance = estimate.se * estimate.se + (1 - 1 / noise.replicates) * noise.variance
    return 1 / _MAX_SPREAD_RATIO <= printed / math.sqrt(variance) <= _MAX_SPREAD_RATIO


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
    known_verdict: str | None = None,
    cause: str = "unknown",
    protocol: bool = True,
    lacks_parameters: bool = False,
) -> Judgement:
    """Decide the verdict on one number: a constant of this module, or a value of `DIFFERS_BY_CAUSE`.

    The benchmark may know that the printed number is in error, or given (`known_verdict`), and the
    `cause` of a difference. Ours may not be made as the `protocol` says, and then nothing follows
    from a difference. `lacks_parameters` says that it is a score of parameters, and that some fit
    left none. Durations have a ratio such as ``"53x faster"`` in place of a verdict.
    """
    if lacks_parameters:
        return Judgement(NO_PARAMETERS)
    if estimate.n + estimate.failed == 0:
        return Judgement(NOT_RUN)
    if estimate.value is None:
        return Judgement(FAILED)
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
    if known_verdict == GIVEN:
        return Judgement(GIVEN, None, difference)
    if _has_same_digits(estimate, paper):
        return Judgement(SAME_DIGITS, None, difference)
    if difference is None:
        # without a spread nothing speaks against the ground that the errata give
        if known_verdict == IN_ERROR:
            return Judgement(IN_ERROR)
        return Judgement(UNSETTLED, NO_SPREAD)
    margin = metric_info.margin_of(paper.value)
    is_beyond_margin = abs(difference.value) - difference.rounding > margin
    has_few_splits = estimate.n < MIN_SPLITS and not is_tested_given_splits(estimate, paper)
    if known_verdict == IN_ERROR and is_beyond_margin and not has_few_splits:
        return Judgement(IN_ERROR, None, difference)
    few_splits = FEW_SPLITS if has_few_splits else None
    by_margin = judge_interval(difference.interval, margin=margin)
    failures = Failures(estimate.failed)
    by_chance = judge_interval(difference.interval, metric_info.direction, failures=failures)
    if intervals.EQUIVALENT in (by_margin, by_chance) or by_chance == intervals.OPEN:
        return _judge_agreement(estimate, difference, by_margin, margin, few_splits)
    if few_splits:
        return Judgement(UNSETTLED, few_splits, difference)
    if known_verdict == IN_ERROR:
        return Judgement(IN_ERROR, None, difference)
    return _judge_beyond_chance(
        estimate, difference, by_margin, by_chance, DIFFERS_BY_CAUSE[cause]
    )


def _has_same_digits(estimate: Estimate, paper: PaperValue) -> bool:
    """Return whether ours, rounded as the print, is the print; its standard error as well.

    What remains of trials of which some failed is not what the paper averaged. A printed error of
    zero is that of one run, which has none.
    """
    if estimate.failed or estimate.value is None or not paper.value.shows(estimate.value):
        return False
    if estimate.se is None:
        return not (paper.stderr or paper.deviation)
    if paper.deviation is not None:
        return paper.deviation.shows(estimate.se * math.sqrt(estimate.n))
    return paper.stderr is None or paper.stderr.shows(estimate.se)


def _judge_agreement(
    estimate: Estimate,
    difference: Difference,
    by_margin: str,
    margin: float,
    few_splits: str | None,
) -> Judgement:
    """Judge a difference that is inside the margin, or that chance explains.

    `by_margin` is the verdict of `judge_interval`; `few_splits` is the remark on too few splits,
    if they are.
    """
    if estimate.failed:
        return Judgement(UNSETTLED, None, difference)  # the remark on failures says why
    if by_margin == intervals.EQUIVALENT:
        beyond_chance = BEYOND_CHANCE if difference.p < LEVEL else None
        return Judgement(EQUIVALENT, few_splits or beyond_chance, difference)
    if abs(difference.value) - difference.rounding <= margin:
        return Judgement(CONSISTENT, few_splits, difference)
    reason = TOO_NOISY if margin else PRINTED_ZERO
    return Judgement(UNSETTLED, few_splits or reason, difference)


def _judge_beyond_chance(
    estimate: Estimate, difference: Difference, by_margin: str, by_chance: str, verdict: str
) -> Judgement:
    """Judge a difference beyond chance, with the verdicts of `judge_interval`.

    A better number of ours is unsettled where fits failed or the truth is sampled.
    """
    # The paper's failures are not known, so that what is undecided is a better number of ours.
    is_better = by_chance in (intervals.BETTER, intervals.UNDECIDED)
    # Unless an experiment has shown what coarser draws of the truth do, and the benchmark says so.
    if is_better and estimate.shared is not None and verdict == DIFFERS_BY_CAUSE["unknown"]:
        return Judgement(UNSETTLED, COARSE_TRUTH, difference)
    if by_chance == intervals.UNDECIDED:
        return Judgement(UNSETTLED, None, difference)
    notes: list[str] = []
    if by_chance != intervals.DIFFERS:
        notes.append(IN_OUR_FAVOUR if by_chance == intervals.BETTER else AGAINST_US)
    if by_margin != intervals.DIFFERS:
        notes.append(PERHAPS_SMALL)
    return Judgement(verdict, "\n".join(notes) or None, difference)
