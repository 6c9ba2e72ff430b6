"""The work of cells whose method learns from streams: all of them together, and a look at every checkpoint."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data import draw
from bdl.execution.scoring import score_moments
from bdl.methods.base import Shapes, StreamMethod
from bdl.plan.cell import Cell
from bdl.plan.checks import CHECKPOINTS
from bdl.posteriors.base import Posterior
from bdl.references.base import Truth
from bdl.store.store import Row
from bdl.training.engine import Progress

BLOCK, BLOCKS = 100, 10
"""Observations drawn at a time, of which every checkpoint is a multiple, and how many blocks are handed over."""


def batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Put together the cells that run as one: those of an entry whose streams differ in their spectrum alone."""
    together: dict[object, list[Cell]] = {}
    for cell in cells:
        alike = cell.settings.streams and (
            *(cell.entry, cell.settings.method.build()),
            replace(cell.stream, name="", spread=1),
        )
        together.setdefault(alike or cell, []).append(cell)
    return list(together.values())


@dataclass(frozen=True, eq=False)
class StreamGroup:
    """Learn from the streams of some splits of cells that `batches` puts together as one batch."""

    members: tuple[tuple[Cell, int], ...]
    """Cells and splits, the cells of a split side by side: they share what is drawn."""

    def run(self, progress: Progress) -> list[Row]:
        """Do the work; one row a split, with the distances at the end and ``<metric>_at_<n>`` at each checkpoint."""
        truths = [cell.truth(split) for cell, split in self.members]
        found, last = ([dict[str, float]() for _ in self.members] for _ in range(2))
        seconds, start = 0.0, time.perf_counter()
        for seen, posteriors in self.posteriors(progress):
            seconds += time.perf_counter() - start
            for index, (posterior, truth) in enumerate(zip(posteriors, truths, strict=True)):
                scores = _scores(self.members[index][0], posterior, cast(Truth, truth))
                last[index] = scores
                found[index] |= {f"{name}_at_{seen}": value for name, value in scores.items()}
            start = time.perf_counter()
        share = seconds / len(self.members)
        return [self._row(*outcome, share) for outcome in zip(self.members, last, found, strict=True)]

    def posteriors(self, progress: Progress) -> Iterator[tuple[int, list[Posterior]]]:
        """Yield the number of observations and the splits' estimates, float64, at every checkpoint and at the end."""
        cell = self.members[0][0]
        length, method = cell.stream.length, cast(StreamMethod, cell.settings.method.build())
        state, seen, waiting = method.init(self._noise(method)), 0, list[Tensor]()
        for blocks in zip(*self._drawn(), strict=True):
            waiting.append(torch.cat(blocks))
            seen += waiting[-1].shape[1]
            stop = seen in CHECKPOINTS or seen == length
            if stop or len(waiting) == BLOCKS:
                observations = torch.cat(waiting, 1)
                state = method.update_block(state, observations)
                waiting.clear()
                progress(observations.shape[1] * len(self.members))
            if stop:
                yield seen, [_estimate(method, state, index) for index in range(len(self.members))]

    def _drawn(self) -> Iterator[Iterator[Tensor]]:
        for split, members in groupby(self.members, key=itemgetter(1)):
            yield draw([cell.stream for cell, _ in members], split, BLOCK)

    def _noise(self, method: StreamMethod) -> dict[str, Tensor]:
        """Draw the initial normals; stream i has the seed i + 1, of PyTorch's generator, as published."""
        seeds = [cell.benchmark.seed + split + 1 for cell, split in self.members]
        drawn = [_normals(method.init_noise(self.members[0][0].stream.dim), seed) for seed in seeds]
        return {"seed": torch.tensor(seeds)} | {
            name: torch.stack([noise[name] for noise in drawn]) for name in drawn[0]
        }

    def _row(self, member: tuple[Cell, int], last: dict[str, float], found: dict[str, float], seconds: float) -> Row:
        cell, split = member
        return Row(
            *(cell.dataset, cell.entry, "final", split, 0, 0),
            status="ok" if last else "failed",
            reason=None if last else "non-finite estimate",
            hyper={},
            metrics={**last, **found, "runtime": seconds / 60} if last else {},
            seconds=seconds,
            details={"width": len(self.members), "device": "cpu", "compiled": False},
        )


def _scores(cell: Cell, posterior: Posterior, truth: Truth) -> dict[str, float]:
    moments = torch.cat([posterior.mean().unsqueeze(0), posterior.covariance()])
    return score_moments(cell, moments.numpy(), truth) if bool(moments.isfinite().all()) else {}


def _normals(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _estimate(method: StreamMethod, state: Any, index: int) -> Posterior:
    own = tree_map(lambda leaf: leaf[index] if leaf.ndim else leaf, state)
    posterior: Posterior = tree_map(lambda leaf: leaf.double(), method.posterior(own))
    return posterior
