"""Columns with names as a data set: what is read, what is refused, what becomes a number."""

import csv
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bdl.data.dataset import Task
from bdl.data.splits import Rows
from bdl.errors import InputError, unknown

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


def select(
    name: str, frame: Frame, target: str, splitting: str | None, leave_out: Collection[str], missing: str
) -> Frame:
    """Return the columns that are used and the rows without gaps, which are counted from 1.

    Parameters
    ----------
    name
        Of the data set, for messages.
    frame
        The columns.
    target, splitting
        Column that is predicted, and the one that splits, if any.
    leave_out, missing
        As in `bdl.data.local.Table`.

    Raises
    ------
    InputError
        If a column does not exist, or exists twice; or a row has a gap that is not to be dropped.
    """
    _check_names(name, frame.columns, [target, *leave_out, *([splitting] if splitting else [])])
    frame = frame.drop(columns=[column for column in leave_out if column != target])
    return _without_gaps(name, frame.set_axis(range(1, len(frame) + 1)), missing)


def numbers(
    name: str, frame: Frame, target: str, splitting: str | None, task: Task | None
) -> tuple[Task, Array, Array]:
    """Return the task, the inputs, (n, d), and the targets or classes, (n,); arguments as for `select`.

    Raises
    ------
    InputError
        If there are no inputs, or a column is neither numbers nor categories.
    """
    inputs = [column for column in frame.columns if column not in (target, splitting)]
    if not inputs:
        raise InputError(f"{name} has no column of inputs beside '{target}': give at least one")
    task, y = _target(name, frame[target], task)
    return task, np.column_stack([_input(name, frame[column]) for column in inputs]), y


def by_time(name: str, column: Column, test_share: float) -> Rows:
    """Number the parts of the rows, (n,): 0 for the last ones, which test, and 1 for the others.

    Raises
    ------
    InputError
        If the column has neither numbers nor dates, or no row is left to train on.
    """
    last = max(1, round(test_share * len(column)))
    parts = np.ones(len(column), dtype=np.int64)
    parts[_moments(name, column).argsort(kind="stable")[-last:]] = 0
    return _checked(name, column, parts)


def by_value(name: str, column: Column, named: bool) -> tuple[Rows, int]:
    """Number the parts of the rows, (n,), by their values, and count those that test, from 0 on.

    Parameters
    ----------
    name
        Of the data set, for messages.
    column
        A value a row.
    named
        Whether ``train`` and ``test`` stand for themselves; part 0 tests then, and no other.

    Raises
    ------
    InputError
        If no row is left to train on.
    """
    if named and set(column) == {"train", "test"}:
        return np.asarray(column == "train", dtype=np.int64), 1
    parts = _checked(name, column, pd.factorize(column, sort=True)[0].astype(np.int64))
    return parts, int(parts.max()) + 1


def _checked(name: str, column: Column, parts: Rows) -> Rows:
    if parts.min() == parts.max():
        raise InputError(f"{name}: column '{column.name}' leaves no rows to train on: split by another")
    return parts


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
