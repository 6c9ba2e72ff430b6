"""How an experiment splits and standardises a data set, by constants that are fitted on training rows only."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bdl.data.dataset import Dataset, Standardise
from bdl.data.splits import Rows, Split, tail_split
from bdl.errors import InputError

SplitScheme = Literal["published", "first", "half", "other-half", "gap", "tail"]


def prepare(dataset: Dataset, split: SplitScheme, standardise: Standardise, rows: int | None = None) -> Dataset:
    """Return a data set the splits and the standardisation of an experiment.

    Parameters
    ----------
    dataset
        As loaded.
    split
        ``"published"`` keeps the set's own splits. ``"gap"`` are its published gap splits, one for each input, and
        ``"tail"`` those of `bdl.data.splits.tail_split`. The others make every split the same, so that split numbers
        are replicates. ``"first"`` is the first of the set's own splits. ``"half"`` is half of the rows: permuted by
        the legacy generator seeded with 1, the second half trains and the first, on which the settings were tuned by
        hand, is left out (Brownlie 2022, section 5.2.2); it trains under ``"other-half"``.
    standardise
        What is scaled to mean 0 and standard deviation 1 on the training rows.
    rows
        Training rows that are kept, the first so many in the order of the split; None keeps all.

    Raises
    ------
    InputError
        If the data set has no gap splits, or is of images and so has no tails; from the `split` of the result, if the
        split has fewer training rows.
    """
    # each split's own parameters, which mean something for its rows as they are
    own = split == "published" and standardise == "none"
    changed = replace(dataset, standardise=standardise, generating=dataset.generating if own else None)
    if split in ("gap", "tail"):
        changed = replace(changed, splits=dataset.d, published=_along_inputs(dataset, split))
    elif split != "published":
        constant = dataset.split(0) if split == "first" else _half(len(dataset.y), second=split == "half")
        changed = replace(changed, splits=None, published=partial(_same, constant))
    return changed if rows is None else replace(changed, published=partial(_shortened, changed, rows))


def _along_inputs(dataset: Dataset, split: SplitScheme) -> Callable[[int], Split]:
    """Return what makes the splits that follow one input each."""
    if split == "gap" and dataset.gap is not None:
        return dataset.gap
    if split == "tail" and not dataset.images:
        return partial(tail_split, dataset.x)
    have = "the UCI regressions" if split == "gap" else "tables"
    raise InputError(
        f"preparation.split: dataset '{dataset.name}' has no {split} splits, which {have} have; choose published"
    )


def _half(n: int, second: bool) -> Split:
    order = np.random.RandomState(1).permutation(n).astype(np.int64)
    return Split(order[n // 2 :] if second else order[: n // 2], order[:0])


def _same(split: Split, index: int) -> Split:
    return split


def _shortened(dataset: Dataset, rows: int, index: int) -> Split:
    split = dataset.split(index)
    train = split.train
    if rows > len(train):
        raise InputError(
            f"preparation.rows: split {index} of dataset '{dataset.name}' has {len(train)} training rows, so {rows} "
            f"cannot be kept; choose at most {len(train)}"
        )
    return split._replace(train=train[:rows])


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
