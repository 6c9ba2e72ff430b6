"""Columns with names as a data set: what is read, what is refused, what becomes a number."""

import csv
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bdl.data.dataset import Dataset, Task
from bdl.data.splits import Rows, group_split, part_split
from bdl.errors import InputError, unknown

if TYPE_CHECKING:
    from bdl.data.local import Table

Array = NDArray[np.float64]
Frame = pd.DataFrame
Column = pd.Series

_CATEGORIES = 100
"""Different texts of a column that are categories; more are names, or numbers in another notation."""


def read_csv(path: Path, separator: str | None, decimal: str, header: bool) -> Frame:
    """Read a file of text; arguments as in `bdl.data.local.Csv`.

    Raises
    ------
    InputError
        If there is no such file, it is empty, its header is none, or lines have different numbers of values.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = file.readline()
        between = separator or max(",;\t|", key=first.count)
        names = _header(path, first, between) if header else None
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # of lines that are longer than the header
            table = pd.read_csv(
                path,
                sep=between,
                decimal=decimal,
                header=None,
                names=names,
                skiprows=int(header),
                index_col=False,
                skipinitialspace=True,
                encoding="utf-8-sig",
            )
    except UnicodeDecodeError:
        raise InputError(f"cannot read {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} has no rows: give one line a row") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise InputError(f"cannot read {path}: {_line(error)}; give every line as many values as the first") from None
    return table.rename(columns=str)


def read_parquet(path: Path) -> Frame:
    """Read a file in the Parquet format.

    Raises
    ------
    InputError
        If there is no such file, or it is of another format.
    """
    try:
        with path.open("rb") as file:
            return pd.read_parquet(file).rename(columns=str)
    except OSError as error:  # those of pyarrow have no strerror
        raise InputError(f"cannot read {path}: {error.strerror or _line(error)}") from None
    except ValueError as error:
        raise InputError(f"cannot read {path}: {_line(error)}") from None


def to_dataset(how: "Table", frame: Frame, target: str) -> Dataset:
    """Make a data set of columns.

    Parameters
    ----------
    how
        What is done with them.
    frame
        The columns.
    target
        Name of the column that is predicted.

    Raises
    ------
    InputError
        As `bdl.data.local.Table` says.
    """
    name, splitting = how.called, how.split_column or how.group or how.time
    _check_names(name, frame.columns, [target, *how.leave_out, *([splitting] if splitting else [])])
    frame = frame.drop(columns=[column for column in how.leave_out if column != target])
    frame = _without_gaps(name, frame.set_axis(range(1, len(frame) + 1)), how.missing)
    inputs = [column for column in frame.columns if column not in (target, splitting)]
    if not inputs:
        raise InputError(f"{name} has no column of inputs beside '{target}': give at least one")
    task, y = _target(name, frame[target], how.task)
    x = np.column_stack([_input(name, frame[column]) for column in inputs])
    if splitting is None:
        return Dataset(name, x, y, task)
    codes, count = _parts(name, how, frame[splitting])
    published = partial(group_split, codes, how.test_share) if how.group else partial(part_split, codes)
    return Dataset(name, x, y, task, count, published, split_key=codes.tobytes())


def _header(path: Path, line: str, separator: str) -> list[str]:
    names = [name.strip() for name in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
    if not names:
        raise InputError(f"{path} is empty: give a header and one line a row")
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path}: the header has '{twice[0]}' twice: rename one")
    if pd.to_numeric(pd.Series(names), errors="coerce").notna().all():
        raise InputError(f"{path}: the first line has numbers only: say header: false if it is no header")
    return names


def _check_names(name: str, known: Iterable[str], wanted: Iterable[str]) -> None:
    columns = list(known)
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise InputError(f"{name} has the column '{twice[0]}' twice: rename one")
    for column in wanted:
        if column not in columns:
            raise InputError(f"{name}: {unknown('column', column, columns)}")


def _without_gaps(name: str, frame: Frame, missing: str) -> Frame:
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
        raise InputError(f"{name} has no rows{' without gaps' if len(frame) else ''}: give one line a row")
    return frame[~bad]


def _target(name: str, column: Column, task: Task | None) -> tuple[Task, Array]:
    """Return the targets as numbers, or the numbers of their classes."""
    numbers = None if task == "classification" or _is_category(column) else _numbers(name, column)
    if task == "regression" and numbers is None:
        raise InputError(f"{name}: target '{column.name}' is text such as '{column.iloc[0]}': say task: classification")
    if numbers is not None:
        return "regression", numbers
    codes, classes = pd.factorize(column if pd.api.types.is_numeric_dtype(column) else column.astype(str), sort=True)
    _check_few(name, column, len(classes))
    return "classification", codes.astype(np.float64)


def _input(name: str, column: Column) -> Array:
    """Return a column of inputs as numbers, (n, 1), or as 0 and 1 for each of its categories, (n, categories)."""
    numbers = None if _is_category(column) else _numbers(name, column)
    if numbers is not None:
        return numbers[:, None]
    codes, categories = pd.factorize(column.astype(str), sort=True)
    _check_few(name, column, len(categories))
    return np.eye(len(categories))[codes]


def _is_category(column: Column) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(column)


def _numbers(name: str, column: Column) -> Array | None:
    """Return numbers; None for text, unless most of it is numbers."""
    if pd.api.types.is_datetime64_any_dtype(column):
        raise InputError(f"{name}: column '{column.name}' has dates: leave it out, or split by it (time)")
    numbers = pd.to_numeric(column, errors="coerce")
    bad = numbers.isna()
    if bad.all():
        return None
    if not bad.any():
        return numbers.to_numpy(np.float64)
    if bad.mean() > 0.5:
        return None
    row = int(bad.to_numpy().argmax())
    raise InputError(
        f"{name}: row {column.index[row]} has '{column.iloc[row]}' in column '{column.name}', where others have "
        "numbers: mend it or leave the column out"
    )


def _check_few(name: str, column: Column, count: int) -> None:
    if count > _CATEGORIES:
        raise InputError(
            f"{name}: column '{column.name}' has {count:,} different values, such as '{column.iloc[0]}', and at most "
            f"{_CATEGORIES} can be categories: make numbers of them or leave the column out"
        )


def _parts(name: str, how: "Table", column: Column) -> tuple[Rows, int | None]:
    """Number the parts of the rows, and say how many of them test, from 0 on; None for groups, of which some do."""
    if how.time:
        last = max(1, round(how.test_share * len(column)))
        parts, count = np.ones(len(column), dtype=np.int64), 1
        parts[_moments(name, column).argsort(kind="stable")[-last:]] = 0
    elif how.split_column and set(column) == {"train", "test"}:
        parts, count = np.asarray(column == "train", dtype=np.int64), 1
    else:
        parts = pd.factorize(column, sort=True)[0].astype(np.int64)
        count = int(parts.max()) + 1
    if parts.min() == parts.max():
        raise InputError(f"{name}: column '{column.name}' leaves no rows to train on: split by another")
    return parts, None if how.group else count


def _moments(name: str, column: Column) -> NDArray[np.float64]:
    """Return times as numbers."""
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column, dtype=np.float64)
    try:
        return np.asarray(pd.to_datetime(column, utc=True, format="ISO8601").astype("int64"), dtype=np.float64)
    except ValueError as error:
        raise InputError(f"{name}: column '{column.name}' has no dates or numbers ({_line(error)})") from None


def _line(error: BaseException) -> str:
    """First line of a message."""
    return str(error).strip().splitlines()[0]
