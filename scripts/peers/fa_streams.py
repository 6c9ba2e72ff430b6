"""What an observation costs the online estimators of factor analysis, on the streams of the benchmark online-fa."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from bdl.data.streams import LENGTH, Stream, draw_blocks
from bdl.methods.base import StreamMethod
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_fa import OnlineEstimator
from bdl.methods.online_px_em import OnlinePxEm
from bdl.methods.online_sga import OnlineSga
from peers.comparison import Contender, Cost, compare

ESTIMATORS: Mapping[str, OnlineEstimator] = {
    "online-sga": OnlineSga(),
    "online-em": OnlineEm(),
    "online-px-em": OnlinePxEm(),
}
DRAWING = "drawing"
SPREADS = (10.0, 100.0, 1000.0)
"""Largest squared scales; each has ten streams."""
HANDED = 1000
"""Observations that a run learns from at a time."""
LIMITS = {100: 60.0, 1000: 240.0}
"""Seconds that all streams of so many parameters may take an estimator."""


@dataclass(frozen=True)
class StreamCost(Cost):
    """What learning costs, or drawing.

    The fields of `Cost` are those of one observation of one stream.
    """

    dim: int
    method: str
    together: int
    """Streams learnt from as one batch."""
    seconds: float
    """For all streams, in batches of `together`, with the set-up."""
    limit_s: float | None
    """What `seconds` may be at most; None for drawing and for other sizes."""
    holds: bool | None


def measure(dims: tuple[int, ...], observations: int) -> Iterator[StreamCost]:
    """Draw so many observations of all streams, and let the estimators learn from them in turn.

    Parameters
    ----------
    dims
        Parameters of a stream, D.
    observations
        Of each stream, in whole multiples of `HANDED`: at least one, and two less than a stream
        has.
    """
    for dim in dims:
        drawn = _Drawn(dim)
        first, warm = (
            drawn.seconds(),
            drawn.seconds(),
        )  # models and latent variables of whole streams are of the first
        setup = (first - warm) * HANDED * drawn.streams
        contenders = {(DRAWING, drawn.streams): Contender(drawn.seconds, setup)}
        for together in (Stream.splits, drawn.streams):
            for name, estimator in ESTIMATORS.items():
                contenders[name, together] = Contender(
                    _Learner(estimator, drawn, together).seconds
                )
        repeats = min(max(observations // HANDED, 1), LENGTH // HANDED - 2)
        for (name, together), cost in compare(contenders, repeats).items():
            yield scaled(cost, dim, name, together, drawn.streams)


def scaled(cost: Cost, dim: int, method: str, together: int, streams: int) -> StreamCost:
    """Scale the cost of an observation to all streams in their full length, and hold it against the limit."""
    seconds = 1e-6 * cost.us * LENGTH * streams + (cost.setup_s or 0)
    limit = None if method == DRAWING else LIMITS.get(dim)
    holds = None if limit is None else seconds <= limit
    return StreamCost(
        **asdict(cost),
        dim=dim,
        method=method,
        together=together,
        seconds=seconds,
        limit_s=limit,
        holds=holds,
    )


def start(method: StreamMethod, dim: int, shape: tuple[int, ...] = ()) -> Any:
    """Make the state before the first observation, of `shape` streams.

    One stream starts as the first of a run.
    """
    seed = 1
    generator = torch.Generator().manual_seed(seed)
    noise = {
        name: torch.randn(*shape, *own, generator=generator)
        for name, own in method.init_noise(dim).items()
    }
    return method.init({"seed": torch.full(shape, seed), **noise})


def check_finite(state: Any) -> None:
    """Raise `ArithmeticError` if an estimate diverged: what it cost after that says nothing."""
    if not all(bool(leaf.isfinite().all()) for leaf in tree_leaves(state)):
        raise ArithmeticError(f"{type(state).__name__} is not finite")


class _Drawn:
    """The latest observations of all streams of a size, (S, `HANDED`, D)."""

    def __init__(self, dim: int) -> None:
        streams = [Stream(dim, spread) for spread in SPREADS]
        splits = range(Stream.splits)
        self.dim, self.streams = dim, len(streams) * len(splits)
        self._blocks = zip(*(draw_blocks(streams, split, HANDED) for split in splits), strict=True)

    def seconds(self) -> float:
        """Draw the next; seconds per observation of a stream."""
        begin = perf_counter()
        self.latest = torch.cat(next(self._blocks))
        return (perf_counter() - begin) / (HANDED * self.streams)


class _Learner:
    """An estimator of the first so many streams."""

    def __init__(self, estimator: OnlineEstimator, drawn: _Drawn, together: int) -> None:
        self.estimator, self.drawn, self.together = estimator, drawn, together
        self.state = start(estimator, drawn.dim, (together,))

    def seconds(self) -> float:
        """Learn from the latest; seconds per observation of a stream."""
        observations = self.drawn.latest[: self.together]
        begin = perf_counter()
        self.state = self.estimator.update_block(self.state, observations)
        seconds = perf_counter() - begin
        check_finite(self.state)
        return seconds / (HANDED * self.together)
