"""Fits of methods that learn from streams of parameter vectors.

All streams of one dimension are fitted as one batch.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.data import Stream, draw_blocks
from bdl.errors import InputError
from bdl.methods.base import StreamMethod
from bdl.methods.contract_check import check_state, returned_by
from bdl.methods.counters import StepCounters
from bdl.runtime import one_thread
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import (
    EvaluationSchedule,
    Fitting,
    Progress,
    Snapshot,
    TrainingState,
    ignore_progress,
)

_DRAW_BLOCK, _LEARN_BLOCK = 100, 1000
"""Observations of one draw, and of one update; the second is a multiple of the first."""


class StreamTrial(NamedTuple):
    """One stream to learn from."""

    stream: Stream
    split: int
    seed: int  # Of the method's initial normals, and of libraries with random numbers of their own


@dataclass(frozen=True, eq=False)
class StreamFitting(Fitting):
    """Learn from streams of one dimension and length as one batch.

    The streams of a split share their draws.

    The bits of a stream do not depend on the others in the batch. A single stream has one thread,
    since its sums would be split among several, and rounded accordingly.
    """

    method: StreamMethod
    trials: Sequence[StreamTrial]

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = ignore_progress,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Learn, and yield all streams where evaluations are due and in the end.

        `updates` counts observations.

        An update takes a thousand observations. An evaluation within such a block learns from its
        beginning on the side and forgets it again: it finds what a stream of that length gives,
        and leaves no trace. `InputError` if evaluations count anything else.
        """
        if evaluations is not None and evaluations.unit != "observations":
            raise InputError(
                f"evaluations: a stream has no {evaluations.unit}; count observations"
            )
        with one_thread() if len(self.trials) == 1 else nullcontext():
            yield from self._learn(evaluations, progress, checkpoint)

    def _learn(
        self,
        evaluations: EvaluationSchedule | None,
        progress: Progress,
        checkpoint: Checkpoint | None,
    ) -> Iterator[Snapshot]:
        n_streams, length = len(self.trials), self.trials[0].stream.length
        never_diverged = torch.zeros(n_streams, dtype=torch.int64)
        state = self.method.init(self._noise())
        with returned_by(self.method, "init", state):
            check_state(state)
        initial = TrainingState(state, {}, never_diverged)
        start = current = initial.restore(checkpoint, 0)
        progress(start.updates * n_streams)
        for observations in self._observations(start.updates):
            before, after = current.updates, current.updates + observations.shape[1]
            if evaluations:
                # the last observation is that of the final snapshot
                for count in evaluations.counts_between(before, min(after, length - 1)):
                    yield self._snapshot(self._update(current, observations[:, : count - before]))
            current = self._update(current, observations)
            progress(observations.shape[1] * n_streams)
            if checkpoint and checkpoint.due:
                current.save(checkpoint, 0)
        yield self._snapshot(current, last=True)

    def _update(self, current: TrainingState, observations: Tensor) -> TrainingState:
        state = self.method.update_block(current.state, observations)
        return current._replace(state=state, updates=current.updates + observations.shape[1])

    def _observations(self, observations_done: int) -> Iterator[Tensor]:
        """Yield the observations, (R, up to 1000, D), after those that are done."""
        before, waiting = 0, list[Tensor]()
        split_draws = [
            draw_blocks([trial.stream for trial in trials], split, _DRAW_BLOCK)
            for split, trials in groupby(self.trials, key=lambda trial: trial.split)
        ]
        for blocks in zip(*split_draws, strict=True):
            waiting.append(torch.cat(blocks))
            n_waiting = sum(block.shape[1] for block in waiting)
            if n_waiting >= _LEARN_BLOCK or before + n_waiting == self.trials[0].stream.length:
                if before >= observations_done:
                    yield torch.cat(waiting, 1)
                before += n_waiting
                waiting.clear()

    def _noise(self) -> dict[str, Tensor]:
        """Draw the initial normals by PyTorch's generator, as published."""
        seeds = [trial.seed for trial in self.trials]
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        noise = {"seed": torch.tensor(seeds)}
        for name, shape in self.method.init_noise(self.trials[0].stream.dim).items():
            normals = [torch.randn(shape, generator=generator) for generator in generators]
            noise[name] = torch.stack(normals)
        return noise

    def _snapshot(self, current: TrainingState, last: bool = False) -> Snapshot:
        return current.snapshot(StepCounters(current.updates), range(len(self.trials)), last=last)
