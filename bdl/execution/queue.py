"""Runs a plan: whatever is ready is done, on any executor, and stored as it finishes.

A search goes in rounds. What the store holds of the earlier rounds decides the next, so it is all
that a run that was interrupted needs. Groups of different cells wait for nothing but their own
earlier rounds. Workers hand over rows and posteriors; the calling process alone writes.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Protocol

from bdl.execution import LostWorker, OverTime, Report, WorkerPool
from bdl.execution.estimate import left_of
from bdl.execution.groups import (
    Chosen,
    Group,
    SearchGroup,
    attempt,
    failed,
    failed_row,
    final_groups,
)
from bdl.execution.scoring import beyond, rescore
from bdl.methods.base import ExternalMethod
from bdl.plan import Cell, fit_hash, is_fit_hash, outside_files
from bdl.plan.planning import together
from bdl.plan.programs import fits, remaining_work, slot_batch
from bdl.search.crossval import FoldScore, best_setting
from bdl.store import STAGES, Outcome, Row, Stage, artefacts
from bdl.store.artefacts import Unusable
from bdl.store.store import Store

_GRACE = 60.0
"""Seconds after the alarm in which a group may end by itself, before its process is ended."""


class Listener(Protocol):
    """Hears how the run goes."""

    def begin(self, work: int) -> None:
        """Start; so much work is to be done, in the units of `advance`."""

    def advance(self, work: int) -> None:
        """Count work that is done: model-minibatches times `bdl.plan.programs.unit`."""

    def stored(self, cell: Cell, rows: Sequence[Row]) -> None:
        """Take note of rows that are safe in the store."""


def run(cells: Sequence[Cell], store: Store, worker_pool: WorkerPool, listener: Listener) -> None:
    """Do what the store lacks of the plan.

    A score that final rows lack, or whose code has changed, needs no training: it is computed from
    the posteriors. `InputError` if the store holds a cell's rows made under another spec, other
    data or other code, or rows without posteriors whose scores are not today's.
    """
    prepare(cells, store)
    listener.begin(sum(remaining(cell, store) for cell in cells))
    batches = together(cells)
    if (
        worker_pool.size > 1
    ):  # the longest first: the last to end should not be one that began late
        batches.sort(key=lambda batch: -sum(_chain(cell, store) for cell in batch))
    chains = [
        JobChain(_stages(batch, store, listener), partial(_keep, batch, store, listener))
        for batch in batches
    ]
    run_chains(chains, worker_pool, listener.advance)


@dataclass(eq=False)
class JobChain:
    """Stages that follow one another.

    The groups of a stage are ready when all before it are kept.
    """

    stages: Iterator[list[Group]]
    """Groups of each stage; the next is asked for when the last is kept."""
    keep: Callable[[list[Outcome]], None]
    """What becomes of the outcomes of a group."""
    ready: deque[Group] = field(default_factory=deque)
    running: int = 0

    def advance(self) -> bool:
        """Declare the next stage if nothing is left of the last.

        Return whether a group is ready.
        """
        while (
            not self.ready and not self.running and (stage := next(self.stages, None)) is not None
        ):
            self.ready.extend(stage)
        return bool(self.ready)


def run_chains(
    chains: Sequence[JobChain], worker_pool: WorkerPool, report: Report, poll: float = 0.1
) -> None:
    """Run all groups.

    A worker that is free takes the first that is ready, those of earlier chains before others.

    A group whose worker is lost is begun once more. Reports of workers are looked at after so many
    seconds (`poll`).
    """
    running: dict[Future[list[Outcome]], tuple[JobChain, Group]] = {}
    lost = set[Group]()
    while True:
        while len(running) < worker_pool.size and (
            chain := next((own for own in chains if own.advance()), None)
        ):
            group = chain.ready.popleft()
            chain.running += 1
            limit = _limit(group)
            running[worker_pool.submit(attempt, group, report, limit and limit[0] + _GRACE)] = (
                chain,
                group,
            )
        if not running:
            return
        done, _ = wait(running, timeout=poll, return_when=FIRST_COMPLETED)
        worker_pool.collect(report)
        for future in done:
            chain, group = running.pop(future)
            chain.running -= 1
            try:
                outcomes = worker_pool.result(future)
            except LostWorker as error:
                if group not in lost:  # which is no fault of the fits
                    lost.add(group)
                    chain.ready.appendleft(group)
                    continue
                outcomes = failed(group, f"{error}, twice", {})
            except OverTime:
                limit = _limit(group)
                outcomes = failed(group, f"over the limit of {limit and limit[1]}, and hung", {})
            chain.keep(outcomes)
            if checkpoint := group.checkpoint():
                checkpoint.remove()


def _limit(group: Group) -> tuple[float, str] | None:
    """Return the least of the limits on a group, in seconds and in words; None without any."""
    cell, _ = group.members[0]
    minutes, method, search = (
        cell.benchmark.limits.minutes,
        cell.settings.method.build(),
        cell.settings.search,
    )
    found = [] if minutes is None else [(60 * minutes, f"{minutes:g} minutes (limits.minutes)")]
    if isinstance(method, ExternalMethod) and method.limit is not None:
        each = search.trials * search.folds if search and isinstance(group, SearchGroup) else 1
        own = each * len(group.members) * method.limit
        found.append((own, f"{own:g} seconds (method.seconds)"))
    return min(found, default=None)


def prepare(cells: Sequence[Cell], store: Store) -> list[str]:
    """Register the cells, remove fits that lost their posterior, and give the others the scores that they lack.

    Errors as in `run`. Returned is what was found, a line each: fits that are made again, and
    files of components that have changed.
    """
    for cell, own in check(cells, store).items():
        if store.fit_hash(cell.key) is None:
            store.claim(cell.key, own)
    finals = sum(len(store.rows("final", cell.key)) for cell in cells)
    for cell in cells:
        rows = (row for row in store.rows("final", cell.key) if row.artefact)
        store.remove(
            [row for row in rows if not artefacts.is_whole(store.posteriors, str(row.artefact))]
        )
        rescore(cell, store)
    lost = finals - sum(len(store.rows("final", cell.key)) for cell in cells)
    told = [
        f"posteriors missing or damaged: {lost}; these fits are made again, with the search that is kept"
    ]
    return [*(told if lost else []), *_changed_files(cells, store)]


def _changed_files(cells: Sequence[Cell], store: Store) -> list[str]:
    """Return which files of components from outside have changed since fits were made with them: a line a file."""
    counts: Counter[str] = Counter()
    for cell in cells:
        if today := outside_files(cell):
            for row in (row for stage in STAGES for row in store.rows(stage, cell.key)):
                then = row.details.get("files", {})
                counts.update(
                    name for name, digest in today.items() if then.get(name, digest) != digest
                )
    return [
        f"{name} has changed since {count} of the fits in the store were made with it: they are kept; make them again "
        "with --fresh, or raise the component's version"
        for name, count in counts.items()
    ]


def forget_failed(cells: Sequence[Cell], store: Store) -> int:
    """Remove the final rows of fits that failed, so that they are made again.

    Return how many there were.

    What their search found is kept, unless no setting of a split succeeded: then its search is
    made again, too.
    """
    count = 0
    for cell in cells:
        failed = {
            row.split: row for row in store.rows("final", cell.key) if row.status == "failed"
        }
        failed = {split: row for split, row in failed.items() if split in cell.splits}
        folds = {split: rows for split, rows in _searched(cell, store).items() if split in failed}
        hopeless = [
            row
            for rows in folds.values()
            if all(own.status == "failed" for own in rows)
            for row in rows
        ]
        store.remove([*failed.values(), *hopeless])
        count += len(failed)
    return count


def check(cells: Sequence[Cell], store: Store) -> dict[Cell, str]:
    """Return the hash of each cell's fits, and see that stored ones have today's scores, or can be given them.

    Errors as in `run`.
    """
    hashes = check_hashes(cells, store)
    for cell in cells:
        if lacking := beyond(cell, store):
            what = f"new or changed scores ({', '.join(lacking)}) need the posteriors"
            raise Unusable(
                f"{store.path} holds {cell.label} as published, without posteriors: {what}",
                "--changed",
            )
    return hashes


def check_hashes(cells: Sequence[Cell], store: Store) -> dict[Cell, str]:
    """Return the hash of each cell's fits.

    `InputError` if those in the store are of another spec, data or code.
    """
    hashes = {cell: fit_hash(cell) for cell in cells}
    for cell, own in hashes.items():
        found = store.fit_hash(cell.key)
        if found is not None and not is_fit_hash(cell, found):
            other = f"of another spec, data or code ({found[:12]}, now {own[:12]})"
            raise Unusable(f"{store.path} holds {cell.label} {other}", "--changed")
    return hashes


def changed(cells: Sequence[Cell], store: Store) -> list[Cell]:
    """List the cells whose rows were made under another spec, other data or other code, or that `check` refuses."""
    hashes = {cell: store.fit_hash(cell.key) for cell in cells}
    other = [
        cell for cell, own in hashes.items() if own is not None and not is_fit_hash(cell, own)
    ]
    return [cell for cell in cells if cell in other or beyond(cell, store)]


def remaining(cell: Cell, store: Store) -> int:
    """Count the work that a cell still needs."""
    left = left_of(cell, store)
    return remaining_work(cell, left.search, left.splits)


def _chain(cell: Cell, store: Store) -> float:
    """Return the work that a cell still needs in sequence: slot batches go side by side, if there are workers."""
    stage: Stage = "search" if cell.settings.search else "final"
    slot_batches = {slot_batch(cell, stage, split) for split in _pending(cell, store)}
    return remaining(cell, store) / max(1, len(slot_batches))


def _keep(
    cells: Sequence[Cell], store: Store, listener: Listener, outcomes: Sequence[Outcome]
) -> None:
    store.append(outcomes)
    for cell in cells:
        listener.stored(
            cell, [outcome.row for outcome in outcomes if outcome.row.cell == cell.key]
        )


def _pending(cell: Cell, store: Store) -> list[int]:
    done = {row.split for row in store.rows("final", cell.key)}
    return [split for split in cell.splits if split not in done]


def _searched(cell: Cell, store: Store) -> dict[int, list[Row]]:
    return {
        split: [*own]
        for split, own in groupby(store.rows("search", cell.key), key=attrgetter("split"))
    }


def _stages(batch: Sequence[Cell], store: Store, listener: Listener) -> Iterator[list[Group]]:
    """Yield the groups of each round of the search, once the round before it is stored, and of the final fits."""
    for cell in batch:
        while groups := _search_groups(cell, store):
            yield groups
    yield final_groups(
        [fit for cell in batch for fit in _chosen(cell, store, listener)], store.checkpoints
    )


def _search_groups(cell: Cell, store: Store) -> list[Group]:
    search = cell.settings.search
    if search is None:
        return []
    searched = _searched(cell, store)
    scores = {
        split: [_fold_score(row, search.metric) for row in searched.get(split, ())]
        for split in _pending(cell, store)
        if len(searched.get(split, ())) < fits(cell, "search")
    }
    slot_batches = groupby(scores, key=lambda split: slot_batch(cell, "search", split))
    return [
        SearchGroup(cell, {split: scores[split] for split in own}, store.checkpoints)
        for _, own in slot_batches
    ]


def _chosen(cell: Cell, store: Store, listener: Listener) -> list[Chosen]:
    """Choose the setting of each split that lacks its final fit.

    A split without any becomes a failed row.
    """
    todo, search = _pending(cell, store), cell.settings.search
    if search is None:
        return [Chosen(cell, split, dict(cell.settings.hyper)) for split in todo]
    searched = _searched(cell, store)
    best = {
        split: best_setting([_fold_score(row, search.metric) for row in searched[split]])
        for split in todo
    }
    reason = f"all {search.trials} search settings failed"
    hopeless = [
        Outcome(failed_row(cell, split, reason, {}))
        for split, found in best.items()
        if found is None
    ]
    _keep([cell], store, listener, hopeless)
    seconds = {split: sum(row.seconds for row in searched[split]) for split in todo}
    return [
        Chosen(cell, split, found, seconds[split])
        for split, found in best.items()
        if found is not None
    ]


def _fold_score(row: Row, metric: str) -> FoldScore:
    value = row.metrics[metric]
    score = float("nan") if value is None else value
    return FoldScore(
        row.split, row.trial, row.fold, row.hyper, score, row.reason, row.details["updates"]
    )
