"""Online estimators of factor analysis beside batch fits: time, memory, and distance to the truth."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from bdl.data.streams import FACTORS, LENGTH, Stream
from bdl.methods.base import StreamMethod
from bdl.methods.batch_fa import BatchFa
from bdl.metrics.distances import relative_distance
from bdl.posteriors import FactorAnalysis
from peers.fa_streams import ESTIMATORS, HANDED, start
from peers.machine import alone, peak_memory

WHOLE = "scikit-learn"
METHODS: Mapping[str, StreamMethod] = {
    **ESTIMATORS,
    "batch-svd": BatchFa(solver="sklearn"),
    "batch-exact": BatchFa(solver="exact"),
}
_TINY = Stream(20, 10, length=HANDED)


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    dims: tuple[int, ...] = (100,)
    rows: int = LENGTH
    methods: tuple[str, ...] = (WHOLE, *METHODS)


@dataclass(frozen=True)
class BatchPoint:
    """One measurement, in a process of its own."""

    dim: int
    rows: int
    method: str
    seconds: float
    """Learning and the estimate; drawing is left out."""
    idle_gb: float
    """Largest resident memory of the process after the same on a tiny stream, and with the truth
    and first block.
    """
    peak_gb: float
    """Largest resident memory of the process, with the observations that the method holds."""
    rel_cov_dist: float
    """To the covariance of the model that the observations are drawn from."""


def measure(sizes: Sizes, threads: int) -> Iterator[BatchPoint]:
    """Measure all points, one after the other."""
    for dim in sizes.dims:
        for method in sizes.methods:
            yield alone(threads, point, method, Stream(dim, 10, length=sizes.rows))


def point(method: str, stream: Stream) -> BatchPoint:
    """Measure one method on the first of the streams, in this process."""
    run: Callable[[Stream], tuple[FactorAnalysis, float]] = (
        whole if method == WHOLE else lambda own: streamed(METHODS[method], own)
    )
    run(_TINY)
    truth = stream.model(0).covariance().double()
    next(stream.blocks(0, HANDED))
    idle = peak_memory()
    estimate, seconds = run(stream)
    peak = peak_memory()
    distance = relative_distance(estimate.covariance().double(), truth)
    return BatchPoint(stream.dim, stream.length, method, seconds, idle, peak, float(distance))


def streamed(method: StreamMethod, stream: Stream) -> tuple[FactorAnalysis, float]:
    """Learn from observations as they are drawn; the estimate, and the seconds without drawing."""
    state, seconds = start(method, stream.dim), 0.0
    for observations in stream.blocks(0, HANDED):
        begin = perf_counter()
        state = method.update_block(state, observations)
        seconds += perf_counter() - begin
    begin = perf_counter()
    estimate = method.posterior(state)
    assert isinstance(estimate, FactorAnalysis)
    return estimate, seconds + perf_counter() - begin


def whole(stream: Stream) -> tuple[FactorAnalysis, float]:
    """Fit scikit-learn's FactorAnalysis to the whole sample, as published.

    The estimate, and its seconds.
    """
    from sklearn.decomposition import FactorAnalysis as Estimator

    sample = sampled(stream).numpy()
    estimator = Estimator(FACTORS, svd_method="randomized", random_state=1)
    begin = perf_counter()
    fit = estimator.fit(sample)
    seconds = perf_counter() - begin
    loc, factors, diag = (
        torch.from_numpy(array) for array in (fit.mean_, fit.components_.T, fit.noise_variance_)
    )
    return FactorAnalysis(loc, factors, diag), seconds


def sampled(stream: Stream) -> Tensor:
    """Draw the whole of the first stream, (T, D), into one array."""
    sample = torch.empty(stream.length, stream.dim)
    for target, observations in zip(
        torch.split(sample, HANDED), stream.blocks(0, HANDED), strict=True
    ):
        target.copy_(observations)
    return sample
