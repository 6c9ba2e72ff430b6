"""Time and memory of an update of the online estimators of factor analysis, where D is millions."""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from bdl.methods.online_fa import OnlineEstimator
from bdl.runtime import keep_freed_memory
from peers.fa_streams import ESTIMATORS, check_finite, start
from peers.machine import alone, peak_memory

LIMIT_S = 1.0
"""Seconds that an update may take at `Sizes.dim`."""
_WARM = 2
"""Updates before those that are timed: the states of two updates are alive at a time."""
_TINY = 1000


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    dim: int = 11_000_000
    points: tuple[tuple[str, int], ...] = (
        *((name, 1) for name in ESTIMATORS),
        ("online-px-em", 10),
    )
    """Estimators, and the observations that are handed over at a time."""


@dataclass(frozen=True)
class LargePoint:
    """One measurement, in a process of its own.

    ``kept`` is after `bdl.runtime.keep_freed_memory`.
    """

    method: str
    block: int
    """Observations handed over at a time."""
    dim: int
    latent_dim: int
    seconds: float
    """Per observation, median of the updates."""
    kept_seconds: float
    idle_gb: float
    """Largest resident memory of the process after updates of a tiny stream."""
    start_gb: float
    """The same after the start, whose QR decomposition needs copies of F."""
    peak_gb: float
    """The same after the updates."""
    kept_peak_gb: float
    arrays: float
    """Memory beyond the idle process's, in arrays of D K numbers of 4 bytes."""
    kept_arrays: float
    limit_s: float | None
    """What an observation may take; None for other sizes than eleven million."""
    holds: bool | None
    kept_holds: bool | None


def measure(sizes: Sizes, *, updates: int, threads: int) -> Iterator[LargePoint]:
    """Measure all points, one after the other."""
    for method, block in sizes.points:
        yield alone(threads, point, method, block, sizes.dim, updates)


def point(method: str, block: int, dim: int, updates: int) -> LargePoint:
    """Measure one point in this process."""
    seconds_per_observation(OneStream(ESTIMATORS[method], _TINY), block, 1)
    idle = peak_memory()
    stream = OneStream(ESTIMATORS[method], dim)
    started = peak_memory()
    seconds = seconds_per_observation(stream, block, updates)
    peak = peak_memory()
    keep_freed_memory()
    kept_seconds = seconds_per_observation(stream, block, updates)
    kept_peak, latent_dim = peak_memory(), stream.state.loadings.shape[-2]
    array = dim * latent_dim * 4e-9
    limit = LIMIT_S if dim == Sizes.dim else None
    return LargePoint(
        method,
        block,
        dim,
        latent_dim,
        seconds,
        kept_seconds,
        idle,
        started,
        peak,
        kept_peak,
        arrays=(peak - idle) / array,
        kept_arrays=(kept_peak - idle) / array,
        limit_s=limit,
        holds=None if limit is None else seconds <= limit,
        kept_holds=None if limit is None else kept_seconds <= limit,
    )


class OneStream:
    """An estimator and its state, for vectors of D parameters; they are checked to be finite."""

    def __init__(self, estimator: OnlineEstimator, dim: int) -> None:
        self.estimator, self.state = estimator, start(estimator, dim)

    def observe(self, observations: Tensor) -> None:
        """Learn from several observations, (B, D)."""
        check_finite(observations)
        self.state = self.estimator.update_block(self.state, observations)


def seconds_per_observation(stream: OneStream, block: int, updates: int) -> float:
    """Let a stream learn from standard-normal observations.

    Median over the updates, but for the first two.
    """
    seconds = []
    for _ in range(_WARM + updates):
        observations = torch.randn(block, len(stream.state.mean))
        begin = perf_counter()
        stream.observe(observations)
        seconds.append((perf_counter() - begin) / block)
    check_finite(stream.state)
    return float(np.median(seconds[_WARM:]))
