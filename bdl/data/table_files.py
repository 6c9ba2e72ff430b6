"""Files of rows and columns, CSV and Parquet, as frames, and the notations that their texts may have."""

import codecs
import csv
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from bdl.errors import InputError, short

if TYPE_CHECKING:
    from bdl.data.local import Csv

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,? )?"
_CLOCK = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]\.?m\.?)?(?: ?(?:z|utc|gmt|[+-]\d{2}:?\d{2}))?"
)
_UNIT = r"(?:weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|ms|us|µs|ns)"
_MONEY = r"(?:[$€£¥₹]|usd|eur|gbp|chf|jpy)"
_SIGN = r"[+\-\u2212\u2013]?"
_DIGITS = r"(?:\d{1,3}(?:[.,'\u2019 _]\d{2,3})+|\d+)"
_NUMBER = rf"(?:{_DIGITS}(?:[.,]\d*)?|[.,]\d+)(?:[ed][+\-\u2212]?\d+)?"
_PATTERNS = [
    ("a date", rf"\d{{4}}([-/.])\d{{1,2}}(?:\1\d{{1,2}})?(?:[t ]{_CLOCK})?"),
    ("a date", rf"\d{{1,2}}([-/.])\d{{1,2}}\1(?:\d{{4}}|\d{{2}})(?:[t ,]+{_CLOCK})?"),
    (
        "a date",
        rf"{_DAY}\d{{1,2}}(?:st|nd|rd|th)?\.?[- ]?{_MONTH}(?:[- ,]+\d{{2,4}})?(?: {_CLOCK})?",
    ),
    (
        "a date",
        rf"{_DAY}{_MONTH}[- ]?\d{{1,2}}(?:st|nd|rd|th)?(?:, ?| )(?:{_CLOCK} )?\d{{4}}(?: {_CLOCK})?",
    ),
    ("a date", rf"{_MONTH}[- ]?\d{{2,4}}"),
    ("a date", r"\d{4}[- ]?(?:q[1-4]|w\d{1,2}(?:-?\d)?)|q[1-4][- ]?\d{4}"),
    ("a time", _CLOCK),
    ("a time", r"\d{1,2} ?[ap]\.?m\.?|\d{1,2}h\d{2}"),
    ("a time", rf"{_SIGN}(?:\d+ days?,? )?[+-]?\d+:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?"),
    ("a time", rf"{_SIGN}(?:\d+(?:[.,]\d+)? ?{_UNIT}[ ,]*)+"),
    ("a time", r"-?p(?=.)(?:\d+[ymwd])*(?:t(?:\d+(?:\.\d+)?[hms])+)?"),
    ("a number", rf"\(?{_SIGN} ?{_MONEY}? ?{_SIGN}{_NUMBER} ?(?:{_MONEY}|%|‰)?\)?"),
    ("a number", r"[+-]?0(?:x[0-9a-f]+|b[01]+|o[0-7]+)|\d+ ?/ ?\d+"),
]
_KINDS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS]
_BLANK = re.compile(r"[\s\u200b\ufeff]+")
_GROUPS = {
    mark: re.compile(rf"[+-]?\d{{1,3}}(?:{re.escape(mark)}\d{{3}})+(?:[.,]\d*)?")
    for mark in ",.' "
}


def kind_of(text: str) -> str | None:
    """Return ``"a number"``, ``"a date"`` or ``"a time"``; None for any other text."""
    plain = _BLANK.sub(" ", text).strip()
    if is_plain(plain):
        return "a number"
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(plain)), None)


def is_plain(text: str, decimal: str = ".") -> bool:
    """Return whether a text is a number as programs write it, with a decimal point or comma."""
    if decimal == ",":
        text = text.replace(".", "_").replace(",", ".")
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii() and any(map(str.isdigit, text))


def is_grouped(text: str, mark: str) -> bool:
    """Return whether a number has marks between groups of three digits, and nowhere else."""
    return _GROUPS[mark].fullmatch(text) is not None


def settings_for(texts: Sequence[str], decimal: str) -> str:
    """Return the settings of a CSV file with which texts are numbers, ``thousands: ","``.

    Empty if none are known.

    `decimal` is the decimal point that was tried.
    """
    other = "." if decimal == "," else ","
    odd = [text for text in map(str.strip, texts) if not is_plain(text, decimal)]
    if not odd:
        return ""
    tried = [
        f'thousands: "{mark}"'
        for mark in ",.' "
        if mark != decimal and all(is_grouped(t, mark) for t in odd)
    ]
    if all(
        re.fullmatch(rf"[+-]?\d*{other}\d*(?:e[+-]?\d+)?", text, re.IGNORECASE) for text in odd
    ):
        tried.append(f'decimal: "{other}"')
    elif not tried and all(
        re.fullmatch(rf"[+-]?[\d{decimal}]*(?:{other}\d*)?", text) for text in odd
    ):
        tried.append(f'decimal: "{other}" and thousands: "{decimal}"')
    return " or ".join(tried)


Frame = pd.DataFrame
Column = pd.Series


def read_csv(how: "Csv") -> Frame:
    """Read a file of text.

    `InputError` if there is no such file, it is empty, its header is none, lines have different
    numbers of values, or a word such as ``NA`` may be a gap or a category.
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
            warnings.simplefilter(
                "error", pd.errors.ParserWarning
            )  # of lines that are longer than the header
            table = read(decimal=how.decimal, thousands=how.thousands, **gaps).rename(columns=str)
            if doubtful := [
                i for i, name in enumerate(table.columns) if _doubtful(how, table[name])
            ]:
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

    `InputError` if it cannot be read.
    """
    from pyarrow.parquet import read_table

    try:
        with path.open("rb") as file:
            table = read_table(file)
        frame: Frame = table.to_pandas(
            ignore_metadata=True
        )  # so plain types, whatever wrote the file
        said = (table.schema.pandas_metadata or {}).get("columns", [])
        declared = [
            column["field_name"] for column in said if column["pandas_type"] == "categorical"
        ]
        frame = frame.astype(dict.fromkeys(declared, "category")).rename(columns=str)
    except OSError as error:  # those of pyarrow have no strerror
        raise InputError(f"cannot read {path}: {error.strerror or first_line(error)}") from None
    except Exception as error:  # whatever Arrow raises for damaged bytes
        raise InputError(f"cannot read {path}: {first_line(error)}") from None
    return frame.loc[:, [not re.fullmatch(r"__index_level_\d+__", name) for name in frame.columns]]


def _encoding(name: str) -> str:
    """Return an encoding as Python knows it.

    That of UTF-8 takes the mark that may stand at the start of a file.
    """
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        raise InputError(
            f"encoding: there is no {short(name)}: say utf-8, latin-1, utf-16 or another"
        ) from None
    return "utf-8-sig" if found == "utf-8" else found


def _separator(line: str, decimal: str) -> str:
    """Return the mark that a line has most of; commas of numbers are none."""
    others = [mark for mark in ";\t|" if mark in line]
    numbers = [
        mark for mark in others if all(kind_of(text) == "a number" for text in line.split(mark))
    ]
    return (numbers or [max(others if decimal == "," and others else ",;\t|", key=line.count)])[0]


def _header(path: Path, file: Iterable[str], separator: str) -> list[str]:
    names = [
        name.strip()
        for name in next(csv.reader(file, delimiter=separator, skipinitialspace=True), [])
    ]
    if not any(names):
        raise InputError(f"{path} is empty: give a header and one line a row")
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise InputError(f"{path}: the header has '{twice[0]}' twice: rename one")
    if all(kind_of(name) == "a number" for name in names):
        raise InputError(
            f"{path}: the first line has numbers only: say header: false if it is no header"
        )
    for i, name in enumerate(names):
        if not name:  # called as pandas does it
            names[i] = f"Unnamed: {i}" + ".1" * (f"Unnamed: {i}" in names)
    return names


def _doubtful(how: "Csv", column: Column) -> bool:
    """Return whether the text of a column in the file has to be looked at as well."""
    if column.name in how.leave_out:
        return False
    if pd.api.types.is_numeric_dtype(column):
        return how.thousands is not None
    return (
        how.gaps is None
        and bool(column.isna().any())
        and pd.api.types.infer_dtype(column, skipna=True) == "string"
    )


def _check_read(how: "Csv", column: Column, raw: Column) -> None:
    """Refuse what pandas reads without a word: marks that do not stand between thousands, and words that are gaps."""
    raw = raw.str.strip()
    if pd.api.types.is_numeric_dtype(column):
        mark = str(how.thousands)
        wrong = raw[raw.str.contains(mark, regex=False)]
        wrong = wrong[[not is_grouped(text, mark) for text in wrong]]
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
