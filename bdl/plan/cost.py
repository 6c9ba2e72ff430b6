"""Cost of tasks by formula: seconds and memory; and the refusal of what no machine can do.

Seconds compare tasks, stages and groups with one another. How long they take on a machine, only
measurements tell, for which see `bdl.execution.estimate`.

Memory counts what grows: the states of the fits that train together, three times over; the outputs
of their layers; the normals of an update; the data.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from bdl import runtime
from bdl.errors import InputError
from bdl.methods.base import ExternalMethod
from bdl.models.base import LayeredModel
from bdl.models.problem import Problem
from bdl.plan.task import Task
from bdl.plan.workload import (
    build_schedule,
    count_batches_per_step,
    count_fits,
    count_fits_per_batch,
    count_stage_updates,
    count_update_numbers,
    is_stage_compiled,
)
from bdl.records.row import STAGES, Stage
from bdl.training.updates import estimate_update_seconds

TaskSplitCount = tuple[Task, int]
"""A task, and how many of its splits are meant."""

_SECONDS_PER_YEAR = 365.25 * 24 * 3600.0
_PROCESS_BYTES = 600_000_000
"""Bytes that a process takes besides its data: the interpreter, PyTorch, its compiler, compiled
code and figures.
"""
ROW_BYTES = 2000
"""Bytes that a row takes in the store, in memory and where it is published."""
_SECONDS_PER_NUMBER, _SECONDS_PER_UPDATE = 5e-9, 6e-4
"""Seconds that an update takes at the least: for each number that it goes through, and for each
group of fits.
"""
# Measured on two cores while predicting: a number that is drawn; a parameter of a sample times a
# row.
_SECONDS_PER_DRAW, _SECONDS_PER_PRODUCT = 2e-8, 1e-9
_FASTEST_SCORING_FACTOR = 5
"""Predictions take a fifth of the estimate at the least."""
_MAX_ALLOCATED_NUMBERS = 1_000_000
"""Numbers up to which a state is allocated to be counted; for shapes alone PyTorch imports its
compiler, for a second.
"""


def estimate_fit_seconds(task: Task, updates: float, width: int, compiled: bool) -> float:
    """Estimate the share of a fit in the seconds of its group, by the numbers of its updates.

    `width` fits train side by side. A fit without updates counts as one update.
    """
    # streams are learnt from in blocks, which are not shared
    sharing_fits = 1 if task.settings.streams else width
    update_seconds = estimate_update_seconds(sharing_fits * count_update_numbers(task), compiled)
    return max(updates, 1.0) * update_seconds / sharing_fits


def estimate_batch_work(task: Task, stage: Stage) -> int:
    """Estimate the work of a model-minibatch in units of progress, about a nanosecond each."""
    seconds = estimate_fit_seconds(
        task, 1, count_fits_per_batch(task, stage), is_stage_compiled(task, stage)
    )
    return max(1, round(1e9 * seconds / count_batches_per_step(task)))


def estimate_work(task: Task, search_fits: int, final_fits: int) -> int:
    """Estimate the work of so many fits of each stage, in units of progress."""
    counts: dict[Stage, int] = {"search": search_fits, "final": final_fits}
    work = 0
    for stage, count in counts.items():
        if count:
            work += count * count_stage_updates(task, stage) * estimate_batch_work(task, stage)
    return work * count_batches_per_step(task)


def estimate_scoring_seconds(task: Task, stage: Stage) -> float:
    """Estimate the seconds of predicting the test rows of one fit, or the rows of a fold."""
    search, metrics = task.settings.search, task.benchmark.metrics
    predicts = stage == "search" or any(metric.info.kind == "predictive" for metric in metrics)
    if task.settings.streams or not predicts:
        return 0.0
    split = task.data.split(task.splits[0])
    rows = len(split.test)
    if stage == "search" and search:
        rows = len(split.validation) if search.folds == 1 else len(split.train) // search.folds
    return (
        task.benchmark.evaluation_of(task.entry).samples
        * float(task.problem.dim)
        * (_SECONDS_PER_DRAW + rows * _SECONDS_PER_PRODUCT)
    )


def check_sizes(task_counts: Sequence[TaskSplitCount], jobs: int) -> None:
    """Refuse tasks that need more memory than is available, or more than a year.

    The message has the number.
    """
    available = runtime.available_memory()
    for task, count in task_counts:
        needed = _PROCESS_BYTES + estimate_group_memory(task, count)
        if task.device == "cpu" and needed > available:
            raise InputError(
                f"entries.{task.entry}: on {task.dataset} {count:,} splits, with "
                f"{_count_concurrent_fits(task, count):,} fits side by "
                f"side of {_count_dimensions(task):,} parameters, need about "
                f"{runtime.format_bytes(needed)} of memory, and "
                f"{runtime.format_bytes(available)} are available; "
                "make the model, the settings or the splits smaller"
            )
    # after each task by itself, whose message can name it
    needed = estimate_memory(task_counts, jobs)
    if needed > available and jobs > 1:
        raise InputError(
            f"--jobs {jobs}: so many processes need about {runtime.format_bytes(needed)} of "
            f"memory, and {runtime.format_bytes(available)} are available; choose fewer"
        )
    years = {
        f"{task.dataset}/{task.entry}": estimate_min_seconds(task, count) / _SECONDS_PER_YEAR
        for task, count in task_counts
    }
    total = sum(years.values())
    if total > 1:
        longest = max(years, key=lambda label: years[label])
        raise InputError(
            f"this would take {total:.2g} years of this machine at the least, "
            f"{years[longest]:.2g} of them for "
            f"{longest}; lower epochs, samples, trials or --splits"
        )


def estimate_memory(task_counts: Iterable[TaskSplitCount], jobs: int) -> int:
    """Estimate the peak of memory in bytes.

    Each of so many processes holds the largest group; with several, one more waits for them.
    """
    largest = max((estimate_group_memory(task, count) for task, count in task_counts), default=0)
    # the calling process trains nothing where there are several: it has no group
    return jobs * (_PROCESS_BYTES + largest) + (_PROCESS_BYTES if jobs > 1 else 0)


def count_possible_jobs(task_counts: Sequence[TaskSplitCount]) -> int:
    """Count the processes that cores and memory allow, one at least."""
    largest = max((estimate_group_memory(task, count) for task, count in task_counts), default=0)
    memory_jobs = (runtime.available_memory() - _PROCESS_BYTES) // (_PROCESS_BYTES + largest)
    return max(1, min(runtime.available_cores(), memory_jobs))


def estimate_group_memory(task: Task, splits: int) -> int:
    """Estimate the bytes of the largest group of a task, of its data, and of published rows."""
    rows = splits * sum(count_fits(task, stage) for stage in STAGES)
    # twice: one copy is on the device
    data = 0 if task.settings.streams else 2 * (task.data.x.nbytes + task.data.y.nbytes)
    fits = _count_concurrent_fits(task, splits) * _estimate_fit_memory(task)
    return data + fits + rows * ROW_BYTES


def estimate_min_seconds(task: Task, splits: int) -> float:
    """Estimate the shortest time of a task: all cores put to use, and everything compiled."""
    total = 0.0
    for stage in STAGES:
        count = splits * count_fits(task, stage)
        if count:
            updates = 0 if task.settings.direct else count_stage_updates(task, stage)
            per_fit = updates * (
                _SECONDS_PER_UPDATE / count_fits_per_batch(task, stage)
                + _SECONDS_PER_NUMBER * count_update_numbers(task)
            )
            scoring = estimate_scoring_seconds(task, stage) / _FASTEST_SCORING_FACTOR
            total += count * (per_fit + scoring)
    return total / runtime.available_cores()


def _count_concurrent_fits(task: Task, splits: int) -> int:
    if task.settings.streams:
        return splits
    return max(count_fits_per_batch(task, stage) for stage in STAGES)


def _estimate_fit_memory(task: Task) -> int:
    schedule = build_schedule(task)
    if schedule is None:
        method = task.settings.method.build()
        draws = method.draws if isinstance(method, ExternalMethod) else 0
        return 3 * count_state_bytes(task) + 8 * draws * _count_dimensions(task)
    size = 8 if schedule.dtype == "float64" else 4
    problem = task.problem
    layers = (
        sum(problem.model.widths(problem.d_in, problem.d_out))
        if isinstance(problem.model, LayeredModel)
        else 0
    )
    rows = min(schedule.batch_size, len(task.data.y)) * count_batches_per_step(task)
    numbers = rows * max(layers, problem.widest) + count_update_numbers(task)
    return 3 * count_state_bytes(task) + 2 * size * numbers


def count_state_bytes(task: Task) -> int:
    """Count the bytes that the state of one fit holds.

    A large state is counted by the shapes of its tensors.
    """
    if task.settings.direct:
        return 8 * _count_dimensions(task)
    target = task.stream.dim if task.settings.streams else task.problem
    training = task.settings.training
    size = 8 if training and training.dtype == "float64" else 4
    # A state may depend on values, which shapes alone do not have; and a state that cannot be
    # made at all is refused later, with a reason.
    with suppress(Exception):
        return _count_shaped_bytes(task.settings.method.build(), target, size)
    return 16 * _count_dimensions(task)


@lru_cache(maxsize=1024)
def _count_shaped_bytes(method: Any, target: Problem | int, size: int) -> int:
    """Count the bytes of a state, with `size` bytes a number.

    The target is a problem, or the number of parameters of a stream.
    """
    if not isinstance(target, int):
        target.buffers()  # cached with the model: they must not be made of shapes alone
    shapes: Mapping[str, Sequence[int]] = method.init_noise(target)
    allocates = _bound_state_numbers(method, target) <= _MAX_ALLOCATED_NUMBERS
    with torch.device("cpu" if allocates else "meta"):
        noise = {name: torch.zeros(shape) for name, shape in shapes.items()}
        state = method.init(noise) if isinstance(target, int) else method.init(target, noise)
    return size * sum(
        prod(leaf.shape) for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)
    )


def _bound_state_numbers(method: Any, target: Problem | int) -> int:
    """Return an upper bound of the numbers of a state.

    It has as many vectors as parameters, or as the counts among the settings multiplied.
    """
    dim = target if isinstance(target, int) else target.dim
    counts = 1
    for value in vars(method).values():
        if isinstance(value, int) and value > 1:
            counts *= value
    return dim * max(dim, counts)


def _count_dimensions(task: Task) -> int:
    return task.stream.dim if task.settings.streams else task.problem.dim
