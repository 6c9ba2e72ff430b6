"""Times of a few updates of tasks, for the estimate of a run where earlier fits are missing."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from bdl.execution.estimate import MeasuredFit, RemainingWork
from bdl.plan.cost import estimate_fit_seconds
from bdl.plan.fittings import build_final_fitting
from bdl.plan.initial_check import list_extreme_settings
from bdl.plan.task import Task
from bdl.plan.workload import count_fits_per_batch, count_stage_updates
from bdl.records.row import STAGES, Stage
from bdl.training.compiler import running_eagerly
from bdl.training.fitting import EvaluationSchedule
from bdl.training.traced import trace_immediately

_TIMED_UPDATES = 3
"""Updates of a task, the first of which also prepares the others."""
_TRACE_FROM_SECONDS = 60.0
"""Seconds of updates without a trace from which on it is worth while to time them with one."""
_STREAM_BLOCK = 1000
"""Observations of a stream that are timed as one update."""


def time_updates(
    remaining: Sequence[RemainingWork], measured: Collection[MeasuredFit], seconds: float
) -> list[MeasuredFit]:
    """Time an update, not compiled, of tasks that lack measured fits, those with most work first.

    No task is begun after so many seconds; the first always is. A method without updates is not
    timed.
    """
    measured_stages = {(fit.task_key, fit.stage, fit.device) for fit in measured}
    works_by_kind: dict[object, list[RemainingWork]] = {}
    for work in remaining:
        task = work.task
        lacks_measurement = False
        for stage in STAGES:
            if work.fits(stage) and (task.key, stage, task.device) not in measured_stages:
                lacks_measurement = True
        if lacks_measurement and (task.settings.streams or task.settings.training):
            works_by_kind.setdefault(_timing_key(task), []).append(work)
    timed: list[MeasuredFit] = []
    end = time.perf_counter() + seconds
    # those with most work first: when time runs out, the small ones are left without
    for works in sorted(works_by_kind.values(), key=_rough_seconds, reverse=True):
        # an error is reported by the run itself; a generator of many normals would be compiled for
        # ten seconds
        with suppress(Exception), running_eagerly():
            # the least: the first update prepares the others, and other programs disturb some
            update_seconds = min(_time_first_updates(works[0].task))
            if update_seconds * _count_batch_updates(works) > _TRACE_FROM_SECONDS:
                with trace_immediately():
                    update_seconds = min(update_seconds, *_time_first_updates(works[0].task))
            for work in works:
                task = work.task
                width = 1 if task.settings.streams else count_fits_per_batch(task, "final")
                timed.append(
                    MeasuredFit(
                        task.key,
                        "final",
                        update_seconds / width,
                        updates=1,
                        width=width,
                        device=task.device,
                        compiled=False,
                        basis="timed updates",
                    )
                )
        if time.perf_counter() > end:
            break
    return timed


def _timing_key(task: Task) -> object:
    """Return a key that is equal for tasks whose updates take equally long."""
    method, training = task.settings.method.build(), task.settings.training
    if training is None:
        return method, task.stream.dim
    width = count_fits_per_batch(task, "final")
    return method, task.problem, training.model_dump_json(), width, task.device


def _remaining_stages(works: Sequence[RemainingWork]) -> Iterator[tuple[Task, Stage, int]]:
    """Yield task, stage and number of fits of each stage."""
    for work in works:
        for stage in STAGES:
            yield work.task, stage, work.fits(stage)


def _count_batch_updates(works: Sequence[RemainingWork]) -> float:
    """Count updates, those of a slot batch as one."""
    return sum(
        fits * count_stage_updates(task, stage) / count_fits_per_batch(task, stage)
        for task, stage, fits in _remaining_stages(works)
    )


def _rough_seconds(works: Sequence[RemainingWork]) -> float:
    total = 0.0
    for task, stage, fits in _remaining_stages(works):
        updates, width = count_stage_updates(task, stage), count_fits_per_batch(task, stage)
        total += fits * estimate_fit_seconds(task, updates, width, False)
    return total


def _time_first_updates(task: Task) -> Iterator[float]:
    """Yield the seconds of an update of the first slot batch of a task.

    Hyper-parameters are at the lower ends of the searched ranges.
    """
    hyper = {**list_extreme_settings(task)[0], **dict.fromkeys(task.settings.from_reference, 1.0)}
    if task.settings.streams:
        schedule = EvaluationSchedule("observations", _STREAM_BLOCK)
    else:
        schedule = EvaluationSchedule("updates", 1)
    fitting = build_final_fitting([(task, task.splits[0])], [hyper], compile=False)
    start, updates_before = time.perf_counter(), 0
    for snapshot in islice(fitting.run(schedule), _TIMED_UPDATES):
        now = time.perf_counter()
        yield (now - start) / (snapshot.counters.updates - updates_before)
        start, updates_before = now, snapshot.counters.updates
