"""Runs a plan: what the store lacks is done, group by group, and stored as it finishes.

A search goes in rounds. What the store holds of the earlier rounds decides the next, so it is all that a run that was
interrupted needs.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from functools import partial
from operator import itemgetter
from typing import Protocol

from bdl.errors import InputError
from bdl.execution.groups import FinalGroup, Group, SearchGroup, attempt, failed_row
from bdl.execution.rescoring import rescore
from bdl.execution.streaming import StreamGroup, batches
from bdl.plan.cell import Cell
from bdl.search import FoldScore, best_setting, per_round
from bdl.store.store import Row, Store
from bdl.training.engine import Progress


class Listener(Protocol):
    """Hears how the run goes."""

    def begin(self, work: int) -> None:
        """Start; so much work is to be done, in the units of `advance`."""

    def advance(self, work: int) -> None:
        """Count work that is done: model-minibatches times `Cell.cost`."""

    def stored(self, cell: Cell, rows: Sequence[Row]) -> None:
        """Take note of rows that are safe in the store."""


def run(cells: Sequence[Cell], store: Store, executor: Executor, listener: Listener, *, in_flight: int = 1) -> None:
    """Do what the store lacks.

    Parameters
    ----------
    cells
        The plan.
    store
        Where rows go; what it holds is not done again. A predictive metric that final rows lack needs no training:
        it is computed from the predictions.
    executor
        Where groups run.
    listener
        Progress.
    in_flight
        Groups submitted at a time; 1 for an executor that runs them at once.

    Raises
    ------
    InputError
        If the store holds a cell's rows made under another spec, other data or other code.
    """
    claim(cells, store)
    for cell in cells:
        rescore(cell, store)
    listener.begin(sum(remaining(cell, store) for cell in cells))
    for batch in batches(cells):
        progress = partial(_advance, listener, batch[0])
        for groups in _stages(batch, store, listener):
            for rows in _finished(executor, groups, progress, in_flight):
                store.append(rows)
                for cell in batch:
                    listener.stored(cell, [row for row in rows if row.dataset == cell.dataset])


def claim(cells: Sequence[Cell], store: Store) -> None:
    """Check that the store's rows belong to these cells, and register new cells."""
    fingerprints = {cell: cell.fingerprint() for cell in cells}
    for cell, fingerprint in fingerprints.items():
        found = store.fingerprint(cell.dataset, cell.entry)
        if found not in (None, fingerprint):
            raise InputError(
                f"{store.path} holds {cell.dataset}/{cell.entry} of another spec, data or code "
                f"({found[:12]}, now {fingerprint[:12]}); --fresh starts anew and keeps a copy"
            )
    for cell, fingerprint in fingerprints.items():
        if store.fingerprint(cell.dataset, cell.entry) is None:
            store.claim(cell.dataset, cell.entry, fingerprint)


def remaining(cell: Cell, store: Store) -> int:
    """Count the work that a cell still needs."""
    todo, searched = _pending(cell, store), _searched(cell, store)
    folds = sum(cell.fits("search") - len(searched.get(split, ())) for split in todo)
    return cell.cost * (folds * cell.minibatches("search") + len(todo) * cell.minibatches("final"))


def _advance(listener: Listener, cell: Cell, minibatches: int) -> None:
    listener.advance(minibatches * cell.cost)


def _pending(cell: Cell, store: Store) -> list[int]:
    done = {row.split for row in store.rows("final", cell.dataset, cell.entry)}
    return [split for split in cell.splits if split not in done]


def _searched(cell: Cell, store: Store) -> dict[int, list[Row]]:
    by_split: dict[int, list[Row]] = {}
    for row in store.rows("search", cell.dataset, cell.entry):
        by_split.setdefault(row.split, []).append(row)
    return by_split


def _stages(batch: Sequence[Cell], store: Store, listener: Listener) -> Iterator[list[Group]]:
    """Yield the groups of each round of the search, once the round before it is stored, and of the final fits."""
    if batch[0].settings.streams:
        todo = sorted(((cell, split) for cell in batch for split in _pending(cell, store)), key=itemgetter(1))
        yield [StreamGroup(tuple(todo))] if todo else []
        return
    (cell,) = batch
    while groups := _search_groups(cell, store):
        yield groups
    yield _final_groups(cell, store, listener)


def _search_groups(cell: Cell, store: Store) -> list[Group]:
    """Next round of the splits that have one: all together, or one a group where it fills the cache of a CPU."""
    search = cell.settings.search
    if search is None:
        return []
    searched = _searched(cell, store)
    scores = {
        split: [_fold_score(row, search.metric) for row in searched.get(split, ())]
        for split in _pending(cell, store)
        if len(searched.get(split, ())) < cell.fits("search")
    }
    if cell.device == "cpu" and per_round(search) == search.trials:
        return [SearchGroup(cell, {split: own}) for split, own in scores.items()]
    return [SearchGroup(cell, scores)] if scores else []


def _final_groups(cell: Cell, store: Store, listener: Listener) -> list[Group]:
    """All splits together, each with the best setting of its search."""
    todo, search = _pending(cell, store), cell.settings.search
    if search is None:
        settings = {split: dict(cell.settings.hyper) for split in todo}
        return [FinalGroup(cell, settings, {})] if todo else []
    searched = _searched(cell, store)
    best = {split: best_setting([_fold_score(row, search.metric) for row in searched[split]]) for split in todo}
    hopeless = [
        failed_row(cell, split, f"all {search.trials} search settings failed", {})
        for split, setting in best.items()
        if setting is None
    ]
    store.append(hopeless)
    listener.stored(cell, hopeless)
    chosen = {split: setting for split, setting in best.items() if setting is not None}
    seconds = {split: sum(row.seconds for row in searched[split]) for split in chosen}
    return [FinalGroup(cell, chosen, seconds)] if chosen else []


def _fold_score(row: Row, metric: str) -> FoldScore:
    value = row.metrics[metric]
    score = float("nan") if value is None else value
    return FoldScore(row.split, row.trial, row.fold, row.hyper, score, row.reason, row.details["updates"])


def _finished(executor: Executor, groups: Iterable[Group], progress: Progress, in_flight: int) -> Iterator[list[Row]]:
    """Yield the rows of each group as it finishes, with a bounded number submitted."""
    waiting: set[Future[list[Row]]] = set()
    for group in groups:
        waiting.add(executor.submit(attempt, group, progress))
        if len(waiting) >= in_flight:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    yield from (future.result() for future in waiting)
