"""What the trials of a cell are trained by."""

from collections.abc import Mapping, Sequence
from typing import cast

from bdl.methods.base import StreamMethod
from bdl.plan.cell import Cell
from bdl.plan.slot_batches import least, slot_rows
from bdl.training.fitting import EvaluationSchedule, Fitting
from bdl.training.program import Program
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch
from bdl.training.streaming import StreamFitting, StreamTrial
from bdl.training.trials import Pool

Member = tuple[Cell, int]
"""A cell, and one of its splits."""


def schedule(cell: Cell) -> Schedule | None:
    """Return the entry's schedule; None for a method without minibatches."""
    return cell.settings.training.build() if cell.settings.training else None


def evaluations(cell: Cell) -> EvaluationSchedule | None:
    """Describe when fits of the cell are looked at while they run; None for at their end alone."""
    record = cell.benchmark.record_of(cell.dataset, cell.entry)
    return None if record is None else EvaluationSchedule(record.unit, record.every, record.log, record.first)


def program(cell: Cell) -> Program:
    """Make what the trials share, with the data on the device."""
    plan = schedule(cell)
    return Program(
        dataset=cell.data,
        pool=Pool.load(cell.data, cell.device, plan.dtype if plan else "float32"),
        problem=cell.problem,
        method=cell.settings.method.build(),
        schedule=plan,
        samples=cell.benchmark.evaluation_of(cell.entry).samples,
    )


def final_fitting(members: Sequence[Member], hyper: Sequence[Mapping[str, float]], compile: bool) -> Fitting:
    """Make the fitting of the chosen settings on all training rows.

    Parameters
    ----------
    members
        Splits of one slot batch of a cell; or of several cells whose streams are learnt from as one batch, those of a
        split side by side.
    hyper
        Setting of each.
    compile
        Whether what is trained is compiled.
    """
    cell = members[0][0]
    if cell.settings.streams:
        return StreamFitting(
            cast(StreamMethod, cell.settings.method.build()),
            [StreamTrial(own.stream, split, own.benchmark.seed + split + 1) for own, split in members],
        )
    shared = program(cell)
    splits = [split for _, split in members]
    identities = [(*cell.identity, split, "final") for split in splits]
    trials = shared.trials(identities, [cell.rows(split).train for split in splits], hyper)
    if shared.schedule is None:
        return shared.fitting(trials, asked=[cell.rows(split).test for split in splits])
    rows = slot_rows(cell, "final", splits[0])
    places = [list(rows).index(split) for split in splits]
    return shared.fitting(trials, compile=compile, slot_batch=SlotBatch(list(rows.values()), places, least(cell)))
