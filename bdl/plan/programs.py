"""What the trials of a cell are trained by: slot batches of splits side by side, programs, and how much work that is.

See `bdl.training.slots` for what that is good for. Batches are wide enough for the launches of
kernels to weigh little, and no wider than that, so that one split by itself costs little more than
its share.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import cast

from bdl.methods.base import MinibatchMethod, StreamMethod
from bdl.models.base import LayeredModel
from bdl.models.modules import Module
from bdl.models.problem import Problem
from bdl.plan import Cell
from bdl.store import Stage
from bdl.training.fitting import EvaluationSchedule, Fitting
from bdl.training.program import Program
from bdl.training.programs import update_seconds, worthwhile
from bdl.training.schedule import Schedule
from bdl.training.slots import NUMBERS, SlotBatch
from bdl.training.streaming import StreamFitting, StreamTrial
from bdl.training.trials import Pool

_MANY = 32
"""Fits of a search from which a split is a slot batch of its own: launches of kernels weigh
little by then.
"""


def slot_batch(cell: Cell, stage: Stage, split: int) -> range:
    """Return the splits that have places beside a split, itself among them.

    The last slot batch has as many as the others: splits that do not exist keep slots. Where
    nothing trains side by side, all splits are one slot_batch.
    """
    count = side_by_side(cell, stage)
    first = split // count * count
    return range(first, first + count)


def slot_rows(cell: Cell, stage: Stage, split: int) -> dict[int, int]:
    """Count the training rows of each split of a slot batch.

    One that does not exist has those of the last.
    """
    last, rows = splits_of(cell) - 1, cell.rows if stage == "final" else cell.data.split
    return {own: len(rows(min(own, last)).train) for own in slot_batch(cell, stage, split)}


def side_by_side(cell: Cell, stage: Stage) -> int:
    """Count the splits of a batch.

    One where many settings of a search go together, which fill the cache of a CPU.
    """
    splits, training, search = splits_of(cell), cell.settings.training, cell.settings.search
    if training is None:
        return 1 if search or cell.settings.limited else splits
    at_once = fits_of_split(cell, stage)
    together = (
        stage == "search"
        and search
        and cell.device == "cpu"
        and at_once == search.trials * search.folds
    )
    if together and at_once >= _MANY:
        return 1
    widest = max(least(cell), NUMBERS[cell.device] // (at_once * _numbers(cell)))
    slot_batches = -(-splits // widest)
    return -(-splits // slot_batches)


def least(cell: Cell) -> int:
    """Count the slots of a batch at the least: one on a GPU and for a fit larger than a batch should be, else two."""
    alone = cell.device == "cuda" or (
        cell.settings.training and _numbers(cell) > NUMBERS[cell.device]
    )
    return 1 if alone else 2


def _numbers(cell: Cell) -> int:
    """Count the numbers that an update of one fit goes through, what layers put out and minibatches among them."""
    training, problem = cell.settings.training, cell.problem
    assert training is not None, "asked of minibatch methods"
    if problem.dim == 0:  # of a likelihood that does not fit the data, which is told later
        return 1
    given = batches_per_step(cell) * training.batch_size * problem.d_in
    return max(
        given,
        load(cell) * max(problem.dim, _put_out(problem) * training.batch_size) // problem.dim,
    )


@lru_cache(maxsize=1024)
def _put_out(problem: Problem) -> int:
    """Count the values that the widest layer puts out for one row.

    Inputs are one for all samples of a fit.
    """
    model = problem.model
    if isinstance(model, LayeredModel):  # slow to find out
        return max(model.widths(problem.d_in, problem.d_out)[1:])
    return problem.widest


def fits_of_split(cell: Cell, stage: Stage) -> int:
    """Count the fits of a split that train side by side: one, or the folds of the settings of a round."""
    from bdl.search import per_round  # whose sampler is heavy, and tables do without

    search = cell.settings.search
    return 1 if stage == "final" or search is None else search.folds * per_round(search)


def load(cell: Cell) -> int:
    """Count the numbers that an update of one fit goes through: parameters of its minibatches, or its normals."""
    if cell.settings.streams:
        return cell.stream.dim
    method = cell.settings.method.build()
    if not isinstance(method, MinibatchMethod):
        return cell.problem.dim
    noise = method.step_noise(cell.problem)
    return max(method.batches_per_step * cell.problem.dim, sum(map(prod, noise.values())))


def batches_per_step(cell: Cell) -> int:
    """Count the minibatches of an update; 1 for a method that has none."""
    method = cell.settings.method.build()
    return method.batches_per_step if isinstance(method, MinibatchMethod) else 1


def splits_of(cell: Cell) -> int:
    """Count the splits that the spec lists and the data set has."""
    there = (cell.stream if cell.settings.streams else cell.data).splits
    listed = cell.benchmark.splits_of(cell.dataset).stop
    return listed if there is None else min(listed, there)


Member = tuple[Cell, int]
"""A cell, and one of its splits."""


def schedule(cell: Cell) -> Schedule | None:
    """Return the entry's schedule; None for a method without minibatches."""
    return cell.settings.training.build() if cell.settings.training else None


def evaluations(cell: Cell) -> EvaluationSchedule | None:
    """Describe when fits of the cell are looked at while they run; None for at their end alone."""
    record = cell.benchmark.record_of(cell.dataset, cell.entry)
    return (
        None
        if record is None
        else EvaluationSchedule(record.unit, record.every, record.log, record.first)
    )


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


def final_fitting(
    members: Sequence[Member],
    hyper: Sequence[Mapping[str, float]],
    compile: bool,
    *,
    alone: bool = False,
) -> Fitting:
    """Make the fitting of the chosen settings, one a member, on all training rows.

    Members are splits of one slot batch of a cell, or `alone` and of none; or of several cells
    whose streams are learnt from as one batch, those of a split side by side.
    """
    cell = members[0][0]
    if cell.settings.streams:
        return StreamFitting(
            cast(StreamMethod, cell.settings.method.build()),
            [
                StreamTrial(own.stream, split, own.benchmark.seed + split + 1)
                for own, split in members
            ],
        )
    shared = program(cell)
    splits = [split for _, split in members]
    identities = [(*cell.identity, split, "final") for split in splits]
    trials = shared.trials(identities, [cell.rows(split).train for split in splits], hyper)
    if shared.schedule is None:
        return shared.fitting(trials, asked=[cell.rows(split).test for split in splits])
    if alone:
        return shared.fitting(trials, compile=compile)
    rows = slot_rows(cell, "final", splits[0])
    places = [list(rows).index(split) for split in splits]
    return shared.fitting(
        trials, compile=compile, slot_batch=SlotBatch(list(rows.values()), places, least(cell))
    )


def updates(cell: Cell, rows: int) -> int:
    """Count the updates of one fit on so many rows."""
    plan = schedule(cell)
    return 0 if plan is None else plan.updates(rows, batches_per_step(cell))


def fits(cell: Cell, stage: Stage) -> int:
    """Count the fits of one split in a stage."""
    search = cell.settings.search
    if stage == "final":
        return 1
    return search.trials * search.folds if search else 0


def updates_of(cell: Cell, stage: Stage) -> int:
    """Count the updates of one fit in a stage; the observations of a stream, or 1 of a guest."""
    if cell.settings.streams:
        return cell.stream.length
    if cell.settings.limited:
        return 1
    search = cell.settings.search
    rows = len(cell.data.split(0).train)  # whichever splits run
    return updates(cell, search.training_rows(rows) if stage == "search" and search else rows)


def unit(cell: Cell, stage: Stage) -> int:
    """Return the work of a model-minibatch, in the unit that progress is told in: about a nanosecond."""
    seconds = rough_seconds(cell, 1, width(cell, stage), compiles(cell, stage))
    return max(1, round(1e9 * seconds / batches_per_step(cell)))


def rough_seconds(cell: Cell, updates: float, width: int, compiled: bool) -> float:
    """Compute the share of a fit in the rough time of its group, from the numbers that its updates go through.

    It compares cells, stages and groups with one another; how long they take on a machine, only
    measurements tell. What has no updates counts as one.
    """
    shared = (
        1 if cell.settings.streams else width
    )  # streams are learnt from in blocks, which are not shared
    return max(updates, 1.0) * update_seconds(shared * load(cell), compiled) / shared


def remaining_work(cell: Cell, search_fits: int, final_fits: int) -> int:
    """Work of so many fits of each stage, in the units that progress is told in."""
    counts: dict[Stage, int] = {"search": search_fits, "final": final_fits}
    work = (
        count * updates_of(cell, stage) * unit(cell, stage)
        for stage, count in counts.items()
        if count
    )
    return sum(work) * batches_per_step(cell)


def compiles(cell: Cell, stage: Stage) -> bool:
    """Decide whether a stage is compiled.

    The decision rests on all splits of the benchmark, whichever of them run now, so that a split
    run alone gives what it gives among the others. Networks of images are not on a CPU, where
    their convolutions stay what they are: to compile ResNet-18 takes a core four minutes.
    """
    if cell.compile is not None:
        return cell.compile
    if cell.settings.training is None:
        return False
    model = cell.problem.model
    if cell.device == "cpu" and isinstance(model, Module) and model.shape is not None:
        return False
    per_step, at_once = batches_per_step(cell), width(cell, stage)
    total = fits(cell, stage) * updates_of(cell, stage) * splits_of(cell) // at_once
    return worthwhile(total, at_once * per_step, cell.problem.dim)


# Measured on two cores, of predictions: seconds of a number that is drawn, and of a parameter of a
# sample for a row.
_DRAWN, _PREDICTED = 2e-8, 1e-9


def width(cell: Cell, stage: Stage) -> int:
    """Count the fits that train side by side in a stage: those of a slot batch, whichever of them run."""
    return 1 if cell.settings.direct else side_by_side(cell, stage) * fits_of_split(cell, stage)


def scoring_seconds(cell: Cell, stage: Stage) -> float:
    """Estimate what the samples take that predict the test rows of one fit, or the rows of a fold."""
    search, metrics = cell.settings.search, cell.benchmark.metrics
    if cell.settings.streams or not (
        stage == "search" or any(own.info.kind == "predictive" for own in metrics)
    ):
        return 0.0
    split = cell.data.split(cell.splits[0])
    rows = len(split.test)
    if stage == "search" and search:
        rows = len(split.validation) if search.folds == 1 else len(split.train) // search.folds
    return (
        cell.benchmark.evaluation_of(cell.entry).samples
        * float(cell.problem.dim)
        * (_DRAWN + rows * _PREDICTED)
    )
