"""The work of a cell whose method learns from streams: all of them together, and a look at every checkpoint."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.methods.base import Shapes, StreamMethod
from bdl.posteriors.base import Posterior
from bdl.references.base import Truth
from bdl.runs.checks import CHECKPOINTS
from bdl.runs.plan import Cell
from bdl.runs.scoring import score_moments
from bdl.runs.store import Row
from bdl.training.engine import Progress

BLOCK, BLOCKS = 100, 10
"""Observations drawn at a time, of which every checkpoint is a multiple, and how many blocks are handed over."""


@dataclass(frozen=True, eq=False)
class StreamGroup:
    """Learn from the streams of some splits as one batch."""

    cell: Cell
    splits: tuple[int, ...]

    def run(self, progress: Progress) -> list[Row]:
        """Do the work; one row a split, with the distances at the end and ``<metric>_at_<n>`` at each checkpoint."""
        truths = [self.cell.truth(split) for split in self.splits]
        found, last = ([dict[str, float]() for _ in self.splits] for _ in range(2))
        seconds, start = 0.0, time.perf_counter()
        for seen, posteriors in self.posteriors(progress):
            seconds += time.perf_counter() - start
            for index, (posterior, truth) in enumerate(zip(posteriors, truths, strict=True)):
                scores = self._scores(posterior, cast(Truth, truth))
                last[index] = scores
                found[index] |= {f"{name}_at_{seen}": value for name, value in scores.items()}
            start = time.perf_counter()
        share = seconds / len(self.splits)
        return [self._row(*outcome, share) for outcome in zip(self.splits, last, found, strict=True)]

    def posteriors(self, progress: Progress) -> Iterator[tuple[int, list[Posterior]]]:
        """Yield the number of observations and the splits' estimates, float64, at every checkpoint and at the end."""
        stream, method = self.cell.stream, cast(StreamMethod, self.cell.settings.method.build())
        state, seen, waiting = method.init(self._noise(method)), 0, list[Tensor]()
        for blocks in zip(*(stream.blocks(split, BLOCK) for split in self.splits), strict=True):
            waiting.append(torch.stack(blocks))
            seen += len(blocks[0])
            stop = seen in CHECKPOINTS or seen == stream.length
            if stop or len(waiting) == BLOCKS:
                observations = torch.cat(waiting, 1)
                state = method.update_block(state, observations)
                waiting.clear()
                progress(observations.shape[1] * len(self.splits))
            if stop:
                yield seen, [_estimate(method, state, index) for index in range(len(self.splits))]

    def _noise(self, method: StreamMethod) -> dict[str, Tensor]:
        """Draw the initial normals; stream i has the seed i + 1, of PyTorch's generator, as published."""
        seeds, shapes = [self.cell.benchmark.seed + split + 1 for split in self.splits], method.init_noise
        drawn = [_normals(shapes(self.cell.stream.dim), seed) for seed in seeds]
        return {"seed": torch.tensor(seeds)} | {
            name: torch.stack([noise[name] for noise in drawn]) for name in drawn[0]
        }

    def _scores(self, posterior: Posterior, truth: Truth) -> dict[str, float]:
        moments = torch.cat([posterior.mean().unsqueeze(0), posterior.covariance()])
        return score_moments(self.cell, moments.numpy(), truth) if bool(moments.isfinite().all()) else {}

    def _row(self, split: int, last: dict[str, float], found: dict[str, float], seconds: float) -> Row:
        return Row(
            *(self.cell.dataset, self.cell.entry, "final", split, 0, 0),
            status="ok" if last else "failed",
            reason=None if last else "non-finite estimate",
            hyper={},
            metrics={**last, **found, "runtime": seconds / 60} if last else {},
            seconds=seconds,
            details={"width": len(self.splits), "device": "cpu", "compiled": False},
        )


def _normals(shapes: Shapes, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def _estimate(method: StreamMethod, state: Any, index: int) -> Posterior:
    own = tree_map(lambda leaf: leaf[index] if leaf.ndim else leaf, state)
    posterior: Posterior = tree_map(lambda leaf: leaf.double(), method.posterior(own))
    return posterior
