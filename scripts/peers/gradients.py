"""Gradients of single examples: outer products beside the matrix of `torch.func`, for what an update of SLANG needs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from timeit import Timer
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.models.gradients import (
    DenseGradients,
    ExampleGradients,
    example_gradients,
    gradient_matrix,
)
from bdl.models.problem import Batch, Hyper, Problem
from peers import agreement
from peers.comparison import Contender, compare
from peers.workload import D_IN, make

MEMORY = 2e9
"""Bytes that the matrix may have."""
TOLERANCE = 5e-4
"""Largest difference, relative to the largest entry of the tensor: float32 sums over up to five
million terms, whose
rounding grows to 1.3e-4 for the root of their number, more or less by processor."""
_SECONDS = 0.05
"""A repeat takes about so long, or one call."""


class Task(NamedTuple):
    """Where gradients are taken, and what is multiplied by them."""

    problem: Problem
    theta: Tensor
    """Parameters, (1, D): one sample."""
    batch: Batch
    hyper: Hyper
    columns: Tensor
    """Factors of the precision, (D, 1)."""
    weights: Tensor
    """Weights of the examples, (M, 1)."""


@dataclass(frozen=True)
class GradientPoint:
    """One measurement; what the matrix would be too large for is None."""

    dim: int
    examples: int
    matrix_gb: float
    """Size of the matrix, GB."""
    outer_us: float
    """Microseconds with outer products, median of the repeats."""
    matrix_us: float | None
    """The same with the matrix."""
    ratio: float | None
    """Matrix over outer products, median of the repeats."""
    difference: float | None
    """Largest difference of the products, relative to the largest entry of each."""

    @property
    def agrees(self) -> bool:
        """Whether both ways give the same, as far as both were gone."""
        return self.difference is None or self.difference <= TOLERANCE


def measure(
    dims: tuple[int, ...], examples: tuple[int, ...], repeats: int
) -> Iterator[GradientPoint]:
    """Measure networks of about so many parameters, on minibatches of so many rows."""
    for dim in dims:
        for count in examples:
            yield _point(task(round((dim - 1) / (D_IN + 2)), count), repeats)


def task(hidden: int, examples: int) -> Task:
    """Draw parameters and multipliers for a network with one hidden layer, and take rows of the workload."""
    work, generator = make(1, hidden), torch.Generator().manual_seed(0)
    view, hyper = tree_map(lambda leaf: leaf[0], (work.trials.view, dict(work.trials.hyper)))
    rows = torch.from_numpy(work.trials.rows[0][:examples])
    batch = view.batch(work.pool.x[rows], work.pool.y[rows])
    theta = 0.1 * torch.randn(1, work.problem.dim, generator=generator)
    columns = torch.randn(work.problem.dim, 1, generator=generator)
    return Task(
        work.problem, theta, batch, hyper, columns, torch.randn(examples, 1, generator=generator)
    )


def outer(given: Task) -> dict[str, Tensor]:
    """Compute the products without the matrix."""
    return _products(
        example_gradients(given.problem, given.theta, given.batch, given.hyper), given
    )


def matrix(given: Task) -> dict[str, Tensor]:
    """Compute the products with the matrix."""
    return _products(
        DenseGradients(gradient_matrix(given.problem, given.theta[0], given.batch, given.hyper)),
        given,
    )


def _products(gradients: ExampleGradients, given: Task) -> dict[str, Tensor]:
    return {
        "gram": gradients.gram(),
        "times": gradients.times(given.columns),
        "combine": gradients.combine(given.weights),
        "sum": gradients.total(),
        "squares": gradients.squares(),
    }


def _point(given: Task, repeats: int) -> GradientPoint:
    examples, dim = len(given.weights), given.problem.dim
    size = examples * dim * given.theta.element_size()
    if size > MEMORY:
        cost = compare({"outer": _contender(partial(outer, given))}, repeats)
        return GradientPoint(dim, examples, size / 1e9, cost["outer"].us, None, None, None)
    difference = agreement.difference(outer(given), matrix(given))
    ways = {
        "outer": _contender(partial(outer, given)),
        "matrix": _contender(partial(matrix, given)),
    }
    cost = compare(ways, repeats)
    return GradientPoint(
        dim,
        examples,
        size / 1e9,
        cost["outer"].us,
        cost["matrix"].us,
        cost["matrix"].ratio,
        difference,
    )


def _contender(run: Callable[[], Mapping[str, Tensor]]) -> Contender:
    timer = Timer(run)
    timer.timeit(1)
    calls = max(1, round(_SECONDS / timer.timeit(1)))
    return Contender(lambda: timer.timeit(calls) / calls)
