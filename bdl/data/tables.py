"""Columns with names as a data set: each one becomes numbers or categories, or is refused."""

import logging
import re
from collections.abc import Iterable, Sequence
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bdl.data.conversion import check_unique_columns
from bdl.data.dataset import Dataset, Task
from bdl.data.table_files import (
    is_plain_number,
    recognise_notation,
    suggest_settings,
)
from bdl.data.table_splits import read_splits
from bdl.errors import InputError, abbreviate, unknown_name_error
from bdl.types import Array

if TYPE_CHECKING:
    from bdl.data.local import Table

Frame = pd.DataFrame
Column = pd.Series

_MAX_TEXTS = 100
"""Largest number of different texts that are categories; more are names, or numbers in another
notation.
"""
_MAX_DECLARED = 1000
"""Largest number of different values of a column that the user declares to be categories."""
_FEW = 20
"""Number of different texts that are categories even if nearly every row has its own."""
_SAMPLE = 1000
"""Number of different texts of a column whose notation is examined at first."""
_UNNAMED = re.compile(r"Unnamed: \d+(\.\d+)*|\s*")
_LOG = logging.getLogger(__name__)


def to_dataset(source: "Table", frame: Frame, target: str) -> Dataset:
    """Make a data set of columns, one of which is predicted.

    Errors as in `bdl.data.local.Table`.
    """
    name, split_column = source.display_name, source.split_column or source.group or source.time
    required = [target, *source.leave_out, *source.categories]
    if split_column:
        required.append(split_column)
    _check_names(name, frame.columns, required)
    unused = [column for column in source.leave_out if column not in (target, split_column)]
    frame = frame.drop(columns=unused)
    nameless = [column for column in frame.columns if _UNNAMED.fullmatch(column)]
    if nameless:
        raise InputError(
            f"{name}: column {list(frame.columns).index(nameless[0]) + 1} has no name, "
            f'as row numbers that pandas writes: say leave_out: ["{nameless[0]}"], '
            "or name it in the header"
        )
    # rows are counted from 1 in messages, and stay themselves when others are dropped
    frame = frame.set_axis(range(1, len(frame) + 1))
    tidy_columns = {column: _tidy_column(name, frame[column]) for column in frame.columns}
    frame = _drop_gaps(name, pd.DataFrame(tidy_columns), source.missing)
    inputs = [column for column in frame.columns if column not in (target, split_column)]
    if not inputs:
        raise InputError(f"{name} has no column of inputs beside '{target}': give at least one")
    task, y, is_ordered, description = _read_target(source, frame[target])
    read_as = [f"{target} (target): {description}"]
    matrices, names = list[Array](), list[str]()
    for column in inputs:
        matrix, names_of_matrix, description = _read_input(source, frame[column])
        matrices.append(matrix)
        names += names_of_matrix
        read_as.append(f"{column}: {description}")
    x = np.column_stack(matrices)
    if split_column is None:
        return Dataset(
            name,
            x,
            y,
            task,
            ordered=is_ordered,
            columns=tuple(names),
            read_as=tuple(read_as),
        )
    splits = read_splits(source, x, y, frame[split_column])
    read_as.append(f"{split_column} (split): {splits.description}")
    return Dataset(
        name,
        x,
        y,
        task,
        splits.n_splits,
        splits.published,
        ordered=is_ordered,
        groups=splits.groups,
        split_key=splits.key,
        columns=tuple(names),
        read_as=tuple(read_as),
    )


def _tidy_column(name: str, column: Column) -> Column:
    """Return a column as numbers, true and false, dates, or text without white space around it.

    Gaps are NaN. `InputError` if it has lists, mappings, bytes, lengths of time, complex numbers
    or values of several kinds.
    """
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind == "categorical":
        # a number type has no gaps, which object has
        dtype = object if column.isna().any() else column.cat.categories.dtype
        tidy = _tidy_column(name, column.astype(dtype))
        if not column.cat.ordered:
            return tidy.astype("category")
        categories = _tidy_column(name, pd.Series(column.cat.categories, name=column.name))
        return tidy.astype(pd.CategoricalDtype(list(categories.dropna().unique()), ordered=True))
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
    phrases = {
        "mixed": "lists, mappings or values of several kinds",
        "timedelta64": "lengths of time",
    }
    raise InputError(
        f"{name}: column '{column.name}' has {phrases.get(kind, kind)}: "
        f'make numbers or text of it, or leave it out (leave_out: ["{column.name}"])'
    )


def _check_names(name: str, frame_columns: Iterable[str], required: Iterable[str]) -> None:
    columns = list(frame_columns)
    check_unique_columns(columns, name)
    for column in required:
        if column not in columns:
            raise InputError(f"{name}: {unknown_name_error('column', column, columns)}")


def _drop_gaps(name: str, frame: Frame, missing: str) -> Frame:
    """Return the rows without gaps, and log how many are dropped because of which columns.

    `InputError` if rows have gaps and `missing` refuses them, or no row is left.
    """
    # infinite numbers as well: they would make means and scales of the whole column infinite
    gaps = frame.isna() | frame.isin([np.inf, -np.inf])
    has_gap = gaps.any(axis=1)
    if has_gap.any() and missing == "refuse":
        row = int(has_gap.to_numpy().argmax())
        column = gaps.columns[gaps.to_numpy()[row].argmax()]
        raise InputError(
            f"{name}: row {frame.index[row]} has no finite value in column '{column}', "
            f"and {has_gap.sum()} of {len(frame)} rows have such gaps: "
            "fill them, leave the column out, or say missing: drop"
        )
    if has_gap.all():
        raise InputError(
            f"{name} has no rows{' without gaps' if len(frame) else ''}: give one line a row"
        )
    if has_gap.any() and parent_process() is None:  # workers load the same file once more
        counts = gaps.sum().loc[lambda count: count > 0].sort_values(ascending=False)
        columns = ", ".join(f"{column} ({count})" for column, count in counts.head(5).items())
        if len(counts) > 5:
            columns += f" and {len(counts) - 5} more columns"
        _LOG.warning(
            "%s: %d of %d rows dropped, which have gaps in %s",
            name,
            has_gap.sum(),
            len(frame),
            columns,
        )
    return frame[~has_gap]


def _read_target(source: "Table", column: Column) -> tuple[Task, Array, bool, str]:
    """Return the task, the targets, whether classes are in order, and how they were read.

    Targets of a classification are the numbers of their classes.
    """
    name, task = source.display_name, source.task
    declared = (
        task == "classification"
        or bool(source.classes)
        or source.positive is not None
        or (task is None and column.name in source.categories)
    )
    numbers = None if declared else _read_numbers(source, column)
    if task == "regression" and numbers is None:
        raise InputError(
            f"{name}: target '{column.name}' is text such as '{column.iloc[0]}': "
            "say task: classification"
        )
    if numbers is not None:
        distinct = np.unique(numbers)
        description = "numbers"
        # a few whole numbers may be classes
        are_few = len(distinct) <= min(_FEW, len(numbers) / 3)
        if are_few and np.array_equal(distinct, distinct.round()):
            description += (
                f", {len(distinct)} different ones (task: classification makes classes of them)"
            )
        return "regression", numbers, False, description
    codes, classes, is_ordered = _number_classes(source, column)
    _check_category_count(source, column, len(classes), declared)
    examples = ", ".join(map(abbreviate, classes[:5])) + (", ..." if len(classes) > 5 else "")
    description = f"{len(classes)} classes{' in this order' if is_ordered else ''}, {examples}"
    if len(classes) == 2:
        description += f" (positive: {abbreviate(classes[1])})"
    return "classification", codes.astype(np.float64), is_ordered, description


def _number_classes(source: "Table", column: Column) -> tuple[NDArray[np.int64], list[Any], bool]:
    """Number the classes and list them, and return whether their order means something.

    That is the order of the settings, of an ordered dictionary or of numbers. `InputError` if the
    settings do not have the classes of the file.
    """
    codes, classes = _number_categories(column)
    is_ordered = pd.api.types.is_numeric_dtype(pd.Index(classes))
    order = np.arange(len(classes))
    if source.classes:
        order = _find_classes(source, column, classes, source.classes)
        is_ordered = True
        if len(order) < len(classes):
            (missing, *_) = np.setdiff1d(np.arange(len(classes)), order)
            raise InputError(
                f"{source.display_name}: classes lacks '{abbreviate(classes[missing])}', which "
                f"column '{column.name}' has: list all {len(classes)} classes"
            )
    elif isinstance(column.dtype, pd.CategoricalDtype) and column.cat.ordered:
        ranks = column.cat.codes.to_numpy()
        order = np.argsort([ranks[codes == code][0] for code in range(len(classes))])
        is_ordered = True
    if source.positive is not None:
        (positive,) = _find_classes(source, column, classes, [source.positive])
        if len(classes) != 2 or (source.classes and positive != order[1]):
            raise InputError(
                f"{source.display_name}: positive is the second of two classes, and column "
                f"'{column.name}' has {len(classes)}: leave it out, or mend classes"
            )
        order = np.array([1 - positive, positive])
    # the inverse of the order: class `order[i]` of the file becomes number i
    numbers = np.empty(len(classes), dtype=np.int64)
    numbers[order] = np.arange(len(classes))
    return numbers[codes], [classes[code] for code in order], is_ordered


def _find_classes(
    source: "Table", column: Column, classes: Sequence[Any], names: Sequence[Any]
) -> NDArray[np.int64]:
    """Return the numbers of the classes that a setting names."""
    name, number_by_text = source.display_name, dict[str, int]()
    # texts such as 007 and 7 are classes of their own
    as_text = _as_class_text if len({*map(_as_class_text, classes)}) == len(classes) else str
    for number, value in enumerate(classes):
        number_by_text[as_text(value)] = number
    texts = [*map(as_text, names)]
    for text in texts:
        if text not in number_by_text:
            known_names = ", ".join(map(abbreviate, classes[:5]))
            raise InputError(
                f"{name}: column '{column.name}' has no class '{abbreviate(text)}': name one of "
                f"{known_names}{', ...' if len(classes) > 5 else ''}"
            )
        if texts.count(text) > 1:
            raise InputError(f"{name}: classes has '{abbreviate(text)}' twice: name each once")
    return np.array([number_by_text[text] for text in texts], dtype=np.int64)


def _as_class_text(value: Any) -> str:
    """Return a class as text that is the same for 1 and 1.0, and of a text without blanks around.

    YAML reads a class such as 1 as a number, and files such as CSV may have it as 1.0.
    """
    text = str(value).strip()
    return repr(float(text)) if is_plain_number(text) else text


def _read_input(source: "Table", column: Column) -> tuple[Array, tuple[str, ...], str]:
    """Return a column as a matrix, the names of the matrix's columns, and how it was read.

    The matrix has the numbers, (n, 1), or 0 and 1 for each category, (n, categories).
    """
    declared = column.name in source.categories
    numbers = None if declared else _read_numbers(source, column)
    if numbers is not None:
        description = "numbers"
        if len(numbers) > 2 and np.array_equal(np.diff(numbers), np.ones(len(numbers) - 1)):
            description += " that count the rows"
        return numbers[:, None], (str(column.name),), description
    codes, categories = _number_categories(column)
    _check_category_count(source, column, len(categories), declared)
    names = tuple(f"{column.name}={category}" for category in categories)
    description = f"{len(categories)} {'category' if len(categories) == 1 else 'categories'}"
    return np.eye(len(categories))[codes], names, description


def _number_categories(column: Column) -> tuple[NDArray[np.int64], list[Any]]:
    """Number the categories, in order of the alphabet or of numbers, and list them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        column = column.astype(str)
    # sorted, so that the order of the rows does not decide the columns of the inputs
    codes, categories = pd.factorize(column, sort=True)
    return codes, list(categories)


def _read_numbers(source: "Table", column: Column) -> Array | None:
    """Return numbers; None for categories."""
    kind = pd.api.types.infer_dtype(column)
    if isinstance(column.dtype, pd.CategoricalDtype) or kind == "boolean":
        return None
    if kind in ("datetime64", "datetime", "date"):
        raise InputError(
            f"{source.display_name}: column '{column.name}' has dates: "
            "leave it out, or split by it (time)"
        )
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(np.float64)
    decimal, texts = getattr(source, "decimal", None), column.unique()
    # with a file's decimal point, text is left where rows with other texts were dropped
    if decimal and all(is_plain_number(text, decimal) for text in texts):
        return column.str.replace(decimal, ".").to_numpy(np.float64)
    # A column is refused if half of its different texts, or of its rows, are numbers, dates or
    # times. All texts are examined for the message alone.
    sample = pd.Series({text: recognise_notation(text) for text in texts[:_SAMPLE]}, dtype=object)
    if max(sample.notna().mean(), column.map(sample).notna().mean()) < 0.5:
        return None
    notations = column.map({text: recognise_notation(text) for text in texts})
    _refuse_notation(source, column, notations, decimal)


def _refuse_notation(
    source: "Table", column: Column, notations: Column, decimal: str | None
) -> NoReturn:
    """Raise `InputError` for text that is numbers, dates or times; it names a way to read them."""
    name, notation = column.name, notations.mode().iloc[0]
    texts = column[notations == notation]
    is_unread = [decimal is None or not is_plain_number(text, decimal) for text in texts]
    unread_texts = texts[is_unread]
    as_categories = f'say categories: ["{name}"]'
    if notation != "a number":
        cure = (
            f'split by it (time: {name}), leave it out (leave_out: ["{name}"]), '
            f"write a number, or {as_categories}"
        )
        unread_texts = texts
    elif decimal is None:
        cure = f"store it as numbers, leave it out, or {as_categories}"
    else:
        settings = suggest_settings(list(texts), decimal)
        cure = (
            f"say {settings}"
            if settings
            else f"write plain numbers, without signs, or {as_categories}"
        )
    if len(unread_texts):
        raise InputError(
            f"{source.display_name}: column '{name}' has text that is {notation}, "
            f"{unread_texts.iloc[0][:40]!r} in row {unread_texts.index[0]}: {cure}"
        )
    stray_texts = column[notations != notation]
    raise InputError(
        f"{source.display_name}: row {stray_texts.index[0]} has "
        f"'{abbreviate(stray_texts.iloc[0])}' in column '{name}', where others have "
        f"numbers: mend it, leave the column out, or {as_categories}"
    )


def _check_category_count(source: "Table", column: Column, count: int, declared: bool) -> None:
    limit = _MAX_DECLARED if declared else _MAX_TEXTS
    subject = f"{source.display_name}: column '{column.name}'"
    example = abbreviate(column.iloc[0])
    as_categories = f'or say categories: ["{column.name}"]'
    if count > limit:
        cure = "" if declared else f", {as_categories}"
        raise InputError(
            f"{subject} has {count:,} different values, such as '{example}', and at most {limit} "
            f"can be categories: make numbers of them or leave the column out{cure}"
        )
    if not declared and count > max(_FEW, len(column) / 2):
        raise InputError(
            f"{subject} is text that differs in most rows ({count} values, such as '{example}'): "
            f"make numbers of it, leave it out, {as_categories}"
        )
