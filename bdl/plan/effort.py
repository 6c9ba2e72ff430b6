"""What an update takes: its operations, counted on tensors that have shapes and no numbers."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from bdl.methods.base import MinibatchMethod, Shapes
from bdl.methods.counters import StepCounters
from bdl.models.problem import Problem
from bdl.plan.cell import Cell
from bdl.plan.programs import schedule
from bdl.training.programs import Halves, occasion, pairs, programs, shaped
from bdl.training.schedule import Precision
from bdl.training.trials import View

log = logging.getLogger(__name__)

# Fitted to published runs, on two cores; scripts/bench_planner.py tells how far they are off.
_LAUNCH = {False: 5e-5, True: 1e-5}
"""Seconds of each operation of a group, uncompiled and compiled."""
_NUMBER = {False: 1.2e-9, True: 4e-10}
"""Seconds of each number that an operation puts out."""
_PRODUCT, _SOLVE = 1.5e-11, 1e-6
"""Seconds of an addition or multiplication within a product of matrices, and of each small factorisation."""
COMPILATION = 10.0
"""Seconds that a program takes to compile."""


@dataclass
class Effort:
    """What an update of one fit takes."""

    operations: int = 0
    """Launches, which the fits of a group share."""
    numbers: int = 0
    """That operations put out."""
    products: int = 0
    """Additions and multiplications within products, convolutions and factorisations."""
    solves: int = 0
    """Factorisations of small matrices, which are made one after the other."""

    def seconds(self, updates: float, group: int, compiled: bool) -> float:
        """Estimate the share of a fit in the time of its group, without compilation.

        Without updates, as of a method that has no minibatches, it is that of one: only a measurement can tell more.
        """
        shared = _LAUNCH[compiled] * self.operations / group
        own = _NUMBER[compiled] * self.numbers + _PRODUCT * self.products + _SOLVE * self.solves
        return max(updates, 1.0) * (shared + own)


def effort(cell: Cell) -> Effort:
    """Count what an update takes; an observation, for a stream."""
    plan = schedule(cell)
    if cell.settings.streams or plan is None:
        return Effort(operations=32, numbers=20 * cell.stream.dim if cell.settings.streams else 0)
    method = cast(MinibatchMethod, cell.settings.method.build())
    groups = 0 if plan.constant else len(method.groups)
    return _counted(method, cell.problem, (plan.batch_size, cell.data.x[0].size), plan.dtype, cell.data.images, groups)


@lru_cache(maxsize=256)
def _counted(
    method: MinibatchMethod, problem: Problem, shape: tuple[int, int], precision: Precision, images: bool, groups: int
) -> Effort:
    """Count the operations of the first update of one fit; of what needs values, guess by its parameters."""
    problem.buffers()  # what is kept of a model must not be made of shapes alone
    try:
        return _traced(method, problem, shape, precision, images, groups)
    except Exception as error:  # a method of somebody's own may do anything
        log.debug("the operations of %r cannot be counted: %s", method, error)
        return Effort(operations=100, numbers=40 * method.batches_per_step * problem.dim)


def _traced(
    method: MinibatchMethod, problem: Problem, shape: tuple[int, int], precision: Precision, images: bool, groups: int
) -> Effort:
    size, inputs = shape
    empty = partial(torch.empty, dtype=getattr(torch, precision), device="meta")
    one, x = empty(1), empty(size, inputs)
    view = View(*(empty(1, 1 if images else inputs) for _ in range(2)), *[one] * 5)
    rows = torch.empty(1, method.batches_per_step, size, dtype=torch.int64, device="meta")
    hyper = dict.fromkeys((*problem.hyper, *method.hyper), one)
    if groups:
        hyper["learning_rate"] = empty(1, groups)
    shapes = method.init_noise(problem)
    state = torch.func.vmap(lambda halves: method.init(problem, shaped(halves, shapes)))(_halves(shapes, empty))
    noise = _halves(method.step_noise(problem), empty)
    found = programs(method, problem, None, 0, False).parts(occasion(method, StepCounters(1, 0, False, 10.0)), ())
    counter = _Counter()
    with counter:
        for function in found:
            state = function(state, noise, (), rows, x.to(torch.uint8) if images else x, empty(size), view, hyper)
    return counter.effort


def _halves(shapes: Shapes, empty: Callable[..., Tensor]) -> Halves:
    count = pairs(shapes)
    return tuple(empty(1, count) for _ in range(2 if count else 1))


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations that make something, as they are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.effort = Effort()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.is_view:
            return made
        own, packet = self.effort, func._overloadpacket
        own.operations += 1
        own.numbers += sum(leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, Tensor))
        if packet in flop_registry:
            own.products += flop_registry[packet](*args, **(kwargs or {}), out_val=made)
        elif any(word in str(packet) for word in ("linalg", "cholesky", "triangular")):
            matrix = next(each for each in args if isinstance(each, Tensor))
            own.products += matrix.numel() * min(matrix.shape[-2:])
            own.solves += prod(matrix.shape[:-2])
        return made
