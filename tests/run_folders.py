"""Write published rows, or change them as a forger or another version of the package would."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from bdl.publishing.provenance import write_provenance
from bdl.records.row import HYPER_PREFIX, CellKey, FitResult, Row
from bdl.records.row_files import to_results, to_table, write_rows
from bdl.records.run_folder import RunFolder
from bdl.records.segments import PROVENANCE, ROWS
from bdl.records.tables import COLUMNS, list_axes, list_cell_keys

DETAILS = ("width", "device", "compiled", "updates")


def write_frame(folder: Path, frame: pd.DataFrame, request: str | None = None) -> None:
    """Write a table of rows as those of a published folder."""
    own = [name for name in frame if name not in (*COLUMNS, *DETAILS, *list_axes(frame))]
    results: list[FitResult] = []
    for cell, values in zip(list_cell_keys(frame), frame.to_dict("records"), strict=True):
        present = {name: value for name, value in values.items() if not pd.isna(value)}
        hyper: dict[str, float] = {}
        metrics: dict[str, float | None] = {}
        for name in own:
            if not name.startswith(HYPER_PREFIX):
                metrics[name] = present.get(name)
            elif name in present:
                hyper[name.removeprefix(HYPER_PREFIX)] = present[name]
        key = (values[name] for name in ("stage", "split", "trial", "fold", "status"))
        details = {name: present[name] for name in DETAILS if name in present}
        row = Row(*cell, *key, present.get("reason"), hyper, metrics, present["seconds"], details)
        results.append(FitResult(row))
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / ROWS, to_table(results, {}), request)


def rewrite(
    folder: Path,
    change: Callable[[pd.DataFrame], pd.DataFrame] = lambda rows: rows,
    *,
    has_curve: Callable[[Row], bool] = lambda row: True,
    change_hashes: Callable[[Row], dict[str, str]] = lambda row: row.score_hashes,
    change_artefact: Callable[[Row], str | None] = lambda row: row.artefact,
    change_details: Callable[[Row], dict[str, Any]] = lambda row: row.details,
    fit_hashes: Mapping[CellKey, str | None] = {},
    request: str | None = None,
    **provenance: object,
) -> None:
    """Change the rows of a folder as a table, whose index stays; and the digests of its files."""
    records = RunFolder(folder)
    hashes = {cell: records.find_fit_hash(cell) for cell in records.list_cells()}
    results, changed = to_results(records.select()), change(records.tabulate())
    new: list[FitResult] = []
    for index, values in zip(changed.index, changed.to_dict("records"), strict=True):
        row, curve_points, _ = results[index]
        row = replace(
            row,
            score_hashes=change_hashes(row),
            artefact=change_artefact(row),
            details=change_details(row),
        )
        row = _with_values(row, values)
        new.append(FitResult(row, curve_points if has_curve(row) else ()))
    hashes |= dict(fit_hashes)
    hashes |= {row.cell: hashes.get(row.cell) for row, *_ in new}
    request = records.request_text if request is None else request
    write_rows(folder / ROWS, to_table(new, hashes), request)
    path = folder / PROVENANCE
    if path.exists():
        write_provenance(json.loads(path.read_text("utf-8")) | provenance, folder)


def _with_values(row: Row, values: Mapping[Any, Any]) -> Row:
    present = {name: value for name, value in values.items() if not pd.isna(value)}
    fields = {name: values[name] for name in COLUMNS if name in values and name != "reason"}
    metrics = {name: present.get(name) for name in row.metrics if name in values}
    is_new = present.get("reason") != row.problem
    reason = present.get("reason") if is_new else row.reason
    return replace(row, **fields, reason=reason, metrics=metrics)
