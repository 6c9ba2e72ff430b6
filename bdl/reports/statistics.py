"""Rows of results: the axes of a sweep, and the location of independent trials with its standard error."""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

if TYPE_CHECKING:
    import pandas as pd


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

WORDS = {
    "model.hidden": "hidden units",
    "training.batch_size": "batch size (rows)",
    "dataset.rows": "training rows",
    "dataset.snr": "signal-to-noise ratio",
}
"""Axes whose last word does not say what they are."""


def by_cell(
    rows: "pd.DataFrame", axes: Sequence[str]
) -> "dict[tuple[Hashable, ...], pd.DataFrame]":
    """Group rows by data set, entry and the values of the axes, which together are the keys."""
    return dict(list(rows.groupby(["dataset", "entry", *axes], sort=False)))


def by_split(
    rows: "pd.DataFrame", axes: Sequence[str]
) -> "dict[tuple[Hashable, ...], pd.DataFrame]":
    """Group rows as `by_cell` does, each group with the split as its index.

    Rows may lack the column of an axis.
    """
    rows = rows.reindex(columns=list(dict.fromkeys((*rows.columns, *axes))))
    return {key: own.set_index("split") for key, own in by_cell(rows, axes).items()}


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items that have a key in common; keys are in the order of their appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def short(text: str) -> str:
    """Write a value for people: ``50`` for ``[50]``, ``50-20`` for ``[50,20]``, ``rank=2`` for ``{"rank":2}``."""
    value = json.loads(text)
    if isinstance(value, dict):
        return " ".join(f"{name}={short(json.dumps(part))}" for name, part in value.items())
    if isinstance(value, list):
        return "-".join(short(json.dumps(part)) for part in value)
    return (
        value
        if isinstance(value, str)
        else f"{value:g}"
        if isinstance(value, float)
        else json.dumps(value)
    )


def number(text: str) -> float | None:
    """Return the place of a value on an axis of numbers, also that of a list of one.

    None for what is no number.
    """
    value = json.loads(text)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def panel_heading(dataset: str, point: str) -> str:
    """Write what a panel is of: a data set, and a point of a sweep if there is one."""
    return "  ".join(part for part in (dataset, point) if part)


def named(values: Mapping[str, str]) -> str:
    """Write a point for people, ``hidden = 50``, by the last word of each path.

    Empty without a sweep.
    """
    return ", ".join(f"{path.rpartition('.')[2]} = {short(text)}" for path, text in values.items())


Array = NDArray[np.float64]


def finite(rows: "pd.DataFrame", metric: str) -> Array:
    """Return the finite values of a metric, of rows that did not fail."""
    values: Array = rows[metric][rows["status"] == "ok"].to_numpy(dtype=np.float64)
    return values[np.isfinite(values)]


def mean_se(values: Array) -> float:
    """Compute the standard error of the mean of n >= 2 values, sd / sqrt(n), with n - 1 degrees of freedom."""
    return float(
        (values - values[0]).std(ddof=1) / math.sqrt(values.size)
    )  # exactly 0 if all are equal


def median_se(values: Array) -> float:
    """Compute the standard error of the median of n >= 2 values: its bootstrap standard deviation, exactly.

    The bootstrap distribution of the middle order statistics is known in closed form, so nothing
    is simulated: the result is the limit of infinitely many resamples.

    Notes
    -----
    Maritz and Jarrett, "A note on estimating the variance of the sample median", JASA 73 (1978);
    Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979),
    section 3. With m the rank of the lower middle, x_1 <= ... <= x_n sorted and n = 2m,

        P(rank m is x_i, rank m+1 is x_j) = C(n, m) [(i/n)^m - ((i-1)/n)^m] [((n-j+1)/n)^m -
        ((n-j)/n)^m]

    for i < j, and P(rank m is among x_1 ... x_i) = I_{i/n}(m, n - m + 1).
    """
    ordered = np.sort(values) - values.min()  # exactly 0 if all are equal
    n = ordered.size
    m = (n + 1) // 2
    same = np.diff(
        betainc(m, n - m + 1, np.arange(n + 1) / n)
    )  # P(both are x_i); for odd n they are one
    if n % 2:
        return float(math.sqrt(same @ (ordered - same @ ordered) ** 2))
    i = np.arange(1, n)
    log_reach = m * np.log(
        i / n
    )  # of (i/n)^m: the powers themselves and C(n, m) leave the range of floats
    log_steps = log_reach + np.log1p(-np.exp(np.append(-np.inf, log_reach[:-1]) - log_reach))
    apart = np.exp(
        gammaln(n + 1) - 2 * gammaln(m + 1) + log_steps + log_reach[::-1]
    )  # P(rank m is x_i, m+1 is above)
    some = slice(np.flatnonzero(apart)[0], np.flatnonzero(apart)[-1] + 1)
    apart = apart[some]
    same[some] -= apart
    stays = np.exp(np.append(log_reach[::-1][1:], -np.inf) - log_reach[::-1])[
        some
    ]  # ((n-i-1)/(n-i))^m

    def moments(x: Array) -> tuple[float, float]:
        """First and second moment of the median of resamples of sorted values."""
        own, following = x[some], x[some.start + 1 : some.stop + 1]
        means = _backward(following, stays), _backward(following**2, stays)
        first = apart @ (own + means[0]) / 2 + same @ x
        return float(first), float(
            apart @ (own**2 + 2 * own * means[0] + means[1]) / 4 + same @ x**2
        )

    centred = ordered - ordered[m - 1]
    return math.sqrt(max(0.0, moments(centred - moments(centred)[0])[1]))


def _backward(x: Array, stays: Array) -> Array:
    """Average what follows: y_i = (1 - s_i) x_i + s_i y_(i+1), from the last."""
    average, found = x[-1], np.empty_like(x)
    for i in range(len(x) - 1, -1, -1):
        average += (1 - stays[i]) * (x[i] - average)
        found[i] = average
    return found


STATISTICS: dict[str, tuple[Callable[[Array], float], Callable[[Array], float]]] = {
    "mean": (lambda values: float(np.mean(values)), mean_se),
    "median": (lambda values: float(np.median(values)), median_se),
    "max": (lambda values: float(np.max(values)), lambda values: math.nan),
}
"""Statistic to (location, standard error); a maximum has none."""
