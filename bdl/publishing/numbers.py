"""The numbers of a cell and of its splits, under the names that they have in MLflow."""

from collections.abc import Iterator, Sequence
from math import isfinite, nan, sqrt

import numpy as np

from bdl.publishing.names import COUNTS, STATISTICS, mirrored
from bdl.store.rows import Reading, Row

Measurement = tuple[str, float, int]
"""Name, value, step."""


def measurements(
    rows: Sequence[Row], metrics: Sequence[str], readings: Sequence[tuple[int, Reading]] = ()
) -> list[Measurement]:
    """List every number of a cell, none of which is NaN or infinite.

    Parameters
    ----------
    rows
        Final rows.
    metrics
        Names of the metrics.
    readings
        Scores at recorded counts, each with its split.

    Returns
    -------
    list of (name, value, step)
        For each metric its mean over the finite values under the metric's own name, ``_median`` and, from two values
        on, ``_se`` = sd / sqrt(n) with n - 1 degrees of freedom; for each axis of recorded counts the series
        ``<name>_by_<axis>``, the mean over the splits at each place; ``trials``; ``trials_failed``, which failed or
        lack a finite value. What methods are compared by comes first, which MLflow's comparison begins with.
    """
    values = {mirrored(name): {row.split: _value(row, name) for row in rows} for name in metrics}
    n_failed = sum(row.status == "failed" or any(not isfinite(of[row.split]) for of in values.values()) for row in rows)
    found = [
        (f"{name}{statistic}", value, 0)
        for name, by_split in values.items()
        for statistic, value in _statistics([value for value in by_split.values() if isfinite(value)])
    ]
    counts = [(name, float(count), 0) for name, count in zip(COUNTS, (len(rows), n_failed), strict=True)]
    return [*found, *counts, *_curves(readings)]


def of_split(row: Row, metrics: Sequence[str]) -> list[Measurement]:
    """List the finite scores of one final fit, under the metrics' own names."""
    values = {mirrored(name): _value(row, name) for name in metrics}
    return [(name, value, 0) for name, value in values.items() if isfinite(value)]


def _curves(readings: Sequence[tuple[int, Reading]]) -> Iterator[Measurement]:
    """Average the splits at each recorded count."""
    places: dict[tuple[str, int], list[float]] = {}
    for _, reading in readings:
        if isfinite(reading.value):
            places.setdefault((f"{mirrored(reading.metric)}_by_{reading.axis}", reading.at), []).append(reading.value)
    for (name, at), values in places.items():
        yield name, float(np.mean(values)), at


def _value(row: Row, metric: str) -> float:
    value = row.metrics.get(metric) if row.status == "ok" else None
    return nan if value is None else value


def _statistics(values: Sequence[float]) -> Iterator[tuple[str, float]]:
    mean, median, se = STATISTICS
    if values:
        yield mean, float(np.mean(values))
        yield median, float(np.median(values))
    if len(values) > 1:
        yield se, float(np.std(values, ddof=1)) / sqrt(len(values))
