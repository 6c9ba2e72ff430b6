"""Seconds that the contenders take, warmed up, on their real path."""

from time import perf_counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_map

from bdl.methods.base import MinibatchMethod
from bdl.methods.vifa import Vifa
from bdl.training.fitting import run_to_end
from bdl.training.traced import trace_immediately
from peers.torch_loop import LoopModel
from peers.workload import Workload

_LOOP_MODELS = 2
"""Models that the plain loop trains, one after the other: its cost per model does not depend on
their number.
"""


def engine_epochs(
    work: Workload[MinibatchMethod], epochs: int, compile: bool
) -> NDArray[np.float64]:
    """Train with the engine.

    Seconds of each epoch, the first with the set-up: traces, and any compilation.

    Raises
    ------
    ArithmeticError
        If a model diverged: what it cost after that says nothing.
    """
    marks = [perf_counter()]
    fitting = work.fitting(epochs, compile=compile)
    with trace_immediately():
        fit = run_to_end(fitting, progress=lambda minibatches: marks.append(perf_counter()))
    if diverged := int((fit.diverged > 0).sum()):
        raise ArithmeticError(
            f"{diverged} of {len(work.trials)} models of {type(work.method).__name__} diverged"
        )
    return np.diff(marks)


def engine_seconds(work: Workload[MinibatchMethod], epochs: int, compile: bool) -> float:
    """Seconds per model-minibatch of the engine."""
    return float(engine_epochs(work, epochs + 1, compile)[1:].mean()) / work.cost_units


def engine_setup(work: Workload[MinibatchMethod]) -> float:
    """Seconds that compilation takes: the first epoch beyond a warm one."""
    first, warm = engine_epochs(work, 2, compile=True)
    return float(first - warm)


def loop_seconds(work: Workload[Vifa], epochs: int, *, together: bool) -> float:
    """Seconds per model-minibatch of the plain loop."""
    states = work.initial_state()
    x, y = work.data()
    spent = 0.0
    models = min(_LOOP_MODELS, len(work.trials))
    for index in range(models):
        state, setting = (
            tree_map(lambda leaf, i=index: leaf[i], tree) for tree in (states, work.settings())
        )
        model = LoopModel(work.method, state, setting, x[index], y[index], together=together)
        rows = torch.from_numpy(work.trials.rows[index])
        model.train(rows, epochs=1)
        start = perf_counter()
        model.train(rows, epochs)
        spent += perf_counter() - start
    return spent * len(work.trials) / (models * epochs * work.cost_units)


class JaxRun:
    """Training of all trials with JAX, compiled on construction.

    Parameters
    ----------
    work, epochs
        What is trained, for how long.
    """

    def __init__(self, work: Workload[Vifa], epochs: int) -> None:
        from peers.jax_scan import compile_run

        state = work.initial_state()
        self.units = epochs * work.cost_units
        start = perf_counter()
        self.run = compile_run(work, state, epochs)
        self.compile_seconds = perf_counter() - start

    def seconds(self) -> float:
        """Seconds per model-minibatch."""
        start = perf_counter()
        self.run()
        return (perf_counter() - start) / self.units
