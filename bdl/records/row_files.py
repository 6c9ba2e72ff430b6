"""The file of rows: its schema, its writer, its reader, and rows as a table of columns.

A file is parquet with a checksum of each page. Every run has this schema, whatever its metrics:
hyper-parameters and metrics are maps. The metadata have the JSON of the request that the rows were
made with, so that one is never without the other.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from io import BytesIO
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.parquet import ParquetFile, write_table

from bdl.errors import InputError, parse_json
from bdl.files import write_atomically
from bdl.records import (
    HYPER_PREFIX,
    CellKey,
    CurvePoint,
    FitResult,
    Row,
    RowKey,
    join_refusals,
)
from bdl.spec import SweepPoint

_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Text of which there are few: a file and the memory hold each once."""
_NUMBERS = pa.map_(_TEXT, pa.float64())
_POINT = pa.struct(
    [("axis", _TEXT), ("at", pa.int64()), ("metric", _TEXT), ("value", pa.float64())]
)

REMOVED = "removed"
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
"""Levels of zstd: half a second for 100,000 rows, and next to nothing."""

_MAX_VALUES = 40_000_000
"""Values of a file, a few bytes each in memory."""
_MAX_TEXT_BYTES = 200 * 10**6
"""Size of the texts of a column, written out for each row."""

UNPUBLISHED_DETAILS = ("traceback", "origin", "files")
"""Details of a row that are not columns of a table unless they are asked for."""
COLUMNS = ["dataset", "entry", "stage", "split", "trial", "fold", "status", "reason", "seconds"]
"""Columns that every table of rows has."""
POINT_COLUMNS = ["dataset", "entry", "split", "axis", "at", "metric", "value"]
"""Columns that every table of scores at recorded counts has."""


class RowFile(NamedTuple):
    """Content of a file of rows."""

    table: pa.Table
    """Rows in `SCHEMA`."""
    request: str | None
    """JSON of the request that they were made with."""
    included: int
    """Number of the last segment whose rows are in the file."""


def to_table(results: Sequence[FitResult], fit_hashes: Mapping[CellKey, str | None]) -> pa.Table:
    """Return results as rows of `SCHEMA`.

    `TypeError` or `ValueError` if a value is not of its type, or a fit has two scores of one
    metric at one count.
    """
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for row, curve_points, _ in results:
        for name, text in zip(CELL_COLUMNS, row.cell, strict=True):
            columns[name].append(text)
        columns["fit_hash"].append(fit_hashes.get(row.cell))
        for name, value in zip(KEY_COLUMNS, row.key, strict=True):
            columns[name].append(value)
        columns["status"].append(row.status)
        columns["reason"].append(row.reason)
        columns["hyper"].append(list(dict(row.hyper).items()))
        columns["metrics"].append(
            [(name, _finite_or_none(value)) for name, value in row.metrics.items()]
        )
        columns["seconds"].append(row.seconds)
        columns["score_hashes"].append(json.dumps(row.score_hashes))
        columns["refusals"].append(json.dumps(row.refusals))
        columns["details"].append(json.dumps(row.details))
        columns["artefact"].append(None if row.artefact is None else bytes.fromhex(row.artefact))
        if len({point[:3] for point in curve_points}) < len(curve_points):
            raise ValueError(f"two scores of one metric at one count in {row.cell}, {row.key}")
        columns["curve"].append(
            [(*point[:3], _finite_or_none(point.value)) for point in curve_points]
        )
    arrays = [pa.array(columns[field.name], type=field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def make_removals(cell: CellKey, keys: Iterable[RowKey]) -> list[FitResult]:
    """Make the rows that say that rows of a cell are no more."""
    return [
        FitResult(Row(*cell, *key, REMOVED, None, {}, {}, 0.0, {}))  # type: ignore[arg-type]
        for key in keys
    ]


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
            details=_parse_mapping(values["details"]),
            score_hashes=_parse_mapping(values["score_hashes"]),
            artefact=None if values["artefact"] is None else values["artefact"].hex(),
            refusals=_parse_mapping(values["refusals"]),
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
        json.dumps(_without_traceback(_parse_text(text))) for text in column.dictionary.to_pylist()
    ]
    details = pa.array(texts, pa.string()).take(column.indices).dictionary_encode()
    return table.set_column(SCHEMA.get_field_index("details"), SCHEMA.field("details"), details)


def tabulate_rows(
    table: pa.Table, details: Collection[str] = (), *, problems: bool = False
) -> pd.DataFrame:
    """Tabulate rows of `SCHEMA`.

    There is a column for each axis of the sweep, each metric, each ``hyper_<name>`` and each
    detail that is published, with NaN where a row has no value. `details` names further ones, such
    as ``traceback``. With `problems`, only rows that have one (`bdl.records.Row.problem`) are
    tabulated.
    """
    reasons = _list_problems(table)
    if problems:
        has_problem = np.array([reason is not None for reason in reasons], dtype=bool)
        table = table.filter(pa.array(has_problem))
        reasons = reasons[has_problem]
    columns = {
        **_key_columns(table),
        "stage": _texts(table, "stage"),
        **{name: table[name].to_numpy().astype(np.int64) for name in KEY_COLUMNS[1:]},
        "status": _texts(table, "status"),
        "reason": reasons,
        "seconds": table["seconds"].to_numpy(),
    }
    for name, values in _map_columns(table, "hyper").items():
        columns[HYPER_PREFIX + name] = values
    columns |= _map_columns(table, "metrics")
    for name, values in _detail_columns(table).items():
        if name in details or name not in UNPUBLISHED_DETAILS:
            columns[name] = values
    return pd.DataFrame(columns)


def tabulate_curve_points(table: pa.Table) -> pd.DataFrame:
    """Tabulate the scores at recorded counts of rows of `SCHEMA`, one row a score.

    Those of a fit are in the order of their counts.
    """
    curves = table["curve"].combine_chunks()
    points = curves.flatten()
    rows = np.repeat(np.arange(len(curves)), np.diff(curves.offsets.to_numpy()))
    columns = {name: values[rows] for name, values in _key_columns(table).items()}
    columns["split"] = table["split"].to_numpy().astype(np.int64)[rows]
    for name in ("axis", "metric"):
        columns[name] = _expand(points.field(name))
    columns["at"] = points.field("at").to_numpy(zero_copy_only=False)
    columns["value"] = points.field("value").to_numpy(zero_copy_only=False)
    axes = [name for name in columns if name not in POINT_COLUMNS]
    frame = pd.DataFrame(columns)[[*POINT_COLUMNS[:2], *axes, *POINT_COLUMNS[2:]]]
    order = np.lexsort((frame["at"], frame["axis"], rows))
    return frame.iloc[order].reset_index(drop=True)


def sort_curve_points(points: Iterable[CurvePoint]) -> list[CurvePoint]:
    """Sort the scores of a fit at recorded counts by axis and count."""
    return sorted(points, key=lambda point: (point.axis, point.at))


def list_axes(rows: pd.DataFrame) -> list[str]:
    """List the paths of the axes of a sweep: the columns between the entry and the stage."""
    return [str(name) for name in rows.columns[2 : rows.columns.get_loc("stage")]]


def list_cell_keys(rows: pd.DataFrame) -> list[CellKey]:
    """List the key of the cell of each row."""
    axes = list_axes(rows)

    # cached: a sweep has a few points, and its rows may be a million
    @cache
    def format_point(*texts: str) -> str:
        return SweepPoint(
            {path: parse_json(text) for path, text in zip(axes, texts, strict=True)}
        ).text

    keys = rows[["dataset", "entry", *axes]].itertuples(index=False, name=None)
    return [(dataset, entry, format_point(*texts)) for dataset, entry, *texts in keys]


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
                _parse_text(text)


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else value


def _without_traceback(details: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in details.items() if name != "traceback"}


@lru_cache(1024)
def _parse_text(text: str) -> dict[str, Any]:
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError(f"{text[:40]!r} is no mapping")
    return content


def _parse_mapping(text: str) -> dict[str, Any]:
    return dict(_parse_text(text))


def _expand(array: pa.Array) -> NDArray[np.object_]:
    """Return a dictionary array as Python texts, None where it has none.

    `InputError` if they would fill the memory: a text that many rows share is in a file once,
    however long it is.
    """
    texts = np.array([*array.dictionary.to_pylist(), None], dtype=object)
    codes = array.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
    lengths = np.array([len(text or "") for text in texts])
    size = int(lengths[codes].sum())
    if size > _MAX_TEXT_BYTES:
        raise InputError(
            f"the rows have {size / 1e6:,.0f} MB of text, more than the "
            f"{_MAX_TEXT_BYTES / 1e6:,.0f} of any run"
        )
    expanded: NDArray[np.object_] = texts[codes]
    return expanded


def _texts(table: pa.Table, name: str) -> NDArray[Any]:
    return _expand(table[name].combine_chunks())


def _key_columns(table: pa.Table) -> dict[str, NDArray[Any]]:
    """Return data set, entry, and the values of the axes of the sweep as canonical JSON."""
    columns = {name: _texts(table, name) for name in ("dataset", "entry")}
    column = table["point"].combine_chunks()
    points = [_parse_point(text) for text in column.dictionary.to_pylist()]
    codes = column.indices.to_numpy()
    axes = dict.fromkeys(axis for code in np.unique(codes) for axis in points[code])
    for axis in axes:
        texts = np.array([point.get(axis, nan) for point in points], dtype=object)
        columns[axis] = texts[codes]
    return columns


def _parse_point(text: str) -> dict[str, str]:
    return SweepPoint(_parse_text(text)).texts


def _map_columns(table: pa.Table, name: str) -> dict[str, NDArray[Any]]:
    """Return a column of numbers for each key of a map, with NaN where it has none."""
    maps = table[name].combine_chunks()
    offsets = maps.offsets.to_numpy()
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    keys = maps.keys[offsets[0] : offsets[-1]] if len(offsets) else maps.keys
    values = maps.items[offsets[0] : offsets[-1]].to_numpy(zero_copy_only=False)
    codes = keys.indices.to_numpy(zero_copy_only=False)
    columns: dict[str, NDArray[Any]] = {}
    for code in pd.unique(codes):
        chosen = codes == code
        column = np.full(len(maps), nan)
        column[rows[chosen]] = values[chosen]
        columns[keys.dictionary[int(code)].as_py()] = column
    return columns


def _detail_columns(table: pa.Table) -> dict[str, Any]:
    column = table["details"].combine_chunks()
    codes = column.indices.to_numpy()
    used = pd.unique(codes)
    details = {code: _parse_text(column.dictionary[int(code)].as_py()) for code in used}
    names = dict.fromkeys(name for content in details.values() for name in content)
    columns: dict[str, Any] = {}
    for name in names:
        values = np.empty(len(column.dictionary), dtype=object)
        for code in used:
            values[code] = details[code].get(name, nan)
        columns[name] = pd.Series(values[codes]).infer_objects()
    return columns


def _list_problems(table: pa.Table) -> NDArray[Any]:
    """List the problem of each row, None if all is well (`bdl.records.Row.problem`)."""
    column = table["refusals"].combine_chunks()
    joined = [join_refusals(_parse_text(text)) for text in column.dictionary.to_pylist()]
    refusals = np.array([*joined, None], dtype=object)[column.indices.to_numpy()]
    reasons = _texts(table, "reason")
    return np.where(reasons == None, refusals, reasons)  # noqa: E711  by element
