"""Change published rows, as a forger or another version of the package would."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from bdl.publishing.provenance import write_provenance
from bdl.records import CellKey, FitResult, Row
from bdl.records.row_files import to_table, write_rows
from bdl.records.run_folder import PROVENANCE, ROWS, RunFolder


def load_all(folder: Path) -> list[FitResult]:
    records = RunFolder(folder)
    return [result for cell in records.list_cells() for result in records.load_results(cell)]


def rewrite(
    folder: Path,
    change: Callable[[FitResult], FitResult | None] = lambda result: result,
    *,
    fit_hashes: Mapping[CellKey, str | None] = {},
    request: str | None = None,
    **provenance: object,
) -> None:
    """Change every row, with its curve, or leave it out for None; with the digests of the files."""
    records = RunFolder(folder)
    hashes = {cell: records.find_fit_hash(cell) for cell in records.list_cells()}
    changed = [new for new in map(change, load_all(folder)) if new is not None]
    request = records.recorded_request if request is None else request
    write_rows(folder / ROWS, to_table(changed, hashes | dict(fit_hashes)), request)
    path = folder / PROVENANCE
    if path.exists():
        write_provenance(json.loads(path.read_text("utf-8")) | provenance, folder)


def with_row(result: FitResult, **fields: object) -> FitResult:
    """Return a result with other fields of its row."""
    return result._replace(row=replace(result.row, **fields))


def with_scores(
    result: FitResult, scores: Callable[[Row], Mapping[str, float | None]]
) -> FitResult:
    """Return a result with other values of some metrics."""
    return with_row(result, metrics={**result.row.metrics, **scores(result.row)})
