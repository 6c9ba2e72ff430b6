"""How the engine's cost grows with the number of trials and with the number of parameters."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bdl.methods.base import MinibatchMethod
from peers.timing import engine_epochs
from peers.workload import D_IN, Workload, make

MEMORY = 2e9
"""Bytes that the eager engine may need."""
_COPIES = 15
"""Float32 tensors of size trials x L x D at the peak of an eager update (measured at a million
parameters).
"""
_SECONDS, _EPOCHS = 1.0, 20
"""A point is measured for about a second, in at most so many epochs."""


@dataclass(frozen=True)
class Point:
    """One measurement."""

    by: str
    """What grows: ``"trials"`` or ``"parameters"``."""
    trials: int
    dim: int
    eager_us: float
    """Microseconds per model-minibatch."""
    compiled_us: float | None
    """The same compiled; None without a compiler."""
    compile_s: float | None
    """Seconds of the first epoch beyond a warm one."""


def by_trials(sizes: tuple[int, ...], compile: bool) -> Iterator[Point]:
    """Measure more and more trials of the network with 751 parameters."""
    for trials in sizes:
        yield _measure("trials", make(trials), compile)


def by_parameters(sizes: tuple[int, ...], compile: bool) -> Iterator[Point]:
    """Measure wider and wider networks, at 150 trials or as many (at least 8) as memory holds."""
    for size in sizes:
        hidden = round((size - 1) / (D_IN + 2))
        yield _measure("parameters", make(fitting_trials(size), hidden), compile)


def fitting_trials(dim: int) -> int:
    """Count the trials of networks with `dim` parameters that fit in memory: 8 to 150."""
    gradients = 4
    return int(np.clip(MEMORY / (4 * _COPIES * gradients * dim), 8, 150))


def _measure(by: str, work: Workload[MinibatchMethod], compile: bool) -> Point:
    eager, _ = _steady(work, compile=False)
    compiled, setup = _steady(work, compile=True) if compile else (None, None)
    return Point(by, len(work.trials), work.problem.dim, eager, compiled, setup)


def _steady(work: Workload[MinibatchMethod], compile: bool) -> tuple[float, float]:
    """Microseconds per model-minibatch, and seconds of set-up."""
    first, warm = engine_epochs(work, 2, compile)
    epochs = 1 + int(np.clip(_SECONDS / warm, 1, _EPOCHS))
    again = float(np.median(engine_epochs(work, epochs, compile)[1:]))
    return 1e6 * again / work.cost_units, float(first - again)
