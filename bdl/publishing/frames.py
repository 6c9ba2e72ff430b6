"""Rows of a run as tables, and the parquet files that are published: ``trials.parquet`` and ``points.parquet``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.store.rows import Row
from bdl.store.store import Store

COLUMNS = ["dataset", "entry", "stage", "split", "trial", "fold", "status", "reason", "seconds"]
_MADE = "made"
_APART = ("traceback", "origin", "files")
"""Details of a row that are told elsewhere: with failures, and in the provenance."""
POINT_COLUMNS = ["dataset", "entry", "split", "axis", "at", "metric", "value"]


def frame(cells: Sequence[Cell], rows: Iterable[tuple[Cell, Row]]) -> pd.DataFrame:
    """Lay rows out as a table: a column an axis of the sweep and a metric, ``hyper_<name>`` and the details."""
    records = [
        {
            **{name: getattr(row, name) for name in ("dataset", "entry")},
            **cell.point.texts,
            **{name: getattr(row, name) for name in COLUMNS[2:]},
            "reason": row.problem,
            **{f"hyper_{name}": value for name, value in row.hyper.items()},
            **{name: float("nan") if value is None else value for name, value in row.metrics.items()},
            **{name: value for name, value in row.details.items() if name not in _APART},
        }
        for cell, row in rows
    ]
    columns = [*COLUMNS[:2], *axes(cells), *COLUMNS[2:]]
    return pd.DataFrame(records) if records else pd.DataFrame(columns=columns)


def final_frame(cells: Sequence[Cell], store: Store) -> pd.DataFrame:
    """Lay out the final rows of the cells, with a column for each metric of the benchmark."""
    table = frame(cells, ((cell, row) for cell in cells for row in store.rows("final", cell.key)))
    wanted = cells[0].benchmark.metrics if cells else ()
    return table.reindex(columns=[*table.columns, *(str(name) for name in wanted if name not in table.columns)])


def points_frame(cells: Sequence[Cell], store: Store) -> pd.DataFrame:
    """Lay out the scores at recorded counts, one row a score."""
    records: list[dict[str, Any]] = [
        {
            **dict(zip(("dataset", "entry"), cell.key, strict=False)),
            **cell.point.texts,
            "split": split,
            **reading._asdict(),
        }
        for cell in cells
        for split, reading in store.readings(cell.key)
    ]
    columns = [*POINT_COLUMNS[:2], *axes(cells), *POINT_COLUMNS[2:]]
    return pd.DataFrame(records, columns=columns)


def write_frames(cells: Sequence[Cell], store: Store, folder: Path, made: str | None = None) -> list[Path]:
    """Write every row of the cells, search folds too, to ``trials.parquet``, and what was recorded beside it.

    What they were made with is in the metadata of ``trials.parquet``, so that one is never without the other.
    """
    rows = ((cell, row) for cell in cells for stage in ("search", "final") for row in store.rows(stage, cell.key))
    tables = {"trials": frame(cells, rows), "points": points_frame(cells, store)}
    if made is not None:
        tables["trials"].attrs[_MADE] = made
    paths = []
    for name, table in tables.items():
        path = folder / f"{name}.parquet"
        if len(table) or name == "trials":
            new = path.with_name(f".{path.name}.new")
            try:
                table.to_parquet(new, compression="zstd", index=False)
                new.replace(path)
            finally:
                new.unlink(missing_ok=True)
            paths.append(path)
        else:
            path.unlink(missing_ok=True)  # an earlier run may have recorded what this one has not
    return paths


def read_frames(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, str | None]:
    """Read published rows, scores at recorded counts, and what they were made with if they say so.

    Raises
    ------
    InputError
        If a file is damaged.
    """
    rows = _read(folder / "trials.parquet", COLUMNS)
    recorded = folder / "points.parquet"
    points = _read(recorded, POINT_COLUMNS) if recorded.exists() else pd.DataFrame(columns=POINT_COLUMNS)
    return rows, points, rows.attrs.pop(_MADE, None)


def _read(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # those of pyarrow among them
        raise InputError(f"cannot read {path} ({str(error).splitlines()[0]}); remove it and run again") from None
    if lacking := [name for name in columns if name not in table.columns]:
        raise InputError(f"{path} has no column '{lacking[0]}': it holds no published rows; remove it and run again")
    return table


def axes(cells: Sequence[Cell]) -> list[str]:
    """Name the axes of the sweep."""
    return list(cells[0].point.texts) if cells else []
