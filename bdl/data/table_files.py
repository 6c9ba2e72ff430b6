"""Files of rows and columns, CSV and Parquet, as frames; what a file leaves open is refused."""

import codecs
import csv
import re
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from bdl.data import notation
from bdl.data.conversion import short
from bdl.data.table_settings import CsvSettings
from bdl.errors import InputError

Frame = pd.DataFrame
Column = pd.Series


def read_csv(how: CsvSettings) -> Frame:
    """Read a file of text.

    Raises
    ------
    InputError
        If there is no such file, it is empty, its header is none, lines have different numbers of values, or a word
        such as ``NA`` may be a gap or a category.
    """
    path, encoding = Path(how.path), _encoding(how.encoding)
    if how.thousands == how.decimal:
        raise InputError(f"decimal and thousands are both '{how.decimal}': change one")
    try:
        with path.open(encoding=encoding, newline="") as file:
            first = file.readline()
            between = how.separator or _separator(first, how.decimal)
            file.seek(0)
            names = _header(path, file, between) if how.header else None
        read: Callable[..., Frame] = partial(
            cast(Any, pd.read_csv),
            path,
            sep=between,
            header=None,
            names=names,
            skiprows=int(how.header),
            index_col=False,
            skipinitialspace=True,
            encoding=encoding,
            low_memory=False,  # by whole columns, of which no part is numbers and the next text
        )
        gaps = {} if how.gaps is None else {"na_values": ["", *how.gaps], "keep_default_na": False}
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # of lines that are longer than the header
            table = read(decimal=how.decimal, thousands=how.thousands, **gaps).rename(columns=str)
            if doubtful := [i for i, name in enumerate(table.columns) if _doubtful(how, table[name])]:
                raw = read(usecols=doubtful, dtype=str, na_filter=False).rename(columns=str)
                for name in raw.columns:
                    _check_read(how, table[name], raw[name])
    except UnicodeError:
        raise InputError(
            f"cannot read {path}: it is not {how.encoding.upper()} text: say encoding: latin-1 or another"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} has no rows: give one line a row") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        raise InputError(
            f"cannot read {path}: {first_line(error)}; give every line as many values as the first"
        ) from None
    except (ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"cannot read {path}: {first_line(error)}") from None
    return table


def read_parquet(path: Path) -> Frame:
    """Read a file in the Parquet format; an index that has a name is a column.

    Raises
    ------
    InputError
        If there is no such file, it is of another format, or damaged.
    """
    from pyarrow.parquet import read_table

    try:
        with path.open("rb") as file:
            table = read_table(file)
        frame: Frame = table.to_pandas(ignore_metadata=True)  # so plain types, whatever wrote the file
        said = (table.schema.pandas_metadata or {}).get("columns", [])
        declared = [column["field_name"] for column in said if column["pandas_type"] == "categorical"]
        frame = frame.astype(dict.fromkeys(declared, "category")).rename(columns=str)
    except OSError as error:  # those of pyarrow have no strerror
        raise InputError(f"cannot read {path}: {error.strerror or first_line(error)}") from None
    except Exception as error:  # whatever Arrow raises for damaged bytes
        raise InputError(f"cannot read {path}: {first_line(error)}") from None
    return frame.loc[:, [not re.fullmatch(r"__index_level_\d+__", name) for name in frame.columns]]


def _encoding(name: str) -> str:
    """Return an encoding as Python knows it; that of UTF-8 takes the mark that may stand at the start of a file."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        raise InputError(f"encoding: there is no {short(name)}: say utf-8, latin-1, utf-16 or another") from None
    return "utf-8-sig" if found == "utf-8" else found


def _separator(line: str, decimal: str) -> str:
    """Return the mark that a line has most of; commas of numbers are none."""
    others = [mark for mark in ";\t|" if mark in line]
    numbers = [mark for mark in others if all(notation.kind_of(text) == "a number" for text in line.split(mark))]
    return (numbers or [max(others if decimal == "," and others else ",;\t|", key=line.count)])[0]


def _header(path: Path, file: Iterable[str], separator: str) -> list[str]:
    names = [name.strip() for name in next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])]
    if not any(names):
        raise InputError(f"{path} is empty: give a header and one line a row")
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise InputError(f"{path}: the header has '{twice[0]}' twice: rename one")
    if all(notation.kind_of(name) == "a number" for name in names):
        raise InputError(f"{path}: the first line has numbers only: say header: false if it is no header")
    for i, name in enumerate(names):
        if not name:  # called as pandas does it
            names[i] = f"Unnamed: {i}" + ".1" * (f"Unnamed: {i}" in names)
    return names


def _doubtful(how: CsvSettings, column: Column) -> bool:
    """Return whether the text of a column in the file has to be looked at as well."""
    if column.name in how.leave_out:
        return False
    if pd.api.types.is_numeric_dtype(column):
        return how.thousands is not None
    return how.gaps is None and bool(column.isna().any()) and pd.api.types.infer_dtype(column, skipna=True) == "string"


def _check_read(how: CsvSettings, column: Column, raw: Column) -> None:
    """Refuse what pandas reads without a word: marks that do not stand between thousands, and words that are gaps."""
    raw = raw.str.strip()
    if pd.api.types.is_numeric_dtype(column):
        mark = str(how.thousands)
        wrong = raw[raw.str.contains(mark, regex=False)]
        wrong = wrong[[not notation.is_grouped(text, mark) for text in wrong]]
        why = f'has no groups of three digits: say thousands: null, or decimal: "{mark}" if that is meant'
    else:
        wrong = raw[column.isna() & (raw != "")]
        why = 'may be a gap or a category: say gaps: ["{}"] for a gap, or gaps: [] for a category'
    if len(wrong):
        text = wrong.iloc[0]
        raise InputError(
            f"{how.called}: '{short(text)}' (row {wrong.index[0] + 1} of column '{column.name}') {why.format(text)}"
        )


def first_line(error: BaseException) -> str:
    """Return the first line of a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
