"""Scores that were asked for, or changed, after the fit: computed from the posteriors that the store keeps."""

from dataclasses import replace

from bdl.execution.scoring import codes, computed, evaluation, finite, scores
from bdl.plan.cell import Cell
from bdl.plan.fingerprint import score_hash
from bdl.store import artefacts
from bdl.store.store import Store


def rescore(cell: Cell, store: Store) -> None:
    """Give the stored final rows of a cell the scores that they lack, or that other code has computed.

    Fits stay as they are. A score that is not finite is stored as None. Rows that failed have no posterior.
    """
    current = {metric: score_hash(cell, metric) for metric in computed(cell)}
    stale = []
    for row in store.rows("final", cell.key):
        wanted = [metric for metric, code in current.items() if row.codes.get(str(metric)) != code]
        if row.artefact and wanted:
            posterior, buffers = artefacts.read(store.posteriors, row.artefact)
            found = scores(evaluation(cell, row.split, posterior, buffers, row.hyper), wanted).values
            stale.append(replace(row, metrics=finite(found), codes=codes(cell, found)))
    store.rescore(stale)
