"""What an update of a natural gradient costs the engine, a plain loop and JAX, and what shared inputs are worth."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from time import perf_counter
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from bdl.methods import slang
from bdl.methods.base import MinibatchMethod
from bdl.models.gradients import (
    DenseGradients,
    ExampleGradients,
    OuterGradients,
    example_gradients,
)
from bdl.models.problem import Batch, Hyper, Problem
from bdl.training.updates import cached_update_functions
from peers import natural_agreement
from peers.agreement import difference
from peers.comparison import Contender, Cost, compare
from peers.natural_agreement import ENGINE, JAX, engine_numbers, engine_update, loop_numbers
from peers.natural_loop import LoopModel
from peers.natural_workload import Regressions, stacked
from peers.timing import engine_epochs, engine_seconds
from peers.workload import Workload

LOOP = "plain loop"
SHARED, OUTER, MATRIX = "M rows", "S M outer products", "S M rows"
SECONDS = 0.3
"""A turn takes about so long, or one epoch."""
_SCANNED = 20
"""Updates that JAX compiles into one program."""


def contenders(work: Regressions, *, compile: bool) -> dict[str, Contender]:
    """Compile what is to be compiled; the unit of cost is an update of one model."""
    found = {ENGINE: _engine(work, compile=compile), LOOP: _loop(work.loop(0))}
    return found | ({JAX: _jax(work)} if find_spec("jax") else {})


def _engine(work: Workload[MinibatchMethod], *, compile: bool) -> Contender:
    first, warm = engine_epochs(work, 2, compile)
    epochs = _filling(warm)
    return Contender(
        lambda: engine_seconds(work, epochs, compile), float(first - warm) if compile else None
    )


def _loop(model: LoopModel) -> Contender:
    def seconds(updates: int) -> float:
        begin = perf_counter()
        model.train(updates)
        return (perf_counter() - begin) / updates

    model.train(1)
    updates = _filling(seconds(2))
    return Contender(lambda: seconds(updates))


def _jax(work: Regressions) -> Contender:
    from peers import natural_jax

    rows = stacked([work.training(model) for model in range(len(work.trials))])
    rates = np.array([work.rate(update) for update in range(1, _SCANNED + 1)])
    begin = perf_counter()
    run = natural_jax.compile_run(work.algorithm, rows, rates, work.samples, work.batch_size)
    setup = perf_counter() - begin
    run()

    def seconds() -> float:
        begin = perf_counter()
        run()
        return (perf_counter() - begin) / (_SCANNED * len(work.trials))

    return Contender(seconds, setup)


def _filling(seconds: float) -> int:
    """Count what fills a turn."""
    return max(1, round(SECONDS / seconds))


# ---- what shared inputs are worth


@dataclass(frozen=True)
class SharingCost(Cost):
    """What an update of SLANG costs that is given gradients in one way or another."""

    difference: float
    """Of one update from the plain loop's, as in `peers.natural_agreement.agree`."""


def outer(problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper) -> OuterGradients:
    """Differentiate at all samples: S M inputs and errors, whose outer products are the gradients."""
    ((inputs, errors),) = torch.func.vmap(lambda one: problem.layers(one, batch, hyper))(theta)
    with_ones = torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=-1)
    return OuterGradients(((with_ones, errors),), bias=True)


def matrix(problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper) -> ExampleGradients:
    """Differentiate at all samples: a matrix of S M gradients."""
    ((inputs, errors),) = outer(problem, theta, batch, hyper).layers
    return DenseGradients((inputs * errors).flatten(0, 1))


WAYS = {SHARED: example_gradients, OUTER: outer, MATRIX: matrix}


@contextmanager
def by(way: str) -> Iterator[None]:
    """Let SLANG find gradients in this way.

    Programs that were recorded in another are forgotten.
    """
    cached_update_functions.cache_clear()
    with patch.object(slang, "example_gradients", WAYS[way]):
        yield
    cached_update_functions.cache_clear()


def sharing(work: Regressions, repeats: int, *, compile: bool) -> dict[str, SharingCost]:
    """Time an update of SLANG with gradients of each kind, in turn.

    Ratios are to shared inputs.
    """
    prepared = {way: _contender(work, way, compile=compile) for way in WAYS}
    differences = {way: _difference(work, way, compile=compile) for way in WAYS}
    return {
        way: SharingCost(**asdict(cost), difference=differences[way])
        for way, cost in compare(prepared, repeats).items()
    }


def _difference(work: Regressions, way: str, *, compile: bool) -> float:
    with by(way):
        update = engine_update(work, natural_agreement.BEFORE, compile=compile)
    return difference(engine_numbers(update.after), loop_numbers(work, update))


def _contender(work: Regressions, way: str, *, compile: bool) -> Contender:
    with by(way):
        seconds, setup = _engine(work, compile=compile)

    def patched() -> float:
        with by(way):
            return seconds()

    return Contender(patched, setup)
