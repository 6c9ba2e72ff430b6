"""Fits of methods that learn from streams of parameter vectors: all streams of one dimension as one batch."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.data import Stream, draw
from bdl.errors import InputError
from bdl.methods.base import StreamMethod
from bdl.methods.counters import StepCounters
from bdl.runtime import one_thread
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import (
    EvaluationSchedule,
    Fitting,
    Progress,
    Snapshot,
    TrainingState,
    silent,
)

_DRAWN, _LEARNT = 100, 1000
"""Observations that are drawn, and that are learnt from, at a time; the second is a multiple of
the first.
"""


class StreamTrial(NamedTuple):
    """One stream to learn from."""

    stream: Stream
    split: int
    seed: int  # Of the method's initial normals, and of libraries with random numbers of their own


@dataclass(frozen=True, eq=False)
class StreamFitting(Fitting):
    """Learn from streams of one dimension and length as one batch.

    Those of a split, side by side, share draws.

    The bits of a stream do not depend on its companions. One by itself has one thread, since its
    sums would be split among several, and rounded accordingly.
    """

    method: StreamMethod
    trials: Sequence[StreamTrial]

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Learn, and yield all streams where evaluations are due and in the end.

        `updates` counts observations.

        Observations are learnt from a thousand at a time. An evaluation between two thousands
        learns from the part on the side and forgets it again: it finds what a stream of that
        length gives, and leaves no trace. `InputError` if evaluations count anything else.
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
        length = self.trials[0].stream.length
        none = torch.zeros(len(self.trials), dtype=torch.int64)
        begun = current = TrainingState(self.method.init(self._noise()), {}, none).restored(
            checkpoint, 0
        )
        progress(begun.updates * len(self.trials))
        for observations in self._observations(begun.updates):
            seen, after = current.updates, current.updates + observations.shape[1]
            for place in evaluations.within(seen, min(after, length - 1)) if evaluations else ():
                yield self._snapshot(self._update(current, observations[:, : place - seen]))
            current = self._update(current, observations)
            progress(observations.shape[1] * len(self.trials))
            if checkpoint and checkpoint.due:
                current.save(checkpoint, 0)
        yield self._snapshot(current, last=True)

    def _update(self, current: TrainingState, observations: Tensor) -> TrainingState:
        state = self.method.update_block(current.state, observations)
        return current._replace(state=state, updates=current.updates + observations.shape[1])

    def _observations(self, done: int) -> Iterator[Tensor]:
        """Yield the observations, (R, up to 1000, D), after those that are done."""
        seen, waiting = 0, list[Tensor]()
        splits = groupby(self.trials, key=lambda trial: trial.split)
        drawn_of = [
            draw([trial.stream for trial in members], split, _DRAWN) for split, members in splits
        ]
        for blocks in zip(*drawn_of, strict=True):
            waiting.append(torch.cat(blocks))
            drawn = sum(block.shape[1] for block in waiting)
            if drawn >= _LEARNT or seen + drawn == self.trials[0].stream.length:
                if seen >= done:
                    yield torch.cat(waiting, 1)
                seen += drawn
                waiting.clear()

    def _noise(self) -> dict[str, Tensor]:
        """Draw the initial normals by PyTorch's generator, as published."""
        seeds, shapes = (
            [trial.seed for trial in self.trials],
            self.method.init_noise(self.trials[0].stream.dim),
        )
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        return {"seed": torch.tensor(seeds)} | {
            name: torch.stack([torch.randn(shape, generator=own) for own in generators])
            for name, shape in shapes.items()
        }

    def _snapshot(self, current: TrainingState, last: bool = False) -> Snapshot:
        return current.snapshot(StepCounters(current.updates), range(len(self.trials)), last=last)
