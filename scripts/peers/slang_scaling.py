"""How the cost and the memory of an update of SLANG grow with its rank and with the number of parameters.

The networks are 784-h-h-10, on made-up digits; 784-400-400-10 has the 478,410 parameters of the
paper's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from bdl.data import Dataset
from bdl.methods.slang import Slang
from bdl.models.likelihoods import Categorical
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.trials import Pool, Trials
from peers.machine import alone, peak_memory
from peers.timing import engine_epochs
from peers.workload import Workload

D_IN, CLASSES, BATCH_SIZE, SAMPLES = 784, 10, 200, 4
_UPDATES, _EPOCHS = 5, 4
"""Updates in an epoch, and epochs of a measurement, the first a warm-up."""
_FITTED = 3
"""Points that an exponent is fitted to."""


@dataclass(frozen=True)
class Sizes:
    """What is measured; hidden units of both layers."""

    ranks: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """Ranks of the network with `paper` hidden units."""
    paper: int = 400
    hidden: tuple[int, ...] = (1, 12, 110, 400, 678)
    hidden_ranks: tuple[int, ...] = (1, 8)
    """Ranks of the networks with `hidden` units."""

    def points(self) -> list[tuple[int, int]]:
        """List hidden units and rank of each point, once."""
        return sorted(
            {
                *((self.paper, rank) for rank in self.ranks),
                *product(self.hidden, self.hidden_ranks),
            }
        )


@dataclass(frozen=True)
class SlangPoint:
    """One measurement, in a process of its own."""

    hidden: int
    dim: int
    rank: int
    seconds: float
    """Per update of one model, median of the epochs."""
    peak_gb: float
    """Largest resident memory of the process."""
    idle_gb: float
    """The same after some updates of the smallest network."""


def measure(sizes: Sizes, threads: int) -> Iterator[SlangPoint]:
    """Measure all points, one after the other."""
    for hidden, rank in sizes.points():
        yield alone(threads, _point, hidden, rank)


def exponents(points: Sequence[SlangPoint], sizes: Sizes) -> dict[str, float | None]:
    """Fit powers of the rank and of the number of parameters to the last points of each series.

    Memory is that beyond an idle process; None where there is none.
    """
    by_rank = [
        point for point in points if point.hidden == sizes.paper and point.rank in sizes.ranks
    ]
    found = _powers("rank", [point.rank for point in by_rank], by_rank)
    for rank in sizes.hidden_ranks:
        by_dim = [point for point in points if point.hidden in sizes.hidden and point.rank == rank]
        found |= _powers(f"parameters at rank {rank}", [point.dim for point in by_dim], by_dim)
    return found


def digits(hidden: int, rank: int) -> Workload[Slang]:
    """Make one trial of SLANG on a network with two hidden layers; an epoch is 5 updates."""
    rng, rows = np.random.default_rng(0), _UPDATES * BATCH_SIZE
    labels = np.arange(rows) % CLASSES
    x = rng.normal(size=(CLASSES, D_IN))[labels] + rng.normal(size=(rows, D_IN))
    dataset = Dataset("digits", x, labels.astype(np.float64), task="classification")
    pool = Pool.load(dataset)
    hyper = [{"learning_rate": 0.01, "prior_precision": 1.0}]
    trials = Trials.make(dataset, pool, [("bench_methods", hidden)], [np.arange(rows)], hyper)
    problem = Problem(Mlp((hidden, hidden)), Categorical(), D_IN, CLASSES)
    return Workload(Slang(rank=rank, samples=SAMPLES), problem, dataset, pool, trials, BATCH_SIZE)


def _point(hidden: int, rank: int) -> SlangPoint:
    engine_epochs(digits(1, 1), 1, compile=False)
    idle = peak_memory()
    work = digits(hidden, rank)
    seconds = float(np.median(engine_epochs(work, _EPOCHS, compile=False)[1:])) / _UPDATES
    return SlangPoint(hidden, work.problem.dim, rank, seconds, peak_memory(), idle)


def _powers(
    by: str, sizes: Sequence[int], points: Sequence[SlangPoint]
) -> dict[str, float | None]:
    seconds, memory = (
        [point.seconds for point in points],
        [point.peak_gb - point.idle_gb for point in points],
    )
    return {f"seconds by {by}": power(sizes, seconds), f"memory by {by}": power(sizes, memory)}


def power(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """Fit values = constant * size^p to the last three points, by least squares of logarithms.

    None if one of the values is not positive.
    """
    if min(values[-_FITTED:]) <= 0:
        return None
    return float(np.polyfit(np.log(sizes[-_FITTED:]), np.log(values[-_FITTED:]), 1)[0])
