"""Laying out what a command will do."""

from collections.abc import Sequence
from dataclasses import replace

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.checks import check, check_device
from bdl.spec import Benchmark


def plan(
    benchmark: Benchmark,
    *,
    splits: Sequence[int],
    device: str = "cpu",
    compile: bool | None = None,
) -> list[Cell]:
    """Lay out the cells of a run, in the order of the spec, and check each.

    Raises
    ------
    InputError
        If the device or data are missing, or a cell cannot work.
    """
    check_device(device)
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
    at = {point.text: benchmark.at(point) for point in benchmark.points}
    return [
        # the label of the data set is the same at all points, its settings may not be
        Cell(own, own.dataset(dataset), entry, tuple(own.splits_of(dataset)), point)
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
