"""A fit is an iterator of snapshots: the last is the result, earlier ones are the curve."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.errors import InputError
from bdl.methods.counters import StepCounters
from bdl.posteriors.base import Posterior
from bdl.training.checkpoint import Checkpoint

Progress = Callable[[int], None]
"""Hears of model-minibatches done."""


def silent(done: int) -> None:
    """Ignore work done."""


@dataclass(frozen=True)
class EvaluationSchedule:
    """When a fit is evaluated while it runs, beside its end.

    Parameters
    ----------
    unit
        What is counted; observations are those of a stream.
    every
        Distance of two evaluations; None with `log`.
    log
        Evaluations are at 1, 2, 5, 10, 20, 50 and so on.
    first
        The first evaluation of those that `log` gives.

    Raises
    ------
    InputError
        If it says both, or neither.
    """

    unit: Literal["epochs", "updates", "observations"]
    every: int | None = None
    log: bool = False
    first: int = 1

    def __post_init__(self) -> None:
        if self.log == (self.every is not None):
            raise InputError("evaluations: give either every, or log: true")

    def due(self, counters: StepCounters) -> int | None:
        """Return the place on the axis if an evaluation is due, else None."""
        if self.unit == "epochs" and not counters.ended:
            return None
        place = self.place(counters)
        return place if place > 0 and self._takes(place) else None

    def place(self, counters: StepCounters) -> int:
        """Return the place on the axis where counters stand."""
        return counters.epochs if self.unit == "epochs" else counters.updates

    def _takes(self, place: int) -> bool:
        if self.every is not None:
            return place % self.every == 0
        return place >= self.first and str(place).rstrip("0") in {"1", "2", "5"}

    def within(self, before: int, after: int) -> Iterator[int]:
        """Return the places above `before` and up to `after`."""
        return (place for place in range(before + 1, after + 1) if self._takes(place))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some trials at one time."""

    counters: StepCounters
    index: tuple[int, ...]
    """Positions of the trials among all that are fitted."""
    state: Any
    """The method's states, stacked over these trials; for a direct fit its posteriors."""
    buffers: dict[str, Tensor]
    """Running statistics of the model, stacked."""
    diverged: Tensor
    """Epoch (from 1) at whose end a trial's state was first found non-finite, 0 if it never was; int64, (R,)."""
    updates: Tensor
    """Updates made by each trial, int64, (R,)."""
    last: bool
    """Whether these trials are finished."""


class Fitting(Protocol):
    """Trials that are to be fitted."""

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Fit, and yield the trials whenever an evaluation is due, and in the end.

        Parameters
        ----------
        evaluations
            When to yield beside the end; what is fitted does not depend on it.
        progress
            Called now and then with the number of model-minibatches done since.
        checkpoint
            Where to keep what is done and to go on from: a fit that was cut off gives the same bits as one that was
            not. The last snapshots of trials that were finished by then are yielded once more.
        """
        ...

    def posterior(self, snapshot: Snapshot, position: int) -> Posterior:
        """Return the posterior of the trial at a position of the snapshot's `index`."""
        ...


def finished(fitting: Fitting, progress: Progress = silent, checkpoint: Checkpoint | None = None) -> Snapshot:
    """Run to the end, and return all trials in their order; `counters` is that of those that were finished last."""
    parts = [part for part in fitting.run(None, progress, checkpoint) if part.last]
    if len(parts) == 1:
        return parts[0]
    index = [position for part in parts for position in part.index]
    order = torch.tensor(index).argsort().to(parts[0].diverged.device)
    state, buffers, diverged, updates = tree_map(
        lambda *leaves: torch.cat(leaves)[order],
        *((part.state, part.buffers, part.diverged, part.updates) for part in parts),
    )
    return Snapshot(parts[-1].counters, tuple(sorted(index)), state, buffers, diverged, updates, last=True)
