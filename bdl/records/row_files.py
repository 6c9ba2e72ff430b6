"""The file of rows: its schema, its writer and its reader, and rows from and to its table.

A file is parquet with a checksum of each page. Every run has this schema, whatever its metrics:
hyper-parameters and metrics are maps. The metadata have the JSON of the request that the rows were
made with, so that one is never without the other.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from io import BytesIO
from math import isfinite, nan
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.parquet import ParquetFile, write_table

from bdl.errors import InputError, parse_json
from bdl.files import write_atomically
from bdl.records.row import STAGES, CellKey, CurvePoint, FitResult, Row, RowKey

_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Text of which there are few: a file and the memory hold each once."""
_NUMBERS = pa.map_(_TEXT, pa.float64())
_POINT = pa.struct(
    [("axis", _TEXT), ("at", pa.int64()), ("metric", _TEXT), ("value", pa.float64())]
)

REMOVED: Final = "removed"
"""Status of a row that says only that an earlier one of its key is no more."""

CELL_COLUMNS = ("dataset", "entry", "point")
KEY_COLUMNS = ("stage", "split", "trial", "fold")

SCHEMA = pa.schema(
    [
        *(pa.field(name, _TEXT, nullable=False) for name in CELL_COLUMNS),
        # identity of the fits of the cell; null for rows of earlier versions without one
        pa.field("fit_hash", _TEXT),
        pa.field("stage", _TEXT, nullable=False),
        *(pa.field(name, pa.int32(), nullable=False) for name in KEY_COLUMNS[1:]),
        pa.field("status", _TEXT, nullable=False),
        pa.field("reason", _TEXT),
        pa.field("hyper", _NUMBERS),
        # null is a score that is no finite number, or could not be computed
        pa.field("metrics", _NUMBERS),
        pa.field("seconds", pa.float64(), nullable=False),
        # in JSON, since few rows differ
        pa.field("score_hashes", _TEXT, nullable=False),
        pa.field("refusals", _TEXT, nullable=False),
        pa.field("details", _TEXT, nullable=False),
        pa.field("artefact", pa.binary(32)),
        pa.field("curve", pa.list_(_POINT)),
    ]
)

_FORMAT, _FORMAT_VERSION = b"bdl-bench rows", b"3"
_REQUEST, _INCLUDED = b"request", b"included"

_FLOAT_PATHS = (
    "seconds",
    "hyper.key_value.value",
    "metrics.key_value.value",
    "curve.list.element.value",
)
COMPACT_LEVEL, FAST_LEVEL = 15, 1
"""Levels of zstd: 15 takes half a second for 100,000 rows, 1 hardly anything."""

_MAX_VALUES = 40_000_000
"""Values of a file, a few bytes each in memory."""


class RowFile(NamedTuple):
    """Content of a file of rows."""

    table: pa.Table
    """Rows in `SCHEMA`."""
    request: str | None
    """JSON of the request that they were made with."""
    included: int
    """Number of the last segment whose rows are among these."""


def to_table(results: Sequence[FitResult], fit_hashes: Mapping[CellKey, str | None]) -> pa.Table:
    """Return results as rows of `SCHEMA`.

    `TypeError` or `ValueError` if a value is not of its type, or a fit has two scores of one
    metric at one count.
    """
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    encode = json.JSONEncoder().encode
    for row, curve_points, _ in results:
        for name, text in zip(CELL_COLUMNS, row.cell, strict=True):
            columns[name].append(text)
        columns["fit_hash"].append(fit_hashes.get(row.cell))
        for name, value in zip(KEY_COLUMNS, row.key, strict=True):
            columns[name].append(value)
        columns["status"].append(row.status)
        columns["reason"].append(row.reason)
        columns["hyper"].append(list(dict(row.hyper).items()))
        columns["metrics"].append(list(row.metrics.items()))
        columns["seconds"].append(row.seconds)
        columns["score_hashes"].append(encode(row.score_hashes))
        columns["refusals"].append(encode(row.refusals) if row.refusals else "{}")
        columns["details"].append(encode(row.details))
        columns["artefact"].append(None if row.artefact is None else bytes.fromhex(row.artefact))
        if curve_points and len({point[:3] for point in curve_points}) < len(curve_points):
            raise ValueError(f"two scores of one metric at one count in {row.cell}, {row.key}")
        columns["curve"].append(
            [(*point[:3], _finite_or_none(point.value)) for point in curve_points]
        )
    arrays = [pa.array(columns[field.name], type=field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def as_stored(row: Row) -> Row:
    """Return a row as a reader finds it: a score that is no finite number is None."""
    if all(value is None or isfinite(value) for value in row.metrics.values()):
        return row
    metrics = {name: _finite_or_none(value) for name, value in row.metrics.items()}
    return replace(row, metrics=metrics)


def make_removals(cell: CellKey, keys: Iterable[RowKey]) -> list[FitResult]:
    """Make the rows that say that rows of a cell are no more."""
    removals = []
    for stage, split, trial, fold in keys:
        row = Row(*cell, stage, split, trial, fold, REMOVED, None, {}, {}, 0.0, {})
        removals.append(FitResult(row))
    return removals


def write_rows(
    path: Path,
    table: pa.Table,
    request: str | None,
    *,
    included: int = 0,
    level: int = FAST_LEVEL,
) -> None:
    """Write a file of rows, all of it or nothing; it is on the disk when the call returns.

    `OSError` if the disk is full or the folder is not writable.
    """
    metadata = {_FORMAT: _FORMAT_VERSION, _INCLUDED: str(included).encode()}
    if request is not None:
        metadata[_REQUEST] = request.encode()
    # in memory first: a value that does not fit its column leaves no file
    buffer = BytesIO()
    # Scores seldom repeat, but their signs and exponents do: bytes of equal rank side by side
    # compress better than a dictionary of the numbers.
    write_table(
        table.replace_schema_metadata(metadata),
        buffer,
        compression="zstd",
        compression_level=level,
        write_page_checksum=True,
        use_dictionary=_list_dictionary_paths(),
        column_encoding=dict.fromkeys(_FLOAT_PATHS, "BYTE_STREAM_SPLIT"),
    )
    with write_atomically(path) as new_path:
        new_path.write_bytes(buffer.getvalue())


def read_rows(path: Path) -> RowFile:
    """Read a file of rows.

    `FileNotFoundError` if it is not there, and `InputError` if it is damaged, of another version
    or too large.
    """
    try:
        with ParquetFile(path, page_checksum_verification=True) as file:
            metadata = file.schema_arrow.metadata or {}
            if metadata.get(_FORMAT) != _FORMAT_VERSION or not file.schema_arrow.equals(SCHEMA):
                raise InputError(
                    f"{path} was written by another version of bdl-bench; "
                    "move it away and run again"
                )
            _check_size(path, file)
            table = file.read()
            _check_texts(table)
            request = metadata.get(_REQUEST)
            return RowFile(
                table, None if request is None else request.decode(), int(metadata[_INCLUDED])
            )
    except FileNotFoundError:
        raise
    except (OSError, ValueError, LookupError) as error:  # those of pyarrow among them
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(f"cannot read {path} ({reason}); remove it and run again") from None


def to_results(table: pa.Table) -> list[FitResult]:
    """Return rows of `SCHEMA` as results, without the content of posteriors."""
    results: list[FitResult] = []
    for values in table.to_pylist():
        plain = (*CELL_COLUMNS, *KEY_COLUMNS, "status", "reason", "seconds")
        row = Row(
            **{name: values[name] for name in plain},
            hyper=dict(values["hyper"]),
            metrics=dict(values["metrics"]),
            details=_copy_mapping(values["details"]),
            score_hashes=_copy_mapping(values["score_hashes"]),
            artefact=None if values["artefact"] is None else values["artefact"].hex(),
            refusals=_copy_mapping(values["refusals"]),
        )
        curve_points = tuple(
            CurvePoint(
                point["axis"],
                point["at"],
                point["metric"],
                nan if point["value"] is None else point["value"],
            )
            for point in values["curve"]
        )
        results.append(FitResult(row, curve_points))
    return results


def without_tracebacks(table: pa.Table) -> pa.Table:
    """Return rows without tracebacks, which name folders of the machine."""
    column = table["details"].combine_chunks()
    texts = [
        json.dumps(_without_traceback(parse_mapping(text)))
        for text in column.dictionary.to_pylist()
    ]
    details = pa.array(texts, pa.string()).take(column.indices).dictionary_encode()
    return table.set_column(SCHEMA.get_field_index("details"), SCHEMA.field("details"), details)


def sort_curve_points(points: Iterable[CurvePoint]) -> list[CurvePoint]:
    """Sort the scores of a fit at recorded counts by axis and count."""
    return sorted(points, key=lambda point: (point.axis, point.at))


def _list_dictionary_paths() -> list[str]:
    keys = [f"{name}.key_value.key" for name in ("hyper", "metrics")]
    points = [f"curve.list.element.{name}" for name in ("axis", "at", "metric")]
    plain = [
        field.name
        for field in SCHEMA
        if not pa.types.is_nested(field.type) and field.name not in (*_FLOAT_PATHS, "artefact")
    ]
    return [*plain, *keys, *points]


def _check_size(path: Path, file: ParquetFile) -> None:
    """Refuse a file that would fill the memory: few bytes may stand for billions of rows."""
    count = 0
    for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
        for number in range(group.num_columns):
            count += group.column(number).num_values
    if count > _MAX_VALUES:
        raise InputError(f"{path} has {count:,} values, more than the {_MAX_VALUES:,} of any run")


def _check_texts(table: pa.Table) -> None:
    """Raise `ValueError` if the texts of JSON are none."""
    for name in ("point", "score_hashes", "refusals", "details"):
        for chunk in table[name].chunks:
            for text in chunk.dictionary.to_pylist():
                parse_mapping(text)


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else value


def _without_traceback(details: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name != "traceback"}


@lru_cache(1024)
def parse_mapping(text: str) -> dict[str, Any]:
    """Parse a mapping in JSON; it is shared, and not to be changed.

    `ValueError` if it is none.
    """
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"{text[:40]!r} is no mapping")
    return content


def _copy_mapping(text: str) -> dict[str, Any]:
    return dict(parse_mapping(text))


def list_texts(table: pa.Table, name: str) -> list[str]:
    """List the distinct texts of a column, by their number in it."""
    texts: list[str] = table[name].combine_chunks().dictionary.to_pylist()
    return texts


def code_keys(table: pa.Table) -> pd.DataFrame:
    """Return the keys of rows as numbers: of a text, its position in the dictionary."""
    columns: dict[str, NDArray[np.int64]] = {}
    for name in CELL_COLUMNS:
        columns[name] = table[name].combine_chunks().indices.to_numpy()
    names = list[str](STAGES)
    stages = [names.index(name) for name in list_texts(table, "stage")]
    codes = table["stage"].combine_chunks().indices.to_numpy()
    columns["stage"] = np.array(stages, dtype=np.int64)[codes]
    for name in KEY_COLUMNS[1:]:
        columns[name] = table[name].to_numpy()
    return pd.DataFrame(columns)


def drop_replaced(table: pa.Table) -> pa.Table:
    """Keep the last row of each key, and drop that one too if its status is `REMOVED`."""
    is_replaced = code_keys(table).duplicated(keep="last").to_numpy()
    is_removal = np.array([text == REMOVED for text in list_texts(table, "status")], dtype=bool)
    statuses = table["status"].combine_chunks().indices.to_numpy()
    return table.filter(pa.array(~(is_replaced | is_removal[statuses])))
