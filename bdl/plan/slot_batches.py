"""Lanes of a cell: which splits have places side by side, from the spec alone, whichever of them run.

See `bdl.training.slots` for what that is good for. Lanes are wide enough for the launches of kernels to weigh little,
and no wider than that, so that one split by itself costs little more than its share.
"""

from functools import lru_cache
from math import prod

from bdl.methods.base import MinibatchMethod
from bdl.models.base import LayeredModel
from bdl.models.problem import Problem
from bdl.plan.cell import Cell
from bdl.store.rows import Stage

# Measured on two cores (scripts/bench_training.py): up to here a wider slot batch is faster, and little is lost beyond.
_NUMBERS = {"cpu": 400_000, "cuda": 50_000_000}
"""Numbers of an update of a slot batch, if there are enough splits: parameters, normals or activations."""

_MANY = 32
"""Fits of a search from which a split is a slot batch of its own: launches of kernels weigh little by then."""


def slot_batch(cell: Cell, stage: Stage, split: int) -> range:
    """Return the splits that have places beside a split, itself among them.

    The last slot batch has as many as the others: splits that do not exist keep slots. Where nothing trains side
    by side, all splits are one slot_batch.
    """
    count = side_by_side(cell, stage)
    first = split // count * count
    return range(first, first + count)


def slot_rows(cell: Cell, stage: Stage, split: int) -> dict[int, int]:
    """Count the training rows of each split of a slot batch; one that does not exist has those of the last."""
    last, rows = splits_of(cell) - 1, cell.rows if stage == "final" else cell.data.split
    return {own: len(rows(min(own, last)).train) for own in slot_batch(cell, stage, split)}


def side_by_side(cell: Cell, stage: Stage) -> int:
    """Count the splits of a batch; one where many settings of a search go together, which fill the cache of a CPU."""
    splits, training, search = splits_of(cell), cell.settings.training, cell.settings.search
    if training is None:
        return 1 if search or cell.settings.limited else splits
    at_once = fits_of_split(cell, stage)
    together = stage == "search" and search and cell.device == "cpu" and at_once == search.trials * search.folds
    if together and at_once >= _MANY:
        return 1
    widest = max(least(cell), _NUMBERS[cell.device] // (at_once * _numbers(cell)))
    slot_batches = -(-splits // widest)
    return -(-splits // slot_batches)


def least(cell: Cell) -> int:
    """Count the slots of a batch at the least: one on a GPU and for a fit larger than a batch should be, else two."""
    alone = cell.device == "cuda" or (cell.settings.training and _numbers(cell) > _NUMBERS[cell.device])
    return 1 if alone else 2


def _numbers(cell: Cell) -> int:
    """Count the numbers that an update of one fit goes through, what layers put out and minibatches among them."""
    training, problem = cell.settings.training, cell.problem
    assert training is not None, "asked of minibatch methods"
    if problem.dim == 0:  # of a likelihood that does not fit the data, which is told later
        return 1
    given = batches_per_step(cell) * training.batch_size * problem.d_in
    return max(given, load(cell) * max(problem.dim, _put_out(problem) * training.batch_size) // problem.dim)


@lru_cache(maxsize=1024)
def _put_out(problem: Problem) -> int:
    """Count the values that the widest layer puts out for one row; inputs are one for all samples of a fit."""
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
