"""Overall standing of methods over data sets, and the evidence on each pair of them.

All functions take scores by split of which less is better. A method is ranked by its mean over the
splits of each data set. Methods that lack a split have no rank, and a failed fit counts as the
worst score that a ranked method has on the data set.

Notes
-----
- Average ranks, and critical differences by Nemenyi's test: Demsar, "Statistical comparisons of
  classifiers over multiple data sets", Journal of Machine Learning Research 7 (2006).
- Normalised scores, 1 for the best method of a data set and 0 for the median one and all behind
  it: Erickson et al., "TabArena: a living benchmark for machine learning on tabular data" (2025).
- Intervals are percentiles of a bootstrap that draws data sets and then, in each, splits, the same
  for all methods. Of few data sets such percentiles are too near to each other: they are expanded
  as Student's t is wider than the normal distribution, Hesterberg, "What teachers should know
  about the bootstrap", The American Statistician 69 (2015), section 3.
- Splits share training rows; the variance of a mean difference over n of them is s² (1/n + r),
  with r = n_test / n_train: Nadeau and Bengio, "Inference for the generalization error", Machine
  Learning 52 (2003).
- The hierarchical model of a pair is that of Corani, Benavoli, Demsar, Mangili and Zaffalon,
  "Statistical comparison of classifiers through Bayesian hierarchical modelling", Machine Learning
  106 (2017), in the normal form of Gelman et al., "Bayesian Data Analysis" (3rd edition, 2013),
  section 5.4: the mean difference of data set d is N(theta_d, v_d) with the variance above, and
  theta_d is N(mu, tau²) with flat priors on mu and tau.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtrinc, ndtr, stdtrit

from bdl.reports.intervals import (
    BETTER,
    LEVEL,
    MIN_SPLITS,
    WORSE,
    Failures,
    Interval,
    interval_half_width,
    judge_interval,
)
from bdl.types import Array

BOOTSTRAP_DRAWS = 2000
"""Draws of the bootstrap; its seed is fixed, so that a table is the same each time."""
POWER = 0.8
"""Share of repetitions in which the smallest difference shown is found."""
MIN_DATASETS = 3
"""Fewer data sets show no order of methods."""
DECISION = 0.95
"""Posterior probability from which the hierarchical model calls a method better."""

_NODES = 401
"""Nodes of the quadrature over the scale tau."""
_LEAST_TAU, _LARGEST_TAU = 1e-3, 1e4
"""Ends of its grid: shares of the least standard error, and of the scale of all differences."""
_ROUNDING = 1e-9
"""Least standard error of a mean difference, relative to it."""


class SplitScores(NamedTuple):
    """Scores of methods by split, of which less is better."""

    datasets: tuple[str, ...]
    entries: tuple[str, ...]
    scores: tuple[Array, ...]
    """One array a data set, (splits, entries); NaN is a failed fit."""

    @property
    def n_splits(self) -> tuple[int, ...]:
        """Number of splits of each data set."""
        return tuple(len(values) for values in self.scores)

    def select(self, entries: Sequence[str]) -> "SplitScores":
        """Select entries, in this order."""
        columns = [self.entries.index(entry) for entry in entries]
        return self._replace(
            entries=tuple(entries), scores=tuple(values[:, columns] for values in self.scores)
        )

    def with_failures_as_worst(self, ranked: Sequence[str]) -> "SplitScores":
        """Replace failed fits by the worst score of the ranked entries on their data set.

        It is 0 where all of them have failed.
        """
        columns = [self.entries.index(entry) for entry in ranked]
        filled = []
        for values in self.scores:
            finite = values[:, columns][np.isfinite(values[:, columns])]
            worst = finite.max() if finite.size else 0.0
            filled.append(np.where(np.isfinite(values), values, worst))
        return self._replace(scores=tuple(filled))


class IntervalEstimate(NamedTuple):
    """A number with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def rank_methods(means: Array) -> Array:
    """Rank along the last axis, 1 for the least; equal means share the average of their ranks."""
    from scipy.stats import rankdata  # most tables have no standing, and do without

    ranks: Array = rankdata(means, axis=-1)
    return ranks


def normalise_scores(means: Array) -> Array:
    """Scale along the last axis: 1 for the best, 0 for the median and all behind it.

    Where the best is the median as well, it and its equals are 1, and all behind them 0.
    """
    best = means.min(-1, keepdims=True)
    span = np.median(means, axis=-1, keepdims=True) - best
    gaps = np.divide(means - best, span, out=(means > best).astype(np.float64), where=span > 0)
    normalised: Array = np.clip(1 - gaps, 0, 1)
    return normalised


def dataset_means(scores: SplitScores) -> Array:
    """Average over splits: (data sets, entries)."""
    return np.stack([values.mean(0) for values in scores.scores])


def resample_means(scores: SplitScores, draws: int, generator: np.random.Generator) -> Array:
    """Draw data sets, and in each of them splits, with replacement, the same for all methods.

    Returns the means over splits, (draws, data sets, entries). One data set is not drawn, so that
    the spread is that of its splits.
    """
    count = len(scores.datasets)
    means = np.empty((draws, count, len(scores.entries)))
    for slot in range(count):
        chosen = generator.integers(count, size=draws)
        for dataset, values in enumerate(scores.scores):
            drawn = chosen == dataset
            n = len(values)
            # how often each split is drawn, rather than the splits themselves
            weights = generator.multinomial(n, np.full(n, 1 / n), size=int(drawn.sum())) / n
            # not a product of matrices, whose rounding differs between equal columns
            means[drawn, slot] = (weights[:, :, None] * values).sum(1)
    return means


def bootstrap_interval(value: float, samples: Array, units: int) -> IntervalEstimate:
    """Return a value with its expanded percentile interval, of so many resampled units.

    One unit has no spread: the ends are NaN.
    """
    if units < 2:
        return IntervalEstimate(float(value), math.nan, math.nan)
    tail = expanded_tail(units)
    low, high = np.quantile(samples, [tail, 1 - tail])
    return IntervalEstimate(float(value), float(low), float(high))


def expanded_tail(units: int) -> float:
    """Return the share of bootstrap samples below an interval; two units or more are resampled."""
    # Hesterberg's correction: Student's quantile, and n / (n - 1) as resampling divides by n
    quantile = stdtrit(units - 1, LEVEL / 2)
    return float(ndtr(math.sqrt(units / (units - 1)) * quantile))


def win_rates(scores: SplitScores) -> Array:
    """Return the share of splits on which the row's method is better than the column's.

    (entries, entries), averaged over data sets; equal scores count by half.
    """
    rates = []
    for values in scores.scores:
        better = (values[:, :, None] < values[:, None, :]).mean(0)
        equal = (values[:, :, None] == values[:, None, :]).mean(0)
        rates.append(better + equal / 2)
    return np.mean(rates, axis=0)


def critical_difference(entries: int, datasets: int) -> float:
    """Return the difference of average ranks beyond which Nemenyi's test at 5 % finds one.

    It is q sqrt(k (k + 1) / (6 N)) of k methods on N data sets, where q sqrt(2) is the quantile of
    the range of k standard normal values.
    """
    from scipy.stats import studentized_range  # most tables have no standing, and do without

    quantile = float(studentized_range.ppf(1 - LEVEL, entries, math.inf))
    return quantile / math.sqrt(2) * math.sqrt(entries * (entries + 1) / (6 * datasets))


def critical_groups(ranks: Array, difference: float) -> list[tuple[int, ...]]:
    """List the largest groups of methods whose ranks are at most a difference apart.

    Each group holds indices in the order of ranks; methods that are told from all others are in
    none.
    """
    order = np.argsort(ranks, kind="stable")
    groups: list[tuple[int, ...]] = []
    last_end = 0
    for start in range(len(order)):
        within = ranks[order[start:]] - ranks[order[start]] <= difference
        end = start + int(within.sum())
        if end > max(last_end, start + 1):
            groups.append(tuple(int(index) for index in order[start:end]))
            last_end = end
    return groups


def pareto_front(costs: Array, scores: Array) -> NDArray[np.bool_]:
    """Return which points no other point beats in cost or score without being worse in the other."""
    no_worse = (costs[:, None] >= costs) & (scores[:, None] >= scores)
    better = (costs[:, None] > costs) | (scores[:, None] > scores)
    is_beaten: NDArray[np.bool_] = np.any(no_worse & better, axis=1)
    return ~is_beaten


def smallest_difference(values: Array, overlap: float) -> float:
    """Return the mean difference that such splits would show with 80 % power.

    `values` are paired differences, three or more, whose standard deviation s is taken for the
    true one. Of a true mean of nc s sqrt(1/n + r), the t statistic has Student's noncentral
    distribution, and nc is that by which it is beyond the two-sided 5 % quantile in 80 % of
    repetitions. The share beyond the other quantile is less than 1e-5.
    """
    return _noncentrality(values.size - 1) * _corrected_se(values, overlap)


@cache
def _noncentrality(freedom: int) -> float:
    return float(nctdtrinc(freedom, 1 - POWER, stdtrit(freedom, 1 - LEVEL / 2)))


def _corrected_se(values: Array, overlap: float) -> float:
    """Compute the standard error of a mean difference over splits that share training rows."""
    return float((values - values[0]).std(ddof=1) * math.sqrt(1 / values.size + overlap))


class PairEvidence(NamedTuple):
    """Difference of two methods on one data set, and the difference that its splits would show."""

    dataset: str
    entry: str
    other: str
    n: int
    """Splits that both finished, three or more."""
    difference: float
    """Mean of the first minus the second; less is better."""
    half_width: float
    """Half the length of its 95 % interval."""
    smallest: float
    """As `smallest_difference` says."""
    failures: Failures
    """Failures of each where the other has a score."""

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0, and failures do not speak for the one that is ahead."""
        interval = Interval(self.difference - self.half_width, self.difference + self.half_width)
        return judge_interval(interval, "lower", failures=self.failures) in (BETTER, WORSE)


def compare_pairs(scores: SplitScores, overlaps: Sequence[float]) -> list[PairEvidence]:
    """Compare each pair of methods on each data set, on the splits that both finished."""
    evidence = []
    for dataset, values, overlap in zip(scores.datasets, scores.scores, overlaps, strict=True):
        for i, entry in enumerate(scores.entries):
            for j in range(i + 1, len(scores.entries)):
                finished = np.isfinite(values[:, [i, j]])
                differences = (values[:, i] - values[:, j])[finished.all(1)]
                if differences.size < MIN_SPLITS:
                    continue
                se = _corrected_se(differences, overlap)
                lone_failures = (~finished & finished[:, ::-1]).sum(0)
                evidence.append(
                    PairEvidence(
                        dataset,
                        entry,
                        scores.entries[j],
                        differences.size,
                        float(differences.mean()),
                        interval_half_width(se, differences.size - 1),
                        smallest_difference(differences, overlap),
                        Failures(*map(int, lone_failures)),
                    )
                )
    return evidence


class PairPosterior(NamedTuple):
    """Posterior probabilities of the mean difference of two methods over data sets."""

    better: float
    """That the first is better by more than the margin."""
    alike: float
    """That both are within the margin."""
    worse: float


def compare_hierarchically(
    differences: Sequence[Array], overlaps: Sequence[float], margin: float
) -> PairPosterior:
    """Compare two methods over data sets by the hierarchical normal model.

    `differences` has the paired differences of each data set, three or more of three or more data
    sets. The variance of a mean difference is that of Student's t, (n - 1) / (n - 3) times that
    of Nadeau and Bengio, where there are more than three. A data set whose differences overflow
    when squared says nothing, and is left out; of fewer than three nothing follows, NaN.
    """
    means = np.array([values.mean() for values in differences])
    variances = np.empty(len(means))
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (values, overlap) in enumerate(zip(differences, overlaps, strict=True)):
            freedom = values.size - 1
            # Student's t of two degrees has no variance: three differences take the factor of four
            widening = freedom / (freedom - 2) if freedom > 2 else 3.0
            variances[i] = widening * np.square(_corrected_se(values, overlap))
        # with room for the squares of the largest tau
        is_known = np.isfinite(len(means) * _LARGEST_TAU**2 * (variances + means**2))
    means, variances = means[is_known], variances[is_known]
    if means.size < MIN_DATASETS:
        return PairPosterior(math.nan, math.nan, math.nan)
    scale = math.sqrt(variances.mean() + means.var())
    if scale == 0:  # all differences are equal
        better, worse = float(means[0] < -margin), float(means[0] > margin)
        return PairPosterior(better, 1 - better - worse, worse)
    # Rounding alone would decide between variances of zero.
    variances = np.maximum(variances, (_ROUNDING * means) ** 2)
    # Equal steps of log tau. One data set may be far noisier than the others: the grid begins
    # below the error of the quietest. The posterior of tau falls as tau^(1 - data sets).
    least = math.sqrt(variances[variances > 0].min(initial=scale * scale))
    log_tau = np.linspace(math.log(_LEAST_TAU * least), math.log(_LARGEST_TAU * scale), _NODES)
    total = variances + np.exp(2 * log_tau)[:, None]
    mu_variance = 1 / (1 / total).sum(1)
    mu = mu_variance * (means / total).sum(1)
    log_density = (
        np.log(mu_variance) / 2
        - np.log(total).sum(1) / 2
        - ((means - mu[:, None]) ** 2 / total).sum(1) / 2
        + log_tau  # d tau / d log tau
    )
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    deviation = np.sqrt(mu_variance)
    better = float(weights @ ndtr((-margin - mu) / deviation))
    worse = float(weights @ ndtr((mu - margin) / deviation))
    return PairPosterior(better, 1 - better - worse, worse)


class RankBootstrap(NamedTuple):
    """Average ranks and mean normalised scores of methods, with samples of the bootstrap."""

    ranks: Array
    normalised: Array
    rank_samples: Array
    """(draws, entries)."""
    normalised_samples: Array
    units: int
    """Data sets, or the splits of one alone: the units that are resampled."""

    def rank_interval(self, i: int) -> IntervalEstimate:
        """Return the average rank of a method with its interval."""
        return bootstrap_interval(self.ranks[i], self.rank_samples[:, i], self.units)

    def normalised_interval(self, i: int) -> IntervalEstimate:
        """Return the mean normalised score of a method with its interval."""
        return bootstrap_interval(self.normalised[i], self.normalised_samples[:, i], self.units)

    def rank_difference(self, i: int, j: int) -> IntervalEstimate:
        """Return the rank of one method minus that of another, with the paired interval."""
        samples = self.rank_samples[:, i] - self.rank_samples[:, j]
        return bootstrap_interval(self.ranks[i] - self.ranks[j], samples, self.units)


def bootstrap_ranks(scores: SplitScores, draws: int = BOOTSTRAP_DRAWS) -> RankBootstrap:
    """Rank methods over data sets, with the bootstrap; scores have no gaps."""
    means = dataset_means(scores)
    samples = resample_means(scores, draws, np.random.default_rng(0))
    units = len(scores.datasets)
    if units == 1:
        units = scores.n_splits[0]
    return RankBootstrap(
        rank_methods(means).mean(0),
        normalise_scores(means).mean(0),
        rank_methods(samples).mean(1),
        normalise_scores(samples).mean(1),
        units,
    )
