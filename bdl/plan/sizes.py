"""Refuse sizes that no machine can do before a run starts: memory and years of time.

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
from bdl.plan import Task
from bdl.plan.workload import (
    build_schedule,
    count_batches_per_step,
    count_fits,
    count_fits_per_batch,
    count_stage_updates,
    count_update_numbers,
    estimate_scoring_seconds,
)
from bdl.store import STAGES

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
_FASTEST_SCORING_FACTOR = 5
"""Predictions take a fifth of the estimate at the least."""
_MAX_ALLOCATED_NUMBERS = 1_000_000
"""Numbers up to which a state is allocated to be counted; for shapes alone PyTorch imports its
compiler, for a second.
"""


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
    return dim * max(
        dim, prod(value for value in vars(method).values() if isinstance(value, int) and value > 1)
    )


def _count_dimensions(task: Task) -> int:
    return task.stream.dim if task.settings.streams else task.problem.dim
