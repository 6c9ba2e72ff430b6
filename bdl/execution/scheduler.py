"""The scheduler: runs the groups of a plan that are ready, on any executor, and stores results.

A search goes in rounds. Its next round depends on nothing but the stored rows of the earlier ones,
so an interrupted run needs nothing else. Groups of different tasks wait for nothing but their own
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

from bdl.execution.estimate import count_remaining
from bdl.execution.groups import (
    FinalFit,
    Group,
    SearchGroup,
    group_final_fits,
    make_failed_results,
    make_failed_row,
    run_group,
)
from bdl.execution.scoring import rescore, scores_needing_posteriors
from bdl.execution.worker_pool import LostWorker, OverTime, Report, WorkerPool
from bdl.methods.base import ExternalMethod
from bdl.plan.cost import estimate_work
from bdl.plan.planning import group_tasks
from bdl.plan.task import Task
from bdl.plan.workload import count_fits, find_slot_batch
from bdl.records.row import STAGES, FitResult, Row, Stage
from bdl.records.run_folder import RunFolder
from bdl.records.unusable_fits import UnusableFits
from bdl.search.choice import choose_best_setting
from bdl.search.crossval import FoldScore
from bdl.search.proposals import Setting, count_settings_per_round

_GRACE = 60.0
"""Seconds after the alarm in which a group may end by itself, before its process is ended."""


class Listener(Protocol):
    """An observer of the progress of a run."""

    def begin(self, work: int) -> None:
        """Start; so much work is to be done, in the units of `advance`."""

    def advance(self, work: int) -> None:
        """Count work that is done.

        It is model-minibatches times `bdl.plan.cost.estimate_batch_work`.
        """

    def note_stored(self, task: Task, rows: Sequence[Row]) -> None:
        """Take note of rows that are safe in the store."""


def run_tasks(
    tasks: Sequence[Task], run_folder: RunFolder, worker_pool: WorkerPool, listener: Listener
) -> None:
    """Run the fits of the plan that the store lacks, which `prepare_run_folder` has prepared."""
    listener.begin(sum(count_remaining_work(task, run_folder) for task in tasks))
    batches = group_tasks(tasks)
    if worker_pool.size > 1:
        # the longest first, so that the last to end is not one that began late
        batches.sort(key=lambda batch: -sum(_sequential_work(task, run_folder) for task in batch))
    chains = [
        JobChain(
            _iterate_rounds(batch, run_folder, listener),
            partial(_store_results, batch, run_folder, listener),
        )
        for batch in batches
    ]
    run_chains(chains, worker_pool, listener.advance)
    # A process that was killed between storing a group and removing its checkpoint left it behind;
    # now that every fit has its row, none goes on from one.
    for path in run_folder.checkpoints.glob("*"):
        path.unlink(missing_ok=True)


@dataclass(eq=False)
class JobChain:
    """Rounds of groups that follow one another.

    The groups of a round are ready when the results of all before it are stored.
    """

    rounds: Iterator[list[Group]]
    """Groups of each round; the next is asked for when the results of the last are stored."""
    store_results: Callable[[list[FitResult]], None]
    """Called with the results of a group."""
    ready: deque[Group] = field(default_factory=deque)
    running: int = 0

    def has_ready_group(self) -> bool:
        """Return whether a group is ready, of the next round when the last is finished."""
        while not self.ready and not self.running:
            groups = next(self.rounds, None)
            if groups is None:
                return False
            self.ready.extend(groups)
        return bool(self.ready)


def run_chains(
    chains: Sequence[JobChain], worker_pool: WorkerPool, report: Report, poll: float = 0.1
) -> None:
    """Run all groups.

    A free worker takes the first group that is ready, those of earlier chains before others.

    A group whose worker is lost is begun once more. Workers' reports are collected every `poll`
    seconds.
    """
    running: dict[Future[list[FitResult]], tuple[JobChain, Group]] = {}
    lost = set[Group]()
    while True:
        while len(running) < worker_pool.size:
            # from the first chain each time: the order of the chains is that of their urgency
            chain = next((chain for chain in chains if chain.has_ready_group()), None)
            if chain is None:
                break
            group = chain.ready.popleft()
            chain.running += 1
            limit = _time_limit(group)
            # the alarm within the group comes first, as it leaves rows with their reason; the end
            # of the process is for code that hears no alarm
            seconds = limit and limit[0] + _GRACE
            future = worker_pool.submit(run_group, group, report, seconds)
            running[future] = chain, group
        if not running:
            return
        finished, _ = wait(running, timeout=poll, return_when=FIRST_COMPLETED)
        worker_pool.collect(report)
        for future in finished:
            chain, group = running.pop(future)
            chain.running -= 1
            try:
                results = worker_pool.result(future)
            except LostWorker as error:
                # a loss need not be the fault of the fits, two are
                if group not in lost:
                    lost.add(group)
                    chain.ready.appendleft(group)
                    continue
                results = make_failed_results(group, f"{error}, twice", {})
            except OverTime:
                limit = _time_limit(group)
                assert limit is not None, "only a group with a limit is ended"
                reason = f"over the limit of {limit[1]}, and hung"
                results = make_failed_results(group, reason, {}, seconds=limit[0])
            # in this order: a checkpoint without its rows would be lost with a kill in between
            chain.store_results(results)
            if checkpoint := group.checkpoint():
                checkpoint.remove()


def _time_limit(group: Group) -> tuple[float, str] | None:
    """Return the least of the limits on a group, in seconds and in words; None without any."""
    task, _ = group.members[0]
    minutes = task.benchmark.limits.minutes
    method, search = task.settings.method.build(), task.settings.search
    limits = []
    if minutes is not None:
        limits.append((60 * minutes, f"{minutes:g} minutes (limits.minutes)"))
    if isinstance(method, ExternalMethod) and method.limit is not None:
        fits_per_split = 1
        if search and isinstance(group, SearchGroup):
            fits_per_split = count_settings_per_round(search) * search.folds
        seconds = fits_per_split * len(group.members) * method.limit
        limits.append((seconds, f"{seconds:g} seconds (method.seconds)"))
    return min(limits, default=None)


def prepare_run_folder(tasks: Sequence[Task], run_folder: RunFolder) -> list[str]:
    """Register the tasks, remove fits without their posterior, and complete the scores of others.

    A score that final rows lack, or whose code has changed, needs no training: it is computed from
    the posteriors. Return notes, a line each: fits that are made again, and files of components
    that have changed.

    `InputError` if the store holds a task's rows made under another spec, other data or other
    code, or rows without posteriors whose scores are not today's.
    """
    # all tasks are checked before the first is registered: a refusal leaves the store as it was
    for task, digest in check_stored_fits(tasks, run_folder).items():
        if run_folder.find_fit_hash(task.key) is None:
            run_folder.claim(task.key, digest)
    n_before = sum(len(run_folder.load_rows("final", task.key)) for task in tasks)
    for task in tasks:
        damaged: list[Row] = []
        for row in run_folder.load_rows("final", task.key):
            # by the size alone: a digest would read every posterior of the store
            if row.artefact and not run_folder.posteriors.is_whole(row.artefact):
                damaged.append(row)
        # before the scores, which would read these posteriors
        run_folder.remove(damaged)
        rescore(task, run_folder)
    lost = n_before - sum(len(run_folder.load_rows("final", task.key)) for task in tasks)
    notes = []
    if lost:
        notes.append(
            f"posteriors missing or damaged: {lost}; these fits are made again, "
            "with the search that is kept"
        )
    return notes + _describe_changed_files(tasks, run_folder)


def _describe_changed_files(tasks: Sequence[Task], run_folder: RunFolder) -> list[str]:
    """Describe files of outside components that have changed since fits were made with them.

    A line is a file.
    """
    counts: Counter[str] = Counter()
    for task in tasks:
        digests = task.recorded_files
        if not digests:
            continue
        for stage in STAGES:
            for row in run_folder.load_rows(stage, task.key):
                row_digests = row.details.get("files", {})
                for name, digest in digests.items():
                    if row_digests.get(name, digest) != digest:
                        counts[name] += 1
    return [
        f"{name} has changed since {count} of the fits in the store were made with it: they are "
        "kept; make them again with --fresh, or raise the component's version"
        for name, count in counts.items()
    ]


def forget_failed(tasks: Sequence[Task], run_folder: RunFolder) -> int:
    """Remove the final rows of fits that failed, so that they are made again; return their number.

    The rows of their search stay, unless every setting of a split lost a fold, so that none can be
    chosen: then its search is made again as well. Fits whose method is not installed stay.
    """
    count = 0
    for task in tasks:
        if task.settings.method.build().missing:
            continue
        failed: dict[int, Row] = {}
        for row in run_folder.load_rows("final", task.key):
            if row.status == "failed" and row.split in task.splits:
                failed[row.split] = row
        hopeless: list[Row] = []
        for split, rows in _search_rows(task, run_folder).items():
            if split in failed and _choose_setting(task, rows) is None:
                hopeless += rows
        run_folder.remove([*failed.values(), *hopeless])
        count += len(failed)
    return count


def check_stored_fits(tasks: Sequence[Task], run_folder: RunFolder) -> dict[Task, str]:
    """Check that stored fits have today's scores, or posteriors; return each task's fit hash.

    Errors as in `prepare_run_folder`.
    """
    hashes = check_fit_hashes(tasks, run_folder)
    for task in tasks:
        if metric_names := scores_needing_posteriors(task, run_folder):
            reason = f"new or changed scores ({', '.join(metric_names)}) need the posteriors"
            raise UnusableFits(
                f"{run_folder.path} holds {task.label} as published, without posteriors: {reason}",
                "--changed",
            )
    return hashes


def check_fit_hashes(tasks: Sequence[Task], run_folder: RunFolder) -> dict[Task, str]:
    """Return the hash of each task's fits.

    `InputError` if those in the store are of another spec, data or code.
    """
    hashes = {task: task.fit_hash for task in tasks}
    for task, current in hashes.items():
        stored = run_folder.find_fit_hash(task.key)
        if stored is not None and not task.is_fit_hash(stored):
            difference = f"of another spec, data or code ({stored[:12]}, now {current[:12]})"
            raise UnusableFits(f"{run_folder.path} holds {task.label} {difference}", "--changed")
    return hashes


def changed_tasks(tasks: Sequence[Task], run_folder: RunFolder) -> list[Task]:
    """List the tasks whose rows `check_stored_fits` refuses."""
    changed = []
    for task in tasks:
        try:
            check_stored_fits([task], run_folder)
        except UnusableFits:
            changed.append(task)
    return changed


def count_remaining_work(task: Task, run_folder: RunFolder) -> int:
    """Count the work that a task still needs."""
    remaining = count_remaining(task, run_folder)
    return estimate_work(task, remaining.search, remaining.splits)


def _sequential_work(task: Task, run_folder: RunFolder) -> float:
    """Return the work that a task still needs in sequence.

    Its slot batches run side by side, if there are workers.
    """
    stage: Stage = "search" if task.settings.search else "final"
    slot_batches = {
        find_slot_batch(task, stage, split) for split in _pending_splits(task, run_folder)
    }
    return count_remaining_work(task, run_folder) / max(1, len(slot_batches))


def _store_results(
    tasks: Sequence[Task], run_folder: RunFolder, listener: Listener, results: Sequence[FitResult]
) -> None:
    run_folder.append(results)
    for task in tasks:
        rows = [result.row for result in results if result.row.cell == task.key]
        listener.note_stored(task, rows)


def _pending_splits(task: Task, run_folder: RunFolder) -> list[int]:
    finished = {row.split for row in run_folder.load_rows("final", task.key)}
    return [split for split in task.splits if split not in finished]


def _search_rows(task: Task, run_folder: RunFolder) -> dict[int, list[Row]]:
    """Return the rows of a task's search by split."""
    by_split = groupby(run_folder.load_rows("search", task.key), key=attrgetter("split"))
    return {split: [*rows] for split, rows in by_split}


def _iterate_rounds(
    batch: Sequence[Task], run_folder: RunFolder, listener: Listener
) -> Iterator[list[Group]]:
    """Yield the groups of each round of the search, and then those of the final fits.

    Each is made when it is asked for, after the rows of the last are stored.
    """
    for task in batch:
        while groups := _search_groups(task, run_folder):
            yield groups
    final_fits: list[FinalFit] = []
    for task in batch:
        final_fits += _choose_final_fits(task, run_folder, listener)
    # all tasks of the batch in one call: those that learn from one stream train side by side
    yield group_final_fits(final_fits, run_folder.checkpoints)


def _search_groups(task: Task, run_folder: RunFolder) -> list[Group]:
    """Make a group of each slot batch of the splits whose search is not finished."""
    search = task.settings.search
    if search is None:
        return []
    search_rows = _search_rows(task, run_folder)
    scores: dict[int, list[FoldScore]] = {}
    for split in _pending_splits(task, run_folder):
        rows = search_rows.get(split, [])
        if len(rows) < count_fits(task, "search"):
            scores[split] = [_fold_score(row, search.metric) for row in rows]
    slot_batches = groupby(scores, key=lambda split: find_slot_batch(task, "search", split))
    return [
        SearchGroup(task, {split: scores[split] for split in splits}, run_folder.checkpoints)
        for _, splits in slot_batches
    ]


def _choose_final_fits(task: Task, run_folder: RunFolder, listener: Listener) -> list[FinalFit]:
    """Choose the setting of each split that lacks its final fit.

    A split without any becomes a failed row.
    """
    splits, search = _pending_splits(task, run_folder), task.settings.search
    if search is None:
        return [FinalFit(task, split, dict(task.settings.hyper)) for split in splits]
    search_rows = _search_rows(task, run_folder)
    reason = f"all {search.trials} search settings failed"
    final_fits: list[FinalFit] = []
    hopeless: list[FitResult] = []
    for split in splits:
        rows = search_rows[split]
        setting = _choose_setting(task, rows)
        if setting is None:
            hopeless.append(FitResult(make_failed_row(task, split, reason, {})))
        else:
            final_fits.append(FinalFit(task, split, setting, sum(row.seconds for row in rows)))
    _store_results([task], run_folder, listener, hopeless)
    return final_fits


def _choose_setting(task: Task, rows: Sequence[Row]) -> Setting | None:
    """Choose the best setting by the rows of a split's search; None if all lost folds."""
    search = task.settings.search
    assert search is not None, "there are rows of a search"
    return choose_best_setting([_fold_score(row, search.metric) for row in rows])


def _fold_score(row: Row, metric: str) -> FoldScore:
    value = row.metrics[metric]
    score = float("nan") if value is None else value
    return FoldScore(
        row.split, row.trial, row.fold, row.hyper, score, row.reason, row.details["updates"]
    )
