"""A location and its standard error, from independent trials."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

Values = NDArray[np.float64]


def mean_se(values: Values) -> float:
    """Standard error of the mean.

    Parameters
    ----------
    values
        Shape (n,), n >= 2.

    Returns
    -------
    float
        sd / sqrt(n), the standard deviation with n - 1 degrees of freedom.
    """
    return float(values.std(ddof=1) / math.sqrt(values.size))


def median_se(values: Values) -> float:
    """Standard error of the median: its bootstrap standard deviation, computed exactly.

    The bootstrap distribution of the middle order statistics is known in closed form, so nothing is
    simulated: the result is the limit of infinitely many resamples.

    Parameters
    ----------
    values
        Shape (n,), n >= 2.

    Returns
    -------
    float
        Standard deviation of the median over all n^n equally likely resamples.

    Notes
    -----
    Maritz and Jarrett, "A note on estimating the variance of the sample median", JASA 73 (1978); Efron,
    "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979), section 3. With m the
    rank of the lower middle, x_1 <= ... <= x_n sorted and n = 2m,

        P(rank m is x_i, rank m+1 is x_j) = C(n, m) [(i/n)^m - ((i-1)/n)^m] [((n-j+1)/n)^m - ((n-j)/n)^m]

    for i < j, and P(rank m is among x_1 ... x_i) = I_{i/n}(m, n - m + 1).
    """
    ordered = np.sort(values)
    n = ordered.size
    m = (n + 1) // 2
    grid = np.arange(n + 1) / n
    lower = np.diff(betainc(m, n - m + 1, grid))
    joint = np.diag(lower)
    if n % 2 == 0:
        reach = np.diff(grid**m)
        apart = np.triu(math.comb(n, m) * np.outer(reach, reach[::-1]), k=1)
        joint = apart + np.diag(lower - apart.sum(axis=1))
    medians = ordered[:, None] / 2 + ordered / 2
    centre = (joint * medians).sum()
    return float(math.sqrt((joint * (medians - centre) ** 2).sum()))


STATISTICS: dict[str, tuple[Callable[[Values], float], Callable[[Values], float]]] = {
    "mean": (lambda values: float(np.mean(values)), mean_se),
    "median": (lambda values: float(np.median(values)), median_se),
}
"""Statistic to (location, standard error)."""
