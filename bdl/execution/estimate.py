"""Estimate of the rest of a run: its fits, time, memory and disk.

Time comes from earlier fits of a task, or from a few updates of it.
`bdl.plan.cost.estimate_fit_seconds` carries it over to other numbers of updates and to groups
of other sizes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from bdl import runtime
from bdl.plan.cost import (
    ROW_BYTES,
    count_state_bytes,
    estimate_fit_seconds,
    estimate_memory,
    estimate_scoring_seconds,
)
from bdl.plan.task import Task
from bdl.plan.workload import (
    count_fits,
    count_fits_per_batch,
    count_splits_per_batch,
    count_stage_updates,
    is_stage_compiled,
)
from bdl.records.row import STAGES, CellKey, Stage
from bdl.records.run_folder import RunFolder
from bdl.training.updates import COMPILATION_SECONDS

Basis = Literal[
    "the same cells", "the same cells in other or published runs", "timed updates", "nothing"
]
"""Basis of the estimated time of a stage of a task, best first; "nothing" if it is unknown."""


class MeasuredFit(NamedTuple):
    """Seconds of a fit that was made."""

    task_key: CellKey
    stage: Stage
    seconds: float
    updates: float
    """0 where it was not counted."""
    width: int
    """Fits of its group."""
    device: str
    compiled: bool
    basis: Basis
    """Basis of the estimates that use it."""


class RemainingWork(NamedTuple):
    """Fits that a task still needs."""

    task: Task
    splits: int
    search: int
    """Fits of the search that are left."""
    search_done: int
    final_done: int

    def fits(self, stage: Stage) -> int:
        """Count the fits of a stage that are left; a split has one final fit."""
        return self.splits if stage == "final" else self.search

    def slot_batches(self, stage: Stage) -> int:
        """Count the slot batches of the splits, which train side by side as far as they can."""
        return -(-self.splits // count_splits_per_batch(self.task, stage))

    def trained_fits(self, stage: Stage) -> float:
        """Count the fits of a stage that train, with those that fill up slot batches."""
        if self.task.settings.training is None:
            return self.fits(stage)
        return (
            self.fits(stage)
            * self.slot_batches(stage)
            * count_splits_per_batch(self.task, stage)
            / self.splits
        )


@dataclass(frozen=True)
class RunEstimate:
    """Fits, time, memory and disk that a run still needs."""

    remaining: tuple[RemainingWork, ...]
    """Fits, task by task."""
    seconds: float
    """Wall time, without that of fits whose estimate has no basis."""
    memory: int
    """Bytes, at the peak."""
    disk: int
    """Bytes, in the end."""
    basis: Counter[Basis]
    """Number of fits by the basis of their time."""
    jobs: int
    """Processes."""

    def count(self, stage: Stage) -> int:
        """Count the fits of a stage that are left."""
        return sum(work.fits(stage) for work in self.remaining)

    def done(self, stage: Stage) -> int:
        """Count the fits of a stage that the store has, or that the run copies."""
        if stage == "final":
            return sum(work.final_done for work in self.remaining)
        return sum(work.search_done for work in self.remaining)


def count_remaining(
    task: Task, run_folder: RunFolder, copied_splits: Collection[int] = ()
) -> RemainingWork:
    """Count the fits that a task still needs.

    Fits that the store has are left out, and `copied_splits`, which the run copies from elsewhere.
    """
    finished = {row.split for row in run_folder.load_rows("final", task.key)} | set(copied_splits)
    unfinished = set(task.splits) - finished
    searched = Counter(row.split for row in run_folder.load_rows("search", task.key))
    per_split = count_fits(task, "search")
    search = sum(per_split - searched[split] for split in unfinished)
    return RemainingWork(
        task,
        len(unfinished),
        search,
        per_split * len(task.splits) - search,
        len(task.splits) - len(unfinished),
    )


def estimate_remaining(
    remaining: Sequence[RemainingWork], jobs: int, measured: Iterable[MeasuredFit]
) -> RunEstimate:
    """Estimate the rest of a run by so many processes.

    It rests on measured earlier fits and timed updates, but for those on other devices.
    """
    tasks = {work.task.key: work.task for work in remaining}
    factors = _correction_factors(tasks, measured)
    basis: Counter[Basis] = Counter()
    total = longest_task = 0.0
    compiled_programs = set()
    for work in remaining:
        task = work.task
        task_seconds = 0.0  # of a task by itself: its slot batches side by side
        for stage in STAGES:
            count = work.fits(stage)
            if not count:
                continue
            seconds, stage_basis = _stage_seconds(work, stage, factors)
            basis[stage_basis] += count
            # the seconds of earlier fits of these tasks have their compilation in them
            if is_stage_compiled(task, stage) and stage_basis != "the same cells":
                compiled_programs.add((task.settings.method.build(), task.problem, stage))
            total += seconds
            task_seconds += seconds / work.slot_batches(stage)
        longest_task = max(longest_task, task_seconds)
    total += COMPILATION_SECONDS * len(compiled_programs)
    # more processes than cores do not make a run faster
    parallel = 1 if jobs == 1 else min(jobs, runtime.available_cores())
    splits_by_task = [(work.task, work.splits) for work in remaining if work.splits]
    disk = sum(
        work.splits * count_state_bytes(work.task) + (work.splits + work.search) * ROW_BYTES
        for work in remaining
    )
    return RunEstimate(
        remaining=tuple(remaining),
        # the rounds of a task's search follow one another, whatever the number of processes
        seconds=max(total / parallel, longest_task),
        memory=estimate_memory(splits_by_task, jobs),
        disk=disk,
        basis=basis,
        jobs=jobs,
    )


def _correction_factors(
    tasks: Mapping[CellKey, Task], measured: Iterable[MeasuredFit]
) -> dict[tuple[Basis, CellKey, Stage], float]:
    """Compute the ratio of measured seconds to rough ones, by basis, task and stage."""
    counts: Counter[MeasuredFit] = Counter()
    seconds_by_kind: dict[MeasuredFit, float] = {}
    for fit in measured:  # thousands of fits, of a few kinds
        # equal but for the seconds: one estimate serves all fits of a kind
        kind = fit._replace(seconds=0.0)
        counts[kind] += 1
        seconds_by_kind[kind] = seconds_by_kind.get(kind, 0.0) + fit.seconds
    sums: dict[tuple[Basis, CellKey, Stage], list[float]] = {}
    for kind, count in counts.items():
        task = tasks.get(kind.task_key)
        if task and task.device == kind.device:
            updates = kind.updates or count_stage_updates(task, kind.stage)
            rough = estimate_fit_seconds(task, updates, kind.width, kind.compiled)
            totals = sums.setdefault((kind.basis, kind.task_key, kind.stage), [0.0, 0.0])
            totals[0] += seconds_by_kind[kind]
            totals[1] += count * rough
    return {key: seconds / rough for key, (seconds, rough) in sums.items()}


def _stage_seconds(
    work: RemainingWork, stage: Stage, factors: Mapping[tuple[Basis, CellKey, Stage], float]
) -> tuple[float, Basis]:
    """Estimate the time of the rest of a stage, in one process; return it with its basis."""
    task = work.task
    per_fit = estimate_fit_seconds(
        task,
        count_stage_updates(task, stage),
        count_fits_per_batch(task, stage),
        is_stage_compiled(task, stage),
    )
    # in the order of the type, the best basis first
    for basis in get_args(Basis):
        factor = factors.get((basis, task.key, "final" if basis == "timed updates" else stage))
        if factor is not None:
            # rows of the search have their scores in their seconds
            untimed = stage == "final" or basis == "timed updates"
            scores = work.fits(stage) * estimate_scoring_seconds(task, stage) if untimed else 0.0
            return work.trained_fits(stage) * per_fit * factor + scores, basis
    return 0.0, "nothing"
