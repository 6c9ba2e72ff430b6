"""Rows as tables of columns: one for each axis of a sweep, metric, hyper-parameter and detail."""

from collections.abc import Collection
from functools import cache
from math import nan
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from bdl.errors import InputError, parse_json
from bdl.records.row import HYPER_PREFIX, CellKey, join_refusals
from bdl.records.row_files import KEY_COLUMNS, parse_mapping
from bdl.spec import SweepPoint

FLAT_TABLE = "trials.parquet"
"""Name of the file with published rows as a table of columns, for those who read it with pandas."""
UNPUBLISHED_DETAILS = ("traceback", "origin", "files")
"""Details of a row that are not columns of a table unless they are asked for."""
COLUMNS = ["dataset", "entry", "stage", "split", "trial", "fold", "status", "reason", "seconds"]
"""Columns that every table of rows has."""
POINT_COLUMNS = ["dataset", "entry", "split", "axis", "at", "metric", "value"]
"""Columns that every table of scores at recorded counts has."""
_MAX_TEXT_BYTES = 200 * 10**6
"""Size of the texts of a column, written out for each row."""


def tabulate_rows(
    table: pa.Table, details: Collection[str] = (), *, problems_of: Collection[str] | None = None
) -> pd.DataFrame:
    """Tabulate rows of `SCHEMA`.

    There is a column for each axis of the sweep, each metric, each ``hyper_<name>`` and each
    detail that is published, with NaN where a row has no value. `details` names further ones, such
    as ``traceback``. With `problems_of`, names of metrics, only rows are tabulated that failed or
    lack one of these scores, and no other score is named in ``reason``.
    """
    reasons = _list_problems(table, problems_of)
    if problems_of is not None:
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
    return SweepPoint(parse_mapping(text)).texts


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
    details = {code: parse_mapping(column.dictionary[int(code)].as_py()) for code in used}
    names = dict.fromkeys(name for content in details.values() for name in content)
    columns: dict[str, Any] = {}
    for name in names:
        values = np.empty(len(column.dictionary), dtype=object)
        for code in used:
            values[code] = details[code].get(name, nan)
        columns[name] = pd.Series(values[codes]).infer_objects()
    return columns


def _list_problems(table: pa.Table, metrics: Collection[str] | None) -> NDArray[Any]:
    """List the problem of each row, None if all is well (`bdl.records.row.Row.problem`).

    Scores that are missing count where they are of the `metrics`, or these are None.
    """
    column = table["refusals"].combine_chunks()
    joined: list[str | None] = []
    for text in column.dictionary.to_pylist():
        reasons_by_metric = {
            metric: reason
            for metric, reason in parse_mapping(text).items()
            if metrics is None or metric in metrics
        }
        joined.append(join_refusals(reasons_by_metric))
    refusals = np.array([*joined, None], dtype=object)[column.indices.to_numpy()]
    reasons = _texts(table, "reason")
    return np.where(reasons == None, refusals, reasons)  # noqa: E711  by element
