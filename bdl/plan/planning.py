"""Laying out what a command will do; what cannot work is refused before anything is written."""

import operator
import re
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch

from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod, StreamMethod
from bdl.models import LIKELIHOODS
from bdl.plan import Cell
from bdl.plan.initial_check import check_sizes
from bdl.plan.programs import updates
from bdl.spec import Benchmark


def check(cell: Cell) -> None:
    """Refuse what cannot work: no such split, too few rows, a likelihood, metric or method that does not fit."""
    if cell.settings.streams:
        _check_stream(cell)
        return
    sizes = [len(cell.data.split(split).train) for split in cell.splits]
    _check_task(cell)
    _check_hyper(cell)
    method = cell.settings.method.build()
    if not method.missing:  # whether fits are made at all is for the run to say
        method.check(cell.problem)
    if cell.settings.reference is not None:
        cell.settings.reference.build().check(cell.problem)
    if cell.settings.direct and cell.problem.buffers():
        raise InputError(
            f"entries.{cell.entry}: method '{cell.settings.method.name}' gathers no running statistics; "
            "use batch_norm: recompute"
        )
    warmup = method.idle_epochs if isinstance(method, MinibatchMethod) else 0
    if cell.settings.training and cell.settings.training.epochs <= warmup:
        raise InputError(
            f"entries.{cell.entry}.training.epochs: {cell.settings.training.epochs} epochs leave nothing after a "
            f"warm-up of {warmup}; raise epochs or lower warmup_epochs"
        )
    _check_rows(cell, sizes)


def _check_rows(cell: Cell, sizes: Sequence[int]) -> None:
    """Refuse too few training rows for the folds, or for one update, and a search by validation rows without any."""
    search = cell.settings.search
    for rows in sizes:
        if search is not None and search.folds > rows:
            raise InputError(
                f"entries.{cell.entry}.search.folds: {search.folds} folds but {cell.dataset} has {rows} "
                f"training rows; choose at most {rows}"
            )
        smallest = rows if search is None else search.training_rows(rows)
        if cell.settings.training and updates(cell, smallest) == 0:
            raise InputError(
                f"entries.{cell.entry}.training: no update fits into {smallest} rows of {cell.dataset}; "
                "lower batch_size or raise epochs"
            )
    by_rows = search is not None and search.folds == 1 and search.metric.info.kind == "predictive"
    if by_rows and any(not len(cell.data.split(split).validation) for split in cell.splits):
        raise InputError(
            f"entries.{cell.entry}.search.folds: 1 stands for the validation rows of a split, and {cell.dataset} has "
            "none; choose 2 folds or more, or a score of the posterior"
        )


def _check_stream(cell: Cell) -> None:
    if cell.device != "cpu":
        raise InputError(
            f"--device {cell.device}: methods that learn from a stream run on the CPU; use --device cpu"
        )
    if scores := [
        metric
        for metric in cell.benchmark.metrics
        if metric.info.kind in ("predictive", "posterior")
    ]:
        raise InputError(
            f"metrics: a stream has a distribution, but no targets for '{scores[0]}'; use distances"
        )
    for split in cell.splits:
        cell.stream.check(split)
    cast(StreamMethod, cell.settings.method.build()).check_dim(cell.stream.dim)
    record = cell.benchmark.record_of(cell.dataset, cell.entry)
    if record is not None and cell.stream.length < record.first:
        raise InputError(
            f"preparation.rows.{cell.dataset}: the first look at a stream is after {record.first} observations; "
            "give at least so many"
        )


def _check_task(cell: Cell) -> None:
    data, likelihood, search = cell.data, cell.settings.likelihood, cell.settings.search
    if likelihood and not likelihood.build().fits(data.classes):
        targets = f"has {data.classes} classes" if data.classes else "is a regression"
        fitting = [
            name for name in LIKELIHOODS.builtin if LIKELIHOODS.get(name)().fits(data.classes)
        ]
        raise InputError(
            f"entries.{cell.entry}.likelihood: '{likelihood.name}' does not fit dataset '{cell.dataset}', which "
            f"{targets}; use {' or '.join(fitting)}"
        )
    used = [("metrics", name) for name in cell.benchmark.metrics]
    used += [(f"entries.{cell.entry}.search.metric", search.metric)] if search else []
    for place, metric in used:
        if metric.info.task not in (None, data.task):
            raise InputError(
                f"{place}: '{metric}' scores a {metric.info.task}, and dataset '{cell.dataset}' is a {data.task}; "
                "use another metric"
            )
    predictive = [metric for metric in cell.benchmark.metrics if metric.info.kind == "predictive"]
    if predictive and any(len(data.split(split).test) == 0 for split in cell.splits):
        raise InputError(
            f"metrics: '{predictive[0]}' scores predictions, and dataset '{cell.dataset}' has no test rows; use "
            "metrics of the posterior"
        )


def _check_hyper(cell: Cell) -> None:
    """Hold values and ranges against the limits that components may state, `hyper_below` and `hyper_above`."""
    search, problem = cell.settings.search, cell.problem
    components = (cell.settings.method.build(), problem.prior, problem.likelihood)
    least = {f"hyper.{name}": (name, value) for name, value in cell.settings.hyper.items()}
    most = dict(least)
    if search:
        most |= {f"search.space.{name}.high": (name, at.high) for name, at in search.space.items()}
        most |= {
            f"search.grid.{name}": (name, max(values)) for name, values in search.grid.items()
        }
        least |= {f"search.space.{name}.low": (name, at.low) for name, at in search.space.items()}
        least |= {
            f"search.grid.{name}": (name, min(values)) for name, values in search.grid.items()
        }
    limited = (("below", "large", most, operator.ge), ("above", "small", least, operator.le))
    for side, size, given, violates in limited:
        limits = {
            name: own
            for part in components
            for name, own in getattr(part, f"hyper_{side}", {}).items()
        }
        for place, (name, value) in given.items():
            if name in limits and violates(value, limits[name]):
                raise InputError(
                    f"entries.{cell.entry}.{place}: {value:g} is too {size}; choose a value {side} {limits[name]:g}"
                )


def check_device(device: str) -> None:
    """Raise `InputError` if the machine has no such device."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise InputError(f"--device {device}: use cpu, cuda or cuda:N")
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise InputError(f"--device {device}: PyTorch finds no CUDA device here; use --device cpu")
    if (torch.device(device).index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"--device {device}: there are {torch.cuda.device_count()} CUDA devices, counted from 0"
        )


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

    `InputError` if the device or data are missing, a cell cannot work, or the whole is too large
    for the machine.
    """
    check_device(device)
    check_sizes(first_of(benchmark, splits, device), jobs)
    if benchmark.splits > _MOST:  # though few of them are asked for
        raise InputError(
            f"splits: {benchmark.splits:,} are more than can be listed: say {_MOST:,} at most"
        )
    cells = [
        replace(cell, splits=tuple(own), device=device, compile=compile)
        for cell in _each(benchmark)
        if (own := _there(cell, splits))
    ]
    if not cells:
        numbers = ", ".join(f"{split}" for split in splits)
        raise InputError(
            f"no data set that is chosen has a split {numbers}: choose a smaller number"
        )
    for cell in cells:
        check(cell)
    return cells


def cells_of(benchmark: Benchmark) -> list[Cell]:
    """List all cells of a benchmark with all their splits, in table order, unchecked."""
    return [cell.with_splits(cell.benchmark.splits_of(cell.dataset)) for cell in _each(benchmark)]


def first_of(
    benchmark: Benchmark, splits: Sequence[int], device: str = "cpu"
) -> list[tuple[Cell, int]]:
    """List all cells with their first split alone, and how many splits of each are meant.

    However many splits a benchmark has, they are not listed.
    """
    counted = [(cell, len(_there(cell, splits))) for cell in _each(benchmark)]
    return [
        (replace(cell, splits=(splits[0],), device=device), count)
        for cell, count in counted
        if count
    ]


def _there(cell: Cell, splits: Sequence[int]) -> Sequence[int]:
    """Select those of some splits, in ascending order, that the data set has where it has fewer than others."""
    return splits[
        : bisect_left(splits, cell.benchmark.preparation.splits.get(cell.dataset, sys.maxsize))
    ]


def _each(benchmark: Benchmark) -> Iterator[Cell]:
    """Yield the cells without splits."""
    at = {point.text: benchmark.at(point) for point in benchmark.points}
    for dataset, entry, point in benchmark.cells:
        own = at[point.text]
        # the label of the data set is the same at all points, its settings may not be
        yield Cell(own, own.dataset(dataset), entry, (), point)


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
