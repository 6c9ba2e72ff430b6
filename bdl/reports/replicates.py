"""Statistics over replicates: the same fits on the same splits, under several seeds of training.

Given the splits, two runs of one method differ by their seeds alone. Where a paper's splits are
ours as well, that is the noise of our number minus the printed one; the spread over splits is in
both, and cancels.
"""

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bdl.reports.statistics import STATISTICS
from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd

_RESAMPLES = 4000
"""Draws of one replicate for each split, of which the median's variance is that of seeds."""


class SeedNoise(NamedTuple):
    """How far a statistic over splits moves from seed to seed, the splits staying the same."""

    variance: float
    """Of the statistic of one replicate; zero where no score depends on the seed."""
    df: float
    """Degrees of freedom of the variance; infinite where it is zero."""
    replicates: int
    """Seeds that it was measured by."""


class SeedRows:
    """The rows of one cell, laid out by seed and split once for all its metrics.

    The first seed is that of `trials`, whose splits all have. Replicates that lack some of these
    splits are left out.
    """

    def __init__(self, trials: "pd.DataFrame", replicates: "pd.DataFrame") -> None:
        splits = trials["split"].tolist()
        seeds = [trials]
        if len(replicates):
            for _, replicate in replicates.groupby("seed", sort=True):
                if set(splits) <= set(replicate["split"]):
                    seeds.append(replicate.set_index("split").loc[splits])
        self._seeds = [(rows, (rows["status"] == "ok").to_numpy(dtype=bool)) for rows in seeds]

    def scores(self, metric: str) -> Array:
        """Lay out the scores of a metric, (R, n): a row a seed, a column a split.

        The score of a fit that failed, or that is not finite, is NaN.
        """
        scores = np.empty((len(self._seeds), len(self._seeds[0][0])))
        for row, (rows, succeeded) in zip(scores, self._seeds, strict=True):
            values = rows[metric].to_numpy(dtype=np.float64)
            row[:] = np.where(succeeded & np.isfinite(values), values, np.nan)
        return scores


def average_over_seeds(scores: Array) -> Array:
    """Average the scores (R, n) of each split over seeds; splits without any score are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column of NaN, which is dropped
        averages = np.nanmean(scores, axis=0)
    return averages[np.isfinite(averages)]


def statistics_by_seed(statistic: str, scores: Array) -> Array:
    """Compute a statistic over the splits of each seed, (R,); NaN for a seed without a score."""
    locate = STATISTICS[statistic][0]
    values: list[float] = []
    for row in scores:
        finite = row[np.isfinite(row)]
        values.append(locate(finite) if finite.size else np.nan)
    return np.array(values)


def measure_seed_noise(statistic: str, scores: Array) -> SeedNoise | None:
    """Measure the noise of seeds in a mean or a median over splits, given the splits.

    None with one seed, where a score is missing or overflows, and for other statistics.

    Notes
    -----
    Where no score differs between seeds, the method is deterministic given the splits, and the
    variance is zero. With v_s the variance between the R seeds of split s of n, the mean over splits has the
    variance sum_s v_s / n^2. Its degrees of freedom are those of Satterthwaite (1946) for a sum of
    variances with R - 1 degrees each, (R - 1) (sum v_s)^2 / sum v_s^2: few where the noise of one
    split, such as that of a fit that nearly diverged, exceeds that of the others.

    The variance of a median is that over draws of one seed for each split, times R / (R - 1), as
    draws from R values have (R - 1) / R of the variance of what the values were drawn from. Its
    degrees of freedom are those of the sum over splits of w_s^2 v_s, with w_s the share of draws
    in which split s is in the middle: few splits ever are.
    """
    count, n = scores.shape
    if count < 2 or not n or not np.isfinite(scores).all() or statistic not in ("mean", "median"):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        variances = (scores - scores[0]).var(axis=0, ddof=1)
    if not variances.sum() < np.inf:
        return None
    if not variances.any():
        return SeedNoise(0.0, np.inf, count)
    if statistic == "mean":
        terms = variances / n**2
        return SeedNoise(float(terms.sum()), _degrees_of_freedom(terms, count), count)
    generator = np.random.default_rng(0)
    # one seed for each split by itself: given the splits, the seeds of two are independent
    choices = generator.integers(count, size=(_RESAMPLES, n))
    resamples = scores[choices, np.arange(n)]
    middle = np.argsort(resamples, axis=1)[:, [(n - 1) // 2, n // 2]]
    medians = np.take_along_axis(resamples, middle, axis=1).mean(axis=1)
    shares = np.bincount(middle.ravel(), minlength=n) / middle.size
    terms = shares**2 * variances
    variance = float(medians.var()) * count / (count - 1)
    if not (variance and terms.any()):
        return None
    return SeedNoise(variance, _degrees_of_freedom(terms, count), count)


def _degrees_of_freedom(terms: Array, count: int) -> float:
    """Compute Satterthwaite's degrees of freedom of a sum of variances between `count` seeds."""
    # In units of the largest, since the square of a large one overflows.
    scaled = terms / terms.max()
    return float((count - 1) * scaled.sum() ** 2 / (scaled**2).sum())
