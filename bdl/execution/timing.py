"""Times a few updates of cells of which nothing is known yet."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice

import torch

from bdl.execution.estimate import Left, Measured
from bdl.plan.cell import Cell
from bdl.plan.initial_check import ends
from bdl.plan.programs import final_fitting, rough_seconds, updates_of, width
from bdl.training.fitting import EvaluationSchedule
from bdl.training.traced import at_once

_UPDATES = 3
"""Updates of a cell, the first of which also prepares the others."""
_LONG = 60.0
"""Seconds of updates without a trace from which on it is worth while to time them with one."""
_BLOCK = 1000
"""Observations of a stream."""


def time_updates(left: Sequence[Left], known: Collection[Measured], seconds: float) -> list[Measured]:
    """Time updates of cells that lack earlier fits, those with most work first.

    Parameters
    ----------
    left
        What each cell still needs.
    known
        What earlier fits took.
    seconds
        No cell is begun after so many; the first always is.

    Returns
    -------
    list of Measured
        An update of each cell that was timed, not compiled. A method without updates is not timed.
    """
    there = {(one.cell, one.stage, one.device) for one in known}
    alike: dict[object, list[Left]] = {}
    for own in left:
        stages = [stage for stage in ("search", "final") if own.fits(stage)]
        if any((own.cell.key, stage, own.cell.device) not in there for stage in stages) and _has_updates(own.cell):
            alike.setdefault(_kind(own.cell), []).append(own)
    found, end = list[Measured](), time.perf_counter() + seconds
    for kind in sorted(alike.values(), key=lambda kind: -sum(map(_work, kind))):
        # an error has its reason in the run itself; a generator of many normals would be compiled for ten seconds
        with suppress(Exception), torch.compiler.set_stance("force_eager"):
            each = min(_updates(kind[0].cell))
            if each * sum(map(_total_updates, kind)) > _LONG:
                with at_once():
                    each = min(each, *_updates(kind[0].cell))
            found += [_measured(own.cell, each) for own in kind]
        if time.perf_counter() > end:
            break
    return found


def _has_updates(cell: Cell) -> bool:
    return cell.settings.streams or cell.settings.training is not None


def _kind(cell: Cell) -> object:
    """Return what cells have in common whose updates take equally long."""
    method, training = cell.settings.method.build(), cell.settings.training
    if training is None:
        return method, cell.stream.dim
    return method, cell.problem, training.model_dump_json(), width(cell, "final"), cell.device


def _work(own: Left) -> float:
    cell = own.cell
    return sum(
        own.fits(stage) * rough_seconds(cell, updates_of(cell, stage), width(cell, stage), False)
        for stage in ("search", "final")
    )


def _total_updates(own: Left) -> float:
    cell = own.cell
    return sum(own.fits(stage) * updates_of(cell, stage) / width(cell, stage) for stage in ("search", "final"))


def _measured(cell: Cell, seconds: float) -> Measured:
    at_once = 1 if cell.settings.streams else width(cell, "final")
    return Measured(cell.key, "final", seconds / at_once, 1, at_once, cell.device, False, "timed updates")


def _updates(cell: Cell) -> Iterator[float]:
    """Yield the seconds of an update of the first slot batch of a cell, at the lower ends of what is searched."""
    hyper = {**ends(cell)[0], **dict.fromkeys(cell.settings.from_reference, 1.0)}
    schedule = EvaluationSchedule("observations", _BLOCK) if cell.settings.streams else EvaluationSchedule("updates", 1)
    fitting = final_fitting([(cell, cell.splits[0])], [hyper], compile=False)
    start, done = time.perf_counter(), 0
    for snapshot in islice(fitting.run(schedule), _UPDATES):
        now = time.perf_counter()
        yield (now - start) / (snapshot.counters.updates - done)
        start, done = now, snapshot.counters.updates
