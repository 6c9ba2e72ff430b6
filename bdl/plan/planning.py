"""Lay out the tasks of a command."""

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bdl.errors import InputError
from bdl.plan.task import Task, forget_loaded_data
from bdl.spec import Benchmark
from bdl.spec.request import MAX_SPLITS


def plan_tasks(
    benchmark: Benchmark,
    *,
    splits: Sequence[int],
    device: str = "cpu",
    compile: bool | None = None,
    jobs: int = 1,
) -> list[Task]:
    """Lay out the tasks of a run, in the order of the spec, and check each.

    `InputError` if the device or data are missing, a task cannot work, or the run is too large
    for the machine.
    """
    # with PyTorch, which those do without who only list tasks
    from bdl.plan.cost import check_sizes
    from bdl.plan.task_checks import check_device, check_task

    check_device(device)
    # a program may run a benchmark again after its files have changed
    forget_loaded_data()
    # before tasks are made with their splits: a size that nobody means would exhaust memory here
    check_sizes(list_first_splits(benchmark, splits, device), jobs)
    if benchmark.splits > MAX_SPLITS:  # even if few of them are run: others would list them all
        raise InputError(
            f"splits: {benchmark.splits:,} are more than can be listed: say {MAX_SPLITS:,} at most"
        )
    tasks = []
    for task in _iterate_tasks(benchmark):
        task_splits = tuple(_select_existing_splits(task, splits))
        if task_splits:
            tasks.append(replace(task, splits=task_splits, device=device, compile=compile))
    if not tasks:
        numbers = ", ".join(f"{split}" for split in splits)
        raise InputError(
            f"no data set that is chosen has a split {numbers}: choose a smaller number"
        )
    for task in tasks:
        check_task(task)
    return tasks


def list_tasks(benchmark: Benchmark) -> list[Task]:
    """List all tasks of a benchmark with all their splits, in table order, unchecked."""
    return [
        task.with_splits(task.benchmark.splits_of(task.dataset))
        for task in _iterate_tasks(benchmark)
    ]


def list_first_splits(
    benchmark: Benchmark, splits: Sequence[int], device: str = "cpu"
) -> list[tuple[Task, int]]:
    """List all tasks with their first split alone, and how many splits of each are meant.

    However many splits a benchmark has, they are not listed.
    """
    task_counts = []
    for task in _iterate_tasks(benchmark):
        count = len(_select_existing_splits(task, splits))
        if count:
            task_counts.append((replace(task, splits=(splits[0],), device=device), count))
    return task_counts


def _select_existing_splits(task: Task, splits: Sequence[int]) -> Sequence[int]:
    """Select, of some splits in ascending order, those that the data set has."""
    count = task.benchmark.preparation.splits.get(task.dataset, sys.maxsize)
    return splits[: bisect_left(splits, count)]


def _iterate_tasks(benchmark: Benchmark) -> Iterator[Task]:
    """Yield the tasks without splits."""
    benchmarks = {point.text: benchmark.at(point) for point in benchmark.points}
    for label, entry, point in benchmark.cells:
        point_benchmark = benchmarks[point.text]
        # The label of a data set is the same at all points; its settings may not be.
        yield Task(point_benchmark, point_benchmark.dataset(label), entry, (), point)


def group_tasks(tasks: Sequence[Task]) -> list[list[Task]]:
    """Group the tasks that run as one.

    These are the tasks of an entry whose streams differ in their spectrum alone; any other task
    is a group by itself.
    """
    groups: dict[object, list[Task]] = {}
    for task in tasks:
        key: object = task
        if task.settings.streams:
            # a stream's draws depend on all of its settings but the spectrum, which scales them
            key = (task.entry, task.settings.method.build(), replace(task.stream, top=1))
        groups.setdefault(key, []).append(task)
    return list(groups.values())
