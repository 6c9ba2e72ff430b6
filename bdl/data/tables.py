"""Columns with names as a data set: what is refused, and what becomes a number or a category."""

import logging
import re
from collections.abc import Iterable
from functools import partial
from itertools import chain
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bdl.data.conversion import Array, check_unique_columns
from bdl.data.dataset import Dataset, Task
from bdl.data.splits import Rows, group_split, part_split
from bdl.data.table_files import (
    first_message_line,
    is_plain_number,
    recognise_notation,
    suggest_settings,
)
from bdl.errors import InputError, abbreviate, unknown_name_error

if TYPE_CHECKING:
    from bdl.data.local import Table

Frame = pd.DataFrame
Column = pd.Series

_MAX_TEXTS = 100
"""Different texts of a column that are categories; more are names, or numbers in another
notation.
"""
_MAX_DECLARED = 1000
"""Different values of a column that is said to be categories."""
_FEW = 20
"""Different texts of a column that are categories even if nearly every row has its own."""
_SAMPLE = 1000
"""Different texts of a column whose notation is looked at."""
_UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)*|\s*")
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
"""Values of a column that say what rows are for, so that they are no names of parts each of which
tests.
"""

_LOG = logging.getLogger(__name__)


def to_dataset(source: "Table", frame: Frame, target: str) -> Dataset:
    """Make a data set of columns, one of which is predicted.

    Errors as in `bdl.data.local.Table`.
    """
    name, splitting = source.display_name, source.split_column or source.group or source.time
    _check_names(
        name,
        frame.columns,
        [target, *source.leave_out, *source.categories, *([splitting] if splitting else [])],
    )
    frame = frame.drop(columns=[column for column in source.leave_out if column != target])
    if nameless := [column for column in frame.columns if _UNNAMED.fullmatch(column)]:
        raise InputError(
            f"{name}: column {list(frame.columns).index(nameless[0]) + 1} has no name, as row numbers that pandas "
            f'writes: say leave_out: ["{nameless[0]}"], or name it in the header'
        )
    frame = frame.set_axis(range(1, len(frame) + 1))
    frame = _drop_gaps(
        name,
        pd.DataFrame({key: _tidy_column(name, frame[key]) for key in frame.columns}),
        source.missing,
    )
    inputs = [column for column in frame.columns if column not in (target, splitting)]
    if not inputs:
        raise InputError(f"{name} has no column of inputs beside '{target}': give at least one")
    task, y, told = _read_target(source, frame[target])
    parts, names, how_read = zip(
        *(_read_input(source, frame[column]) for column in inputs), strict=True
    )
    x, columns = np.column_stack(parts), tuple(chain.from_iterable(names))
    read_as = [f"{target} (target): {told}", *map("{}: {}".format, inputs, how_read)]
    if splitting is None:
        return Dataset(name, x, y, task, columns=columns, read_as=tuple(read_as))
    codes, count = _number_parts(name, source, frame[splitting])
    published = (
        partial(group_split, codes, source.test_share)
        if source.group
        else partial(part_split, codes)
    )
    kind = (
        "time, whose last rows test"
        if source.time
        else f"{codes.max() + 1} {'groups' if source.group else 'parts'}"
    )
    read_as.append(f"{splitting} (split): {kind}")
    return Dataset(
        name,
        x,
        y,
        task,
        count,
        published,
        split_key=codes.tobytes(),
        columns=columns,
        read_as=tuple(read_as),
    )


def _tidy_column(name: str, column: Column) -> Column:
    """Return a column as numbers, true and false, dates, or text without white space around it.

    Gaps are NaN.

    `InputError` if it has something else: lists, mappings, bytes, lengths of time, complex
    numbers.
    """
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "categorical":
        plain = column.astype(object if column.isna().any() else column.cat.categories.dtype)
        return _tidy_column(name, plain).astype("category")
    if kind == "string":
        text = column.astype(object).str.strip()
        return text.where(text != "", np.nan)
    if kind == "decimal":
        return column.astype(np.float64)
    if kind == "integer" and column.dtype == object:  # beyond 64 bits
        return column.map(float)
    if kind in (
        "integer",
        "floating",
        "mixed-integer-float",
        "boolean",
        "datetime64",
        "datetime",
        "date",
        "empty",
    ):
        return column
    said = {
        "mixed": "lists, mappings or values of several kinds",
        "timedelta64": "lengths of time",
    }
    raise InputError(
        f"{name}: column '{column.name}' has {said.get(kind, kind)}: make numbers or text of it, or leave it out "
        f'(leave_out: ["{column.name}"])'
    )


def _check_names(name: str, known: Iterable[str], wanted: Iterable[str]) -> None:
    columns = list(known)
    check_unique_columns(columns, name)
    for column in wanted:
        if column not in columns:
            raise InputError(f"{name}: {unknown_name_error('column', column, columns)}")


def _drop_gaps(name: str, frame: Frame, missing: str) -> Frame:
    """Return the rows without gaps; how many are dropped is told, and why."""
    gaps = frame.isna() | frame.isin([np.inf, -np.inf])
    bad = gaps.any(axis=1)
    if bad.any() and missing == "refuse":
        row = int(bad.to_numpy().argmax())
        column = gaps.columns[gaps.to_numpy()[row].argmax()]
        raise InputError(
            f"{name}: row {frame.index[row]} has no finite value in column '{column}', and {bad.sum()} of {len(frame)} "
            "rows have such gaps: fill them, leave the column out, or say missing: drop"
        )
    if bad.all():
        raise InputError(
            f"{name} has no rows{' without gaps' if len(frame) else ''}: give one line a row"
        )
    if bad.any() and parent_process() is None:  # workers load the same file once more
        counts = gaps.sum().loc[lambda count: count > 0].sort_values(ascending=False)
        where = ", ".join(f"{column} ({count})" for column, count in counts.head(5).items())
        more = f" and {len(counts) - 5} more columns" if len(counts) > 5 else ""
        _LOG.warning(
            "%s: %d of %d rows dropped, which have gaps in %s%s",
            name,
            bad.sum(),
            len(frame),
            where,
            more,
        )
    return frame[~bad]


def _read_target(source: "Table", column: Column) -> tuple[Task, Array, str]:
    """Return the task, the targets as numbers, or the numbers of their classes, and how they were read."""
    name, task = source.display_name, source.task
    declared = task == "classification" or (task is None and column.name in source.categories)
    numbers = None if declared else _read_numbers(source, column)
    if task == "regression" and numbers is None:
        raise InputError(
            f"{name}: target '{column.name}' is text such as '{column.iloc[0]}': say task: classification"
        )
    if numbers is not None:
        few = len(values := np.unique(numbers)) <= min(_FEW, len(numbers) / 3) and np.array_equal(
            values, values.round()
        )
        hint = (
            f", {len(values)} different ones (task: classification makes classes of them)"
            if few
            else ""
        )
        return "regression", numbers, f"numbers{hint}"
    codes, classes = _number_categories(column)
    _check_category_count(source, column, len(classes), declared)
    shown = ", ".join(map(abbreviate, classes[:5])) + (", ..." if len(classes) > 5 else "")
    return "classification", codes.astype(np.float64), f"{len(classes)} classes, {shown}"


def _read_input(source: "Table", column: Column) -> tuple[Array, tuple[str, ...], str]:
    """Return a column of inputs as numbers, (n, 1), or as 0 and 1 for each of its categories, (n, categories).

    With it come the names of its columns, and how it was read.
    """
    declared = column.name in source.categories
    numbers = None if declared else _read_numbers(source, column)
    if numbers is not None:
        counts = len(numbers) > 2 and np.array_equal(np.diff(numbers), np.ones(len(numbers) - 1))
        return (
            numbers[:, None],
            (str(column.name),),
            "numbers" + (" that count the rows" if counts else ""),
        )
    codes, categories = _number_categories(column)
    _check_category_count(source, column, len(categories), declared)
    names = tuple(f"{column.name}={category}" for category in categories)
    told = f"{len(categories)} {'category' if len(categories) == 1 else 'categories'}"
    return np.eye(len(categories))[codes], names, told


def _number_categories(column: Column) -> tuple[NDArray[np.int64], list[Any]]:
    """Number the categories, in order of the alphabet or of the numbers, and list them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    codes, categories = pd.factorize(column if number else column.astype(str), sort=True)
    return codes, list(categories)


def _read_numbers(source: "Table", column: Column) -> Array | None:
    """Return numbers; None for categories."""
    kind = pd.api.types.infer_dtype(column)
    if isinstance(column.dtype, pd.CategoricalDtype) or kind == "boolean":
        return None
    if kind in ("datetime64", "datetime", "date"):
        raise InputError(
            f"{source.display_name}: column '{column.name}' has dates: leave it out, or split by it (time)"
        )
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(np.float64)
    decimal, texts = getattr(source, "decimal", None), column.unique()
    if decimal and all(
        is_plain_number(text, decimal) for text in texts
    ):  # the rows with other texts were dropped
        return column.str.replace(decimal, ".").to_numpy(np.float64)
    kinds = pd.Series({text: recognise_notation(text) for text in texts[:_SAMPLE]}, dtype=object)
    if max(kinds.notna().mean(), column.map(kinds).notna().mean()) < 0.5:
        return None
    _refuse_notation(
        source, column, column.map({text: recognise_notation(text) for text in texts}), decimal
    )


def _refuse_notation(
    source: "Table", column: Column, kinds: Column, decimal: str | None
) -> NoReturn:
    """Refuse a column whose texts are numbers, dates or times, and say how it can be read."""
    name, kind = column.name, kinds.mode().iloc[0]
    texts = column[kinds == kind]
    odd = texts[[decimal is None or not is_plain_number(text, decimal) for text in texts]]
    categories = f'say categories: ["{name}"]'
    if kind != "a number":
        cure = f'split by it (time: {name}), leave it out (leave_out: ["{name}"]), write a number, or {categories}'
        odd = texts
    elif decimal is None:
        cure = f"store it as numbers, leave it out, or {categories}"
    else:
        settings = suggest_settings(list(texts), decimal)
        cure = (
            f"say {settings}"
            if settings
            else f"write plain numbers, without signs, or {categories}"
        )
    if len(odd):
        raise InputError(
            f"{source.display_name}: column '{name}' has text that is {kind}, {odd.iloc[0][:40]!r} in row {odd.index[0]}: {cure}"
        )
    stray = column[kinds != kind]
    raise InputError(
        f"{source.display_name}: row {stray.index[0]} has '{abbreviate(stray.iloc[0])}' in column '{name}', where others have "
        f"numbers: mend it, leave the column out, or {categories}"
    )


def _check_category_count(source: "Table", column: Column, count: int, declared: bool) -> None:
    most = _MAX_DECLARED if declared else _MAX_TEXTS
    if count > most:
        cure = "" if declared else f', or say categories: ["{column.name}"]'
        raise InputError(
            f"{source.display_name}: column '{column.name}' has {count:,} different values, such as '{abbreviate(column.iloc[0])}', "
            f"and at most {most} can be categories: make numbers of them or leave the column out{cure}"
        )
    if not declared and count > max(_FEW, len(column) / 2):
        raise InputError(
            f"{source.display_name}: column '{column.name}' is text that differs in most rows ({count} values, such as "
            f"'{abbreviate(column.iloc[0])}'): make numbers of it, leave it out, or say categories: [\"{column.name}\"]"
        )


def _number_parts(name: str, source: "Table", column: Column) -> tuple[Rows, int | None]:
    """Number the parts of the rows, and say how many of them test, from 0 on.

    None for groups, of which some do.
    """
    if source.time:
        last = max(1, round(source.test_share * len(column)))
        parts, count = np.ones(len(column), dtype=np.int64), 1
        parts[_time_values(name, column).argsort(kind="stable")[-last:]] = 0
    elif source.split_column and set(column) == {"train", "test"}:
        parts, count = np.asarray(column == "train", dtype=np.int64), 1
    else:
        if source.split_column and (
            said := [
                value for value in column.unique() if str(value).strip().lower() in _ROLE_WORDS
            ]
        ):
            raise InputError(
                f"{name}: column '{column.name}' has '{abbreviate(said[0])}' beside other values than train and test: write "
                "train and test alone, or names of parts, each of which tests once"
            )
        parts = pd.factorize(column, sort=True)[0].astype(np.int64)
        count = int(parts.max()) + 1
    if parts.min() == parts.max():
        raise InputError(
            f"{name}: column '{column.name}' leaves no rows to train on: split by another"
        )
    return parts, None if source.group else count


def _time_values(name: str, column: Column) -> NDArray[np.float64]:
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column, dtype=np.float64)
    try:
        return np.asarray(
            pd.to_datetime(column, utc=True, format="ISO8601").astype("int64"), dtype=np.float64
        )
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name}: column '{column.name}' has no dates or numbers ({first_message_line(error)})"
        ) from None
