"""Files of rows and columns, CSV and Parquet, as frames, and the notations of their texts."""

import codecs
import csv
import io
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from bdl.data.compression import check_is_text, read_decompressed
from bdl.errors import InputError, abbreviate

if TYPE_CHECKING:
    from bdl.data.local import Csv

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,? )?"
_CLOCK = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]\.?m\.?)?(?: ?(?:z|utc|gmt|[+-]\d{2}:?\d{2}))?"
)
_UNIT = r"(?:weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s|ms|us|µs|ns)"
_YEAR = r"(?:1[5-9]|20)\d{2}"
_FOREIGN_MONTH = (
    r"(?:(?:jan|ene|gen|feb|f[eé]v|m[aä]r|a[bpv]r|ju[iln]|giu|lug|aug|ao[uû]|ago|sep|set|o[ck]t|ott|"
    r"out|nov|d[eéi][csz])[^\W\d_]{0,7}|ma[ij]|mayo?|maggio|mei)\.?"
)
"""Also English, German, French, Spanish, Italian, Portuguese, Dutch and Scandinavian ones."""
_ZONE = r"(?: ?(?:z|utc|gmt|[+-]\d{2}:?\d{2}))?"
_WEEKDAY = r"(?:,? ?\(?(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}\.?\)?)?"
_SYMBOL = r"(?:(?:us|ca|au|nz|hk|r)?\$|[€£¥₹₽₩₺]|usd|eur|gbp|chf|jpy)"
_CURRENCY = (
    r"(?:kr\.?|zł|kč|rs\.?|aud|cad|nzd|sek|nok|dkk|pln|czk|huf|rub|inr|cny|krw|brl|mxn|zar|ils)"
)
"""What stands at a distance from its number, unlike the name of a gene or a room."""
_SIGN = r"[+\-\u2212\u2013]?"
_DIGITS = r"(?:\d{1,3}(?:[.,'\u2019 _]\d{2,3})+|\d+)"
_NUMBER = rf"(?:{_DIGITS}(?:[.,\u00b7\u066b]\d*)?|[.,]\d+)(?:[ed][+\-\u2212]?\d+)?"
_NOTATION_PATTERNS = [
    ("a date", rf"\d{{4}}([-/.])\d{{1,2}}(?:\1\d{{1,2}})?(?:[t _]{_CLOCK}|{_ZONE}){_WEEKDAY}"),
    ("a date", rf"{_YEAR}_\d{{2}}_\d{{2}}|{_YEAR}m\d{{1,2}}|\d{{2}}\.\d{{2}}\."),
    ("a date", r"\d{4}年\d{1,2}月(?:\d{1,2}日)?"),
    ("a date", rf"\d{{1,2}}([-/.])\d{{1,2}}\1(?:\d{{4}}|\d{{2}})(?:[t ,]+{_CLOCK})?"),
    (
        "a date",
        rf"{_DAY}\d{{1,2}}(?:st|nd|rd|th)?[-./ ]*{_MONTH}(?:[-/ ,]*\d{{2,4}})?(?:[ :]{_CLOCK})?",
    ),
    ("a date", rf"\d{{1,2}}[-./ ]*{_FOREIGN_MONTH}[-/ ]*{_YEAR}"),
    ("a date", rf"{_YEAR}([-/. ]){_MONTH}\1\d{{1,2}}"),
    (
        "a date",
        rf"{_DAY}{_MONTH}[- ]?\d{{1,2}}(?:st|nd|rd|th)?"
        rf"(?:, ?| )(?:{_CLOCK} )?\d{{4}}(?: {_CLOCK})?",
    ),
    ("a date", rf"{_MONTH}[- ]?\d{{2,4}}"),
    ("a date", r"\d{4}[- ]?(?:q[1-4]|w\d{1,2}(?:-?\d)?)|q[1-4][- ]?\d{4}"),
    ("a time", _CLOCK),
    ("a time", r"\d{1,2} ?[ap]\.?m\.?|\d{1,2}h\d{2}"),
    ("a time", rf"{_SIGN}(?:\d+ days?,? )?[+-]?\d+:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?"),
    ("a time", rf"{_SIGN}(?:\d+(?:[.,]\d+)? ?{_UNIT}[ ,]*)+"),
    ("a time", r"-?p(?=.)(?:\d+[ymwd])*(?:t(?:\d+(?:\.\d+)?[hms])+)?"),
    (
        "a number",
        rf"\(?{_SIGN} ?(?:{_SYMBOL} ?|{_CURRENCY} )?{_SIGN}{_NUMBER}"
        rf"(?: ?(?:{_SYMBOL}|%|‰|percent|pct\.?)| {_CURRENCY})?\)?",
    ),
    ("a number", rf"{_DIGITS}[.,]\d+[-\u2212]"),  # as SAP writes a minus
    ("a number", r"[+-]?0(?:x[0-9a-f]+|b[01]+|o[0-7]+)|\d+ ?/ ?\d+"),
]
_NOTATIONS = [
    (notation, re.compile(pattern, re.IGNORECASE)) for notation, pattern in _NOTATION_PATTERNS
]
_QUOTED = re.compile(r"""=?(["'])(.*)\1""")
"""A text in quotation marks, to which spreadsheets add a sign to keep its digits."""
_BLANK = re.compile(r"[\s\u200b\ufeff]+")
_GROUPED_NUMBERS = {
    mark: re.compile(rf"[+-]?\d{{1,3}}(?:{re.escape(mark)}\d{{3}})+(?:[.,]\d*)?")
    for mark in ",.' "
}


def recognise_notation(text: str) -> str | None:
    """Return ``"a number"``, ``"a date"`` or ``"a time"``; None for any other text."""
    stripped = _BLANK.sub(" ", text).strip()
    if quoted := _QUOTED.fullmatch(stripped):
        stripped = quoted[2]
    if is_plain_number(stripped):
        return "a number"
    for notation, pattern in _NOTATIONS:
        if pattern.fullmatch(stripped):
            return notation
    return None


def is_plain_number(text: str, decimal: str = ".") -> bool:
    """Return whether a text is a number as programs write it, with a decimal point or comma."""
    if decimal == ",":
        # a point is no part of such a number: as "_" it fails the test below
        text = text.replace(".", "_").replace(",", ".")
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.isascii() and any(map(str.isdigit, text))


def has_digit_groups(text: str, mark: str) -> bool:
    """Return whether a number has marks between groups of three digits, and nowhere else."""
    return _GROUPED_NUMBERS[mark].fullmatch(text) is not None


def suggest_settings(texts: Sequence[str], decimal: str) -> str:
    """Return the settings of a CSV file under which texts are numbers, such as ``thousands: ","``.

    Empty if there are none. `decimal` is the decimal point that was tried.
    """
    stripped = map(str.strip, texts)
    unread_texts = [text for text in stripped if not is_plain_number(text, decimal)]
    if not unread_texts:
        return ""

    def explains_all(pattern: str) -> bool:
        return all(re.fullmatch(pattern, text, re.IGNORECASE) for text in unread_texts)

    suggestions = []
    for mark in ",.' ":
        if mark != decimal and all(has_digit_groups(text, mark) for text in unread_texts):
            suggestions.append(f'thousands: "{mark}"')
    swapped = "." if decimal == "," else ","
    if explains_all(rf"[+-]?\d*{swapped}\d*(?:e[+-]?\d+)?"):
        suggestions.append(f'decimal: "{swapped}"')
    elif not suggestions and explains_all(rf"[+-]?[\d{decimal}]*(?:{swapped}\d*)?"):
        suggestions.append(f'decimal: "{swapped}" and thousands: "{decimal}"')
    return " or ".join(suggestions)


Frame = pd.DataFrame
Column = pd.Series


def read_csv(source: "Csv") -> Frame:
    """Read a file of text.

    `InputError` if there is no such file, it is empty, its header is none, a line has more values
    than the header (one with fewer has gaps), or a word such as ``NA`` may be a gap or a category.
    """
    path, encoding = Path(source.path), _find_encoding(source.encoding)
    if source.thousands == source.decimal:
        raise InputError(f"decimal and thousands are both '{source.decimal}': change one")
    try:
        content = read_decompressed(path)
        check_is_text(path, content, encoding)
        lines = io.TextIOWrapper(io.BytesIO(content), encoding, newline="")
        first_row = lines.readline()
        separator = source.separator or _guess_separator(first_row, source.decimal)
        is_remark = first_row.startswith("sep=") or (
            first_row.startswith("#") and separator not in first_row
        )
        lines.seek(0)
        names = _read_header(path, lines, separator) if source.header else None
        if names and len(names) == 1 and " " in names[0] and not (source.separator or is_remark):
            raise InputError(
                f"{path}: the header has blanks and no separator: say separator: ' ' if they stand "
                "between columns, and remove a title above the header"
            )
        read: Callable[..., Frame] = partial(
            _read_rows,
            content,
            sep=separator,
            header=None,
            names=names,
            skiprows=int(source.header),
            index_col=False,
            skipinitialspace=True,
            encoding=encoding,
            low_memory=False,  # in chunks, one column might become numbers here and text there
        )
        gaps = (
            {}
            if source.gaps is None
            else {"na_values": ["", *source.gaps], "keep_default_na": False}
        )
        with warnings.catch_warnings():
            # pandas only warns of lines that are longer than the header
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = read(decimal=source.decimal, thousands=source.thousands, **gaps)
            table = _mark_padded_gaps(table.rename(columns=str), source.gaps or ())
            doubtful_columns = [
                i for i, name in enumerate(table.columns) if _needs_raw_text(source, table[name])
            ]
            code_columns = [
                i for i, name in enumerate(table.columns) if _is_number_code(source, table[name])
            ]
            if code_columns:
                raw = read(usecols=code_columns, dtype=str, na_filter=False)
                for name, texts in raw.rename(columns=str).items():
                    texts = texts.str.strip()
                    texts = texts.mask(texts.isin(source.gaps or ()))
                    table[name] = _tell_codes_apart(table[str(name)], texts)
            if doubtful_columns:
                # a second time, for these columns alone: text of a whole file takes several times
                # the memory
                raw = read(usecols=doubtful_columns, dtype=str, na_filter=False)
                raw = raw.rename(columns=str)
                for name in raw.columns:
                    _check_silent_losses(source, table[name], raw[name])
    except UnicodeError:
        raise InputError(
            f"cannot read {path}: it is not {source.encoding.upper()} text: "
            "say encoding: latin-1 or another"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} has no rows: give one line a row") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        advice = "give every line as many values as the first"
        if is_remark:
            advice = "remove the first line, which is no header"
        raise InputError(f"cannot read {path}: {first_message_line(error)}; {advice}") from None
    except (ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"cannot read {path}: {first_message_line(error)}") from None
    return table


def _mark_padded_gaps(table: Frame, gaps: Collection[str]) -> Frame:
    """Replace gaps with blanks around them, which pandas takes for text."""
    for name in table.columns if gaps else ():
        if pd.api.types.infer_dtype(table[name], skipna=True) == "string":
            is_gap = table[name].str.strip().isin(gaps)
            table[name] = table[name].mask(is_gap)
    return table


def _read_rows(content: bytes, **settings: Any) -> Frame:
    """Read rows as `pandas.read_csv` does."""
    return cast(Any, pd.read_csv)(io.BytesIO(content), **settings)


def read_parquet(path: Path) -> Frame:
    """Read a file in the Parquet format; an index that has a name is a column.

    `InputError` if it cannot be read.
    """
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(io.BytesIO(read_decompressed(path))) as file:
            names = file.schema_arrow.names
            repeated = [name for name in names if names.count(name) > 1]
            if repeated:
                raise InputError(f"{path} has the column '{repeated[0]}' twice: rename one")
            table = file.read()
        # the same plain types whatever wrote the file, but categories stay categories
        frame: Frame = table.to_pandas(ignore_metadata=True)
        column_metadata = (table.schema.pandas_metadata or {}).get("columns", [])
        categories = [
            column["field_name"]
            for column in column_metadata
            if column["pandas_type"] == "categorical"
        ]
        frame = frame.astype(dict.fromkeys(categories, "category")).rename(columns=str)
    except InputError:
        raise
    except OSError as error:  # those of pyarrow have no strerror
        raise InputError(
            f"cannot read {path}: {error.strerror or first_message_line(error)}"
        ) from None
    except Exception as error:  # whatever Arrow raises for damaged bytes
        raise InputError(f"cannot read {path}: {first_message_line(error)}") from None
    return frame.loc[:, [not re.fullmatch(r"__index_level_\d+__", name) for name in frame.columns]]


def _find_encoding(name: str) -> str:
    """Return the name of an encoding in Python; `InputError` if there is none.

    For UTF-8 it is the one that skips the byte order mark at the start of a file.
    """
    try:
        encoding = codecs.lookup(name).name
        b"text".decode(encoding, errors="ignore")  # codecs such as base64 are none of text
    except (LookupError, ValueError):
        raise InputError(
            f"encoding: there is no {abbreviate(name)}: say utf-8, latin-1, utf-16 or another"
        ) from None
    return "utf-8-sig" if encoding == "utf-8" else encoding


def _guess_separator(line: str, decimal: str) -> str:
    """Return the separator that a line has most of; decimal commas are none."""
    candidates = [mark for mark in ";\t|" if mark in line]
    for mark in candidates:
        if all(recognise_notation(text) == "a number" for text in line.split(mark)):
            return mark
    if decimal != "," or not candidates:
        candidates = [*",;\t|"]
    return max(candidates, key=line.count)


def _read_header(path: Path, file: Iterable[str], separator: str) -> list[str]:
    lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
    # programs that put files together leave further byte order marks
    names = [name.strip().strip("\ufeff") for name in next(lines, [])]
    if not any(names):
        content = next(lines, None)
        problem = "is empty" if content is None else "begins with a line that is blank"
        raise InputError(f"{path} {problem}: give a header and one line a row")
    repeated = [name for name in names if name and names.count(name) > 1]
    if repeated:
        raise InputError(f"{path}: the header has '{repeated[0]}' twice: rename one")
    if all(recognise_notation(name) == "a number" for name in names):
        raise InputError(
            f"{path}: the first line has numbers only: say header: false if it is no header"
        )
    for i, name in enumerate(names):
        if not name:  # the name that pandas would choose
            names[i] = f"Unnamed: {i}" + ".1" * (f"Unnamed: {i}" in names)
    return names


def _is_number_code(source: "Csv", column: Column) -> bool:
    """Return whether a column has codes, of categories, groups or parts, that are numbers."""
    has_codes = column.name in (*source.categories, source.group, source.split_column)
    is_number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    return has_codes and is_number


def _tell_codes_apart(column: Column, texts: Column) -> Column:
    """Return codes as their texts if numbers lose something of them.

    That are zeros at the beginning, and digits beyond double precision. Other texts of one number,
    such as 1 and 1.0, are one code.
    """
    texts = texts.where(column.notna())
    is_more_than_number = texts.str.contains(r"^[+-]?0\d|\d{16}", na=False)
    return texts if is_more_than_number.any() else column.where(texts.notna())


def _needs_raw_text(source: "Csv", column: Column) -> bool:
    """Return whether pandas may have lost something of a column that only its text can show."""
    if column.name in source.leave_out:
        return False
    if pd.api.types.is_numeric_dtype(column):
        return source.thousands is not None
    return (
        source.gaps is None
        and bool(column.isna().any())
        and pd.api.types.infer_dtype(column, skipna=True) == "string"
    )


def _check_silent_losses(source: "Csv", column: Column, raw: Column) -> None:
    """Raise `InputError` for texts that pandas silently misreads.

    Those are marks of thousands between other numbers of digits, and words that become gaps.
    """
    raw = raw.str.strip()
    if pd.api.types.is_numeric_dtype(column):
        mark = str(source.thousands)
        misread = raw[raw.str.contains(mark, regex=False)]
        misread = misread[[not has_digit_groups(text, mark) for text in misread]]
        reason = (
            "has no groups of three digits: say thousands: null, "
            f'or decimal: "{mark}" if that is meant'
        )
    else:
        misread = raw[column.isna() & (raw != "")]
        reason = (
            'may be a gap or a category: say gaps: ["{}"] for a gap, or gaps: [] for a category'
        )
    if len(misread):
        text = misread.iloc[0]
        raise InputError(
            f"{source.display_name}: '{abbreviate(text)}' "
            f"(row {misread.index[0] + 1} of column '{column.name}') {reason.format(text)}"
        )


def first_message_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the error's type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
