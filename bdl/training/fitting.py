"""A fit is an iterator of snapshots: the last is the result, earlier ones are the curve.

And the states behind them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from bdl.methods.base import Method, MinibatchMethod
from bdl.methods.counters import StepCounters
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior
from bdl.rng import trial_keys
from bdl.training.checkpoint import Checkpoint
from bdl.training.programs import generator, pairs, shaped
from bdl.training.trials import Pool, Trials

Progress = Callable[[int], None]
"""Hears of model-minibatches done."""


def silent(done: int) -> None:
    """Ignore work done."""


@dataclass(frozen=True)
class EvaluationSchedule:
    """When a fit is evaluated while it runs, beside its end: `every` so many, or by `log` at 1, 2, 5, 10, 20, 50 ...

    With `log` there is no `every`, and `first` is the first evaluation. Observations are those of
    a stream.
    """

    unit: Literal["epochs", "updates", "observations"]
    every: int | None = None
    log: bool = False
    first: int = 1

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
    index: tuple[int, ...]  # Positions of the trials among all that are fitted
    state: Any  # The method's states, stacked over these trials; for a direct fit its posteriors
    buffers: dict[str, Tensor]  # Running statistics of the model, stacked
    diverged: Tensor
    """Epoch (from 1) at whose end a trial's state was first found non-finite, 0 if it never was;
    int64, (R,).
    """
    updates: Tensor  # Updates made by each trial, int64, (R,)
    last: bool  # Whether these trials are finished


class Fitting:
    """Trials that are to be fitted by a method."""

    method: Method

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Fit, and yield the trials whenever an evaluation is due, and in the end.

        What is fitted depends on none.

        `progress` is called now and then with the number of model-minibatches done since. With a
        checkpoint, a fit that was cut off gives the same bits as one that was not; the last
        snapshots of trials that were finished by then are yielded once more.
        """
        raise NotImplementedError

    def posterior(self, snapshot: Snapshot, position: int) -> Posterior:
        """Return the posterior of the trial at a position of the snapshot's `index`."""
        return self.method.posterior(
            tree_map(lambda leaf: leaf[position] if leaf.ndim else leaf, snapshot.state)
        )


def finished(
    fitting: Fitting, progress: Progress = silent, checkpoint: Checkpoint | None = None
) -> Snapshot:
    """Run to the end, and return all trials in their order.

    `counters` is that of those that were finished last.
    """
    parts = [part for part in fitting.run(None, progress, checkpoint) if part.last]
    if len(parts) == 1:
        return parts[0]
    index = [position for part in parts for position in part.index]
    order = torch.tensor(index).argsort().to(parts[0].diverged.device)
    state, buffers, diverged, updates = tree_map(
        lambda *leaves: torch.cat(leaves)[order],
        *((part.state, part.buffers, part.diverged, part.updates) for part in parts),
    )
    return Snapshot(
        parts[-1].counters, tuple(sorted(index)), state, buffers, diverged, updates, last=True
    )


class TrainingState(NamedTuple):
    """What changes in the course of a fit, of R trials."""

    state: Any  # The method's states, stacked
    buffers: dict[str, Tensor]  # Running statistics of the model, stacked
    diverged: Tensor  # As in `Snapshot`, int64, (R,)
    updates: int = 0
    """Updates made; the observations seen, for a stream."""
    epochs: int = 0
    """Epochs ended."""

    @classmethod
    def start(cls, state: Any, problem: Problem, count: int, pool: Pool) -> Self:
        """Begin with the states of so many trials; running statistics that count stay integers."""
        buffers = {
            name: torch.stack(
                [value.to(pool.device, pool.dtype if value.is_floating_point() else None)] * count
            )
            for name, value in problem.buffers().items()
        }
        return cls(state, buffers, torch.zeros(count, dtype=torch.int64, device=pool.device))

    def save(self, checkpoint: Checkpoint, part: int) -> None:
        """Keep it as a part of a fit."""
        leaves = tree_leaves((self.state, self.buffers, self.diverged))
        numbers = {"updates": self.updates, "epochs": self.epochs}
        checkpoint.save(part, {str(i): leaf for i, leaf in enumerate(leaves)}, numbers)

    def restored(self, checkpoint: Checkpoint | None, part: int) -> "TrainingState":
        """Return what is kept of a part of a fit that starts with this state.

        This state if nothing is.
        """
        kept = checkpoint.load(part) if checkpoint else None
        if kept is None:
            return self
        tensors, numbers = kept
        leaves, tree = tree_flatten((self.state, self.buffers, self.diverged))
        found = [tensors[str(i)].to(self.diverged.device) for i in range(len(leaves))]
        state, buffers, diverged = tree_unflatten(found, tree)
        return TrainingState(state, buffers, diverged, **numbers)

    def snapshot(
        self,
        counters: StepCounters,
        index: Sequence[int],
        places: Sequence[int] | None = None,
        *,
        last: bool,
    ) -> Snapshot:
        """Show trials `index`, which stand at `places`; None for all in their order."""
        shown = self.state, self.buffers, self.diverged
        if places is not None:
            where = torch.as_tensor(places, device=self.diverged.device)
            shown = tree_map(lambda leaf: leaf[where], shown)
        updates = torch.full_like(shown[2], self.updates)
        return Snapshot(counters, tuple(index), *shown, updates, last)


def initial_state(
    method: MinibatchMethod,
    problem: Problem,
    trials: Trials,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Make the states that training starts from, stacked over trials."""
    shapes = method.init_noise(problem)
    keys = trial_keys(trials.identities, "init").to(device)
    normals = generator(dtype, compile=False)
    drawn = normals(keys, torch.zeros((), dtype=torch.int32, device=device), pairs(shapes))
    return torch.func.vmap(lambda halves: method.init(problem, shaped(halves, shapes)))(drawn)


def finite(state: Any) -> Tensor:
    """Return which trials of a stacked state hold only finite numbers, whose sum is finite as well: bool, (R,).

    One pass of sums takes a fifteenth of the time of testing each number.
    """
    flags = [leaf.reshape(len(leaf), -1).sum(1).isfinite() for leaf in tree_leaves(state)]
    return torch.stack(flags).all(0)
