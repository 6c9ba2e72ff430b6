"""Splits of a table by one of its columns: of parts, of groups, or of times."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from bdl.data.splits import (
    Rows,
    Split,
    group_split,
    order_by_content,
    part_split,
    permute_split,
)
from bdl.data.table_files import first_message_line
from bdl.errors import InputError, abbreviate
from bdl.types import Array

if TYPE_CHECKING:
    from bdl.data.local import Table

Column = pd.Series

_ROLE_WORDS = {
    "train",
    "training",
    "test",
    "testing",
    "val",
    "valid",
    "validation",
    "dev",
    "holdout",
    "true",
    "false",
}
"""Texts for the use of a row, so that they are no names of parts each of which tests."""


class TableSplits(NamedTuple):
    """Splits that a column decides, as fields of `bdl.data.Dataset`."""

    published: Callable[[int], Split]
    n_splits: int | None
    groups: Rows | None
    key: bytes
    description: str


def read_splits(source: "Table", x: Array, y: Array, column: Column) -> TableSplits:
    """Return the splits of a table by its column of parts, groups or times.

    Nothing rests on the order of the rows in the file: training rows are permuted, or in order of
    time. `InputError` if no rows are left to train on, or the column has other values than it
    should.
    """
    name = source.display_name
    if source.time:
        times = _read_times(name, column)
        # rows of one time are at random: in the order of their contents, the target would decide
        # which of them test
        shuffled = np.random.default_rng(0).permutation(order_by_content(times, y, x))
        order = shuffled[times[shuffled].argsort(kind="stable")]
        n_train = len(order) - max(1, round(source.test_share * len(order)))
        if n_train < 1:
            raise _no_training_rows_error(name, column)
        split = Split(order[:n_train], order[n_train:])
        return TableSplits(
            [split].__getitem__, 1, None, order.tobytes(), "time, whose last rows test"
        )
    has_roles = source.split_column is not None and set(column) == {"train", "test"}
    if has_roles:
        numbers = np.asarray(column == "train", dtype=np.int64)
    else:
        if source.split_column:
            _check_part_names(name, column)
        numbers = pd.factorize(column, sort=True)[0].astype(np.int64)
    count = int(numbers.max()) + 1
    if count == 1:
        raise _no_training_rows_error(name, column)
    order = order_by_content(numbers, y, x)
    key = numbers.tobytes() + order.tobytes()
    if source.group:
        cut = partial(group_split, numbers, source.test_share)
        published = partial(_cut_and_permute, cut, order)
        return TableSplits(published, None, numbers, key, f"{count} groups")
    published = partial(_cut_and_permute, partial(part_split, numbers), order)
    return TableSplits(published, 1 if has_roles else count, None, key, f"{count} parts")


def _cut_and_permute(cut: Callable[[int], Split], order: Rows, index: int) -> Split:
    """Return a split with permuted rows, as folds and `preparation.rows` cut them in order."""
    return permute_split(cut(index), order, index)


def _no_training_rows_error(name: str, column: Column) -> InputError:
    return InputError(
        f"{name}: column '{column.name}' leaves no rows to train on: split by another"
    )


def _check_part_names(name: str, column: Column) -> None:
    for value in column.unique():
        if str(value).strip().lower() in _ROLE_WORDS:
            raise InputError(
                f"{name}: column '{column.name}' has '{abbreviate(value)}' beside other values "
                "than train and test: write train and test alone, or names of parts, "
                "each of which tests once"
            )


def _read_times(name: str, column: Column) -> Array | Rows:
    """Return numbers, or dates in whole units, which double precision may not tell apart."""
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column, dtype=np.float64)
    try:
        dates = pd.to_datetime(column, utc=True, format="ISO8601")
        return np.asarray(dates.astype("int64"), dtype=np.int64)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name}: column '{column.name}' has no dates or numbers "
            f"({first_message_line(error).partition('. ')[0]}): write 2020-01-31, or numbers"
        ) from None
