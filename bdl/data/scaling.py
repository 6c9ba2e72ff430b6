"""Standardisation constants, fitted on training rows only."""

from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bdl.data.splits import Rows
from bdl.errors import InputError

Array = NDArray[np.float64]

_LIMITS = np.finfo(np.float64)
_ROUNDED = 4 * float(_LIMITS.eps)
"""Range of a column over its largest value, up to which the column is a constant that was rounded differently."""


class Scaling(NamedTuple):
    """Means and scales that standardise inputs and targets: ``(x - x_mean) / x_scale``, same for y.

    Shapes are (d,), (d,), (), () for one set of rows, with R in front for R sets. All float64, in the
    original units. A scale is the population standard deviation, or 1 where a column is constant.
    """

    x_mean: Array
    x_scale: Array
    y_mean: Array
    y_scale: Array

    @classmethod
    def fit(cls, x: Array, y: Array, rows: Rows) -> Self:
        """Fit on some rows.

        Parameters
        ----------
        x
            Inputs, shape (n, d).
        y
            Targets, shape (n,).
        rows
            Row numbers to fit on, shape (m,), m >= 1.

        Raises
        ------
        InputError
            If `rows` is empty, or values are so large or small that float64 does not hold their squares.
        """
        if len(rows) == 0:
            raise InputError("cannot fit a scaling on no rows; give at least one training row")
        return cls(*_moments(x[rows]), *_moments(y[rows]))

    @classmethod
    def fit_many(cls, x: Array, y: Array, row_sets: Iterable[Rows]) -> Self:
        """Fit on R sets of rows, of any sizes, and stack the results.

        Parameters
        ----------
        x
            Inputs, shape (n, d).
        y
            Targets, shape (n,).
        row_sets
            R arrays of row numbers, R >= 1.

        Raises
        ------
        InputError
            If there is no set of rows, or one is empty.
        """
        # One `fit` for each set: the same bits alone and stacked, and no (R, n, d) array in memory.
        fits = [cls.fit(x, y, rows) for rows in row_sets]
        if not fits:
            raise InputError("cannot fit scalings on no sets of rows; give at least one")
        return cls(*(np.stack(values) for values in zip(*fits, strict=True)))

    def only(self, inputs: bool, targets: bool) -> Self:
        """Leave inputs or targets as they are: mean 0 and scale 1 where the argument is False."""
        changes: dict[str, Array] = {}
        for name in (() if inputs else ("x",)) + (() if targets else ("y",)):
            mean, scale = getattr(self, f"{name}_mean"), getattr(self, f"{name}_scale")
            changes |= {f"{name}_mean": np.zeros_like(mean), f"{name}_scale": np.ones_like(scale)}
        return self._replace(**changes)


def _moments(values: Array) -> tuple[Array, Array]:
    """Mean and scale over the first axis; values are (m, ...), results (...)."""
    mean = np.asarray(values.mean(axis=0))
    with np.errstate(over="ignore"):
        variance = np.asarray(values.var(axis=0))
    # The computed variance of a constant column is rounding noise, seldom 0. What tells it from a column that varies a
    # little about a distant mean is the range, which is exact.
    low, high = values.min(axis=0), values.max(axis=0)
    constant = high - low <= _ROUNDED * np.maximum(np.abs(low), np.abs(high))
    if not np.all(constant | ((variance > _LIMITS.tiny) & (variance < np.inf))):
        raise InputError("a column has values whose squares float64 does not hold: give it in another unit")
    return mean, np.where(constant, 1.0, np.sqrt(variance))
