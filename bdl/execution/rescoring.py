"""Metrics that were asked for after the fit, from the predictions that the store keeps."""

from collections.abc import Iterable
from dataclasses import replace
from math import isfinite

from bdl.execution.scoring import score_predictions
from bdl.metrics import INFO
from bdl.plan.cell import Cell
from bdl.store.store import Row, Store


def rescore(cell: Cell, store: Store) -> None:
    """Give the stored final rows of a cell the predictive metrics of the benchmark that they lack.

    What they have stays as it is. A score that is not finite is stored as None. Rows that failed have no predictions,
    and rows with distances have moments in their place: neither are touched.
    """
    rows = [row for row in store.rows("final", cell.dataset, cell.entry) if row.status == "ok"]
    wanted = _predictive(cell.benchmark.metrics)
    store.update(
        [_completed(cell, store, row) for row in rows if _predictive(row.metrics) and wanted - set(row.metrics)]
    )


def _predictive(metrics: Iterable[str]) -> set[str]:
    return {name for name in metrics if name in INFO and INFO[name].kind == "predictive"}


def _completed(cell: Cell, store: Store, row: Row) -> Row:
    kept = store.predictions(cell.dataset, cell.entry, row.split)
    assert kept is not None, "a final row that is ok has its predictions"
    scores = score_predictions(cell, row.split, kept, row.hyper)
    found = {name: value if isfinite(value) else None for name, value in scores.items()}
    return replace(row, metrics=found | row.metrics)
