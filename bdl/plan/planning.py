"""Laying out what a command will do."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.checks import check, check_device
from bdl.plan.sizes import check_sizes
from bdl.spec import Benchmark

_MOST = 1_000_000
"""Splits of a benchmark."""


def plan(
    benchmark: Benchmark,
    *,
    splits: Sequence[int],
    device: str = "cpu",
    compile: bool | None = None,
    jobs: int = 1,
) -> list[Cell]:
    """Lay out the cells of a run, in the order of the spec, and check each.

    Raises
    ------
    InputError
        If the device or data are missing, a cell cannot work, or the whole is too large for the machine.
    """
    check_device(device)
    check_sizes(first_of(benchmark, splits, device), jobs)
    if benchmark.splits > _MOST:  # though few of them are asked for
        raise InputError(f"splits: {benchmark.splits:,} are more than can be listed: say {_MOST:,} at most")
    every = [
        replace(cell, splits=_existing(cell, splits), device=device, compile=compile) for cell in cells_of(benchmark)
    ]
    cells = [cell for cell in every if cell.splits]
    if not cells:
        numbers = ", ".join(f"{split}" for split in splits)
        raise InputError(f"no data set that is chosen has a split {numbers}: choose a smaller number")
    for cell in cells:
        check(cell)
    return cells


def cells_of(benchmark: Benchmark) -> list[Cell]:
    """List all cells of a benchmark with all their splits, in table order, unchecked."""
    return [cell.with_splits(tuple(cell.benchmark.splits_of(cell.dataset))) for cell in _each(benchmark)]


def first_of(benchmark: Benchmark, splits: Sequence[int], device: str = "cpu") -> list[tuple[Cell, int]]:
    """List all cells with their first split alone, and how many splits of each are meant.

    However many splits a benchmark has, they are not listed.
    """
    found = []
    for cell in _each(benchmark):
        limit = cell.benchmark.preparation.splits.get(cell.dataset)
        count = len(splits) if limit is None else sum(split < limit for split in islice(splits, limit))
        found.append((replace(cell, splits=(splits[0],), device=device), count))
    return [(cell, count) for cell, count in found if count]


def _each(benchmark: Benchmark) -> list[Cell]:
    """List the cells without splits."""
    at = {point.text: benchmark.at(point) for point in benchmark.points}
    return [
        # the label of the data set is the same at all points, its settings may not be
        Cell(own, own.dataset(dataset), entry, (), point)
        for dataset, entry, point in benchmark.cells
        for own in (at[point.text],)
    ]


def _existing(cell: Cell, splits: Sequence[int]) -> tuple[int, ...]:
    """Leave out the splits that a data set lacks, where the benchmark says that it has fewer than others."""
    limit = cell.benchmark.preparation.splits.get(cell.dataset)
    return tuple(split for split in splits if limit is None or split < limit)


def together(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Put together the cells that run as one: those of an entry whose streams differ in their spectrum alone."""
    batches: dict[object, list[Cell]] = {}
    for cell in cells:
        alike = cell.settings.streams and (
            *(cell.entry, cell.settings.method.build()),
            replace(cell.stream, top=1),
        )
        batches.setdefault(alike or cell, []).append(cell)
    return list(batches.values())
