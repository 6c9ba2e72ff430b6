"""Groups of result rows, texts of settings, and statistics of trials with standard errors."""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from scipy.special import betainc, gammaln

from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

AXIS_NAMES = {
    "model.hidden": "hidden units",
    "training.batch_size": "batch size (rows)",
    "dataset.rows": "training rows",
    "dataset.snr": "signal-to-noise ratio",
}
"""Names for people of axes whose last word does not explain them."""


def group_by_cell(
    rows: "pd.DataFrame", axes: Sequence[str]
) -> "dict[tuple[Hashable, ...], pd.DataFrame]":
    """Group rows by data set, entry and the values of the axes, which together are the keys."""
    return dict(list(rows.groupby(["dataset", "entry", *axes], sort=False, dropna=False)))


def group_by_split(
    rows: "pd.DataFrame", axes: Sequence[str]
) -> "dict[tuple[Hashable, ...], pd.DataFrame]":
    """Group rows as `group_by_cell` does, each group with the split as its index.

    Rows may lack the column of an axis.
    """
    rows = rows.reindex(columns=list(dict.fromkeys((*rows.columns, *axes))))
    return {key: group.set_index("split") for key, group in group_by_cell(rows, axes).items()}


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group items by a key; the keys are in the order of their appearance."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def format_setting(text: str) -> str:
    """Write the JSON of a setting for people.

    ``50`` for ``[50]``, ``50-20`` for ``[50,20]``, ``rank=2`` for ``{"rank":2}``.
    """
    return _format_value(json.loads(text))


def _format_value(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_format_value(member)}" for name, member in value.items())
    if isinstance(value, list):
        return "-".join(map(_format_value, value))
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def parse_number(text: str) -> float | None:
    """Read the JSON of a number, or of a list of one number; None for other values."""
    value = json.loads(text)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def panel_heading(dataset: str, point: str) -> str:
    """Write the data set of a panel, and below it its point of a sweep if there is one."""
    return "\n".join(text for text in (dataset, point) if text)


def point_text(values: Mapping[str, str]) -> str:
    """Write a point for people, ``hidden = 50``, by the last word of each path.

    Empty without a sweep.
    """
    return ", ".join(
        f"{path.rpartition('.')[2]} = {format_setting(text)}" for path, text in values.items()
    )


def finite_scores(rows: "pd.DataFrame", metric: str) -> Array:
    """Return the finite values of a metric, of rows that did not fail."""
    values: Array = rows[metric][rows["status"] == "ok"].to_numpy(dtype=np.float64)
    return values[np.isfinite(values)]


def mean_se(values: Array) -> float:
    """Compute the standard error of the mean of n >= 2 values, sd / sqrt(n).

    The standard deviation has n - 1 degrees of freedom.
    """
    # Differences from the first value make the error exactly 0 if all values are equal.
    return float((values - values[0]).std(ddof=1) / math.sqrt(values.size))


def median_se(values: Array) -> float:
    """Compute the standard error of the median of n >= 2 values.

    It is the bootstrap standard deviation. The bootstrap distribution of the middle order
    statistics is known in closed form, so nothing is simulated: the result is the limit of
    infinitely many resamples.

    Notes
    -----
    Maritz and Jarrett, "A note on estimating the variance of the sample median", JASA 73 (1978);
    Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979),
    section 3. With m the rank of the lower middle, x_1 <= ... <= x_n sorted and n = 2m,

        P(rank m is x_i, rank m+1 is x_j) = C(n, m) [(i/n)^m - ((i-1)/n)^m] [((n-j+1)/n)^m -
        ((n-j)/n)^m]

    for i < j, and P(rank m is among x_1 ... x_i) = I_{i/n}(m, n - m + 1).
    """
    # Differences from the least value make the error exactly 0 if all values are equal.
    ordered = np.sort(values) - values.min()
    n = ordered.size
    m = (n + 1) // 2
    # P(both middle ranks are x_i); for odd n there is one middle rank.
    same = np.diff(betainc(m, n - m + 1, np.arange(n + 1) / n))
    if n % 2:
        return float(math.sqrt(same @ (ordered - same @ ordered) ** 2))
    i = np.arange(1, n)
    # Logarithms of (i/n)^m: the powers themselves, and C(n, m), leave the range of floats.
    log_reach = m * np.log(i / n)
    log_steps = log_reach + np.log1p(-np.exp(np.append(-np.inf, log_reach[:-1]) - log_reach))
    # P(rank m is x_i, and rank m+1 is above).
    between = np.exp(gammaln(n + 1) - 2 * gammaln(m + 1) + log_steps + log_reach[::-1])
    support = slice(np.flatnonzero(between)[0], np.flatnonzero(between)[-1] + 1)
    between = between[support]
    same[support] -= between
    # P(rank m+1 is above x_(i+1), if it is above x_i): ((n-i-1)/(n-i))^m.
    stays = np.exp(np.append(log_reach[::-1][1:], -np.inf) - log_reach[::-1])[support]

    def moments(x: Array) -> tuple[float, float]:
        """Compute the first and second moment of the median of resamples of sorted values."""
        lower, following = x[support], x[support.start + 1 : support.stop + 1]
        upper_mean = _average_backwards(following, stays)
        upper_square = _average_backwards(following**2, stays)
        first = between @ (lower + upper_mean) / 2 + same @ x
        second = between @ (lower**2 + 2 * lower * upper_mean + upper_square) / 4 + same @ x**2
        return float(first), float(second)

    centred = ordered - ordered[m - 1]
    variance = moments(centred - moments(centred)[0])[1]
    if not math.isfinite(variance):  # squares overflow
        return math.nan
    return math.sqrt(max(0.0, variance))  # rounding may make it negative


def _average_backwards(x: Array, stays: Array) -> Array:
    """Compute the averages y_i = (1 - s_i) x_i + s_i y_(i+1), from the last to the first."""
    average, averages = x[-1], np.empty_like(x)
    for i in range(len(x) - 1, -1, -1):
        average += (1 - stays[i]) * (x[i] - average)
        averages[i] = average
    return averages


STATISTICS: dict[str, tuple[Callable[[Array], float], Callable[[Array], float]]] = {
    "mean": (lambda values: float(np.mean(values)), mean_se),
    "median": (lambda values: float(np.median(values)), median_se),
    "max": (lambda values: float(np.max(values)), lambda values: math.nan),
}
"""Statistic to (location, standard error); a maximum has none."""
