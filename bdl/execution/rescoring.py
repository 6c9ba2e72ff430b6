"""Scores that were asked for, or changed, after the fit: computed from the posteriors that the store keeps."""

from collections.abc import Iterator
from dataclasses import replace

from bdl.execution.scoring import codes, computed, evaluation, scores
from bdl.plan.cell import Cell, score_hash
from bdl.spec.labels import MetricName
from bdl.store import artefacts
from bdl.store.anew import Damaged
from bdl.store.rows import Row
from bdl.store.store import Store


def rescore(cell: Cell, store: Store) -> None:
    """Return the stored final rows of a cell the scores that they lack, or that other code has computed.

    Fits stay as they are. A score that is not finite, or raises, is stored as None, the second with its reason; it is
    computed again each time. Rows without a posterior are left alone: those that failed, and those that were imported
    from published rows, which `beyond` lists. Rows whose posterior turns out to be damaged are removed.
    """
    stale, damaged = [], []
    for row, wanted in _stale(cell, store):
        if row.artefact:
            try:
                posterior, buffers = artefacts.read(store.posteriors, row.artefact)
            except Damaged:
                damaged.append(row)
                continue
            found = scores(evaluation(cell, row.split, posterior, buffers, row.hyper), wanted)
            own = codes(cell, found.stored)
            stale.append(replace(row, metrics=found.stored, codes=own, refused=dict(found.refused)))
    store.rescore(stale)
    store.remove(damaged)


def beyond(cell: Cell, store: Store) -> list[str]:
    """Name the scores that final rows of a cell lack, or that other code has computed, and that need the fits anew."""
    lacking = {metric for row, wanted in _stale(cell, store) if not row.artefact for metric in wanted}
    return [str(metric) for metric in computed(cell) if metric in lacking]


def _stale(cell: Cell, store: Store) -> Iterator[tuple[Row, list[MetricName]]]:
    """Yield the final rows that succeeded and whose scores are not today's, each with those scores."""
    current = {metric: score_hash(cell, metric) for metric in computed(cell)}
    for row in store.rows("final", cell.key):
        wanted = [
            metric
            for metric, code in current.items()
            if row.codes.get(str(metric)) != code or str(metric) in row.refused
        ]
        if wanted and row.status == "ok":
            yield row, wanted
