"""A fit as an iterator of snapshots: the last is the result, earlier ones are the curve."""

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
from bdl.training.traced import list_tensors
from bdl.training.trials import Pool, Trials
from bdl.training.updates import count_pairs, normal_generator, unflatten_normals

Progress = Callable[[int], None]
"""Called with the number of model-minibatches done since the last call."""


def ignore_progress(batches: int) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class EvaluationSchedule:
    """Counts at which a fit is evaluated while it runs; it is always evaluated at its end.

    They are the multiples of `every`, or with `log` 1, 2, 5, 10, 20, 50 ... from `first` on; with
    `log` there is no `every`. Observations are those of a stream.
    """

    unit: Literal["epochs", "updates", "observations"]
    every: int | None = None
    log: bool = False
    first: int = 1

    def due(self, counters: StepCounters) -> int | None:
        """Return the count on the axis if an evaluation is due, else None."""
        if self.unit == "epochs" and not counters.ended:
            return None
        count = self.axis_count(counters)
        return count if count > 0 and self._includes(count) else None

    def axis_count(self, counters: StepCounters) -> int:
        """Return the count, in `unit`, at which step counters stand."""
        return counters.epochs if self.unit == "epochs" else counters.updates

    def _includes(self, count: int) -> bool:
        if self.every is not None:
            return count % self.every == 0
        return count >= self.first and str(count).rstrip("0") in {"1", "2", "5"}

    def counts_between(self, before: int, after: int) -> Iterator[int]:
        """Return the counts with an evaluation above `before` and up to `after`."""
        return (count for count in range(before + 1, after + 1) if self._includes(count))


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some trials at one time."""

    counters: StepCounters
    index: tuple[int, ...]  # Positions of the trials among all that are fitted
    state: Any  # The method's states, stacked over these trials; for a direct fit its posteriors
    buffers: dict[str, Tensor]  # Running statistics of the model, stacked
    diverged: Tensor
    """Epoch (from 1) at whose end a trial's state was first found non-finite, int64, (R,).

    0 if it never was.
    """
    updates: Tensor  # Updates made by each trial, int64, (R,)
    last: bool  # Whether these trials are finished


class Fitting:
    """Trials that are to be fitted by a method.

    They are fitted in one of three ways: by minibatches (`bdl.training.engine.MinibatchFitting`),
    by methods that train by themselves (`bdl.training.direct.DirectFitting`) or from streams
    (`bdl.training.streaming`).
    """

    method: Method

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = ignore_progress,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Fit, and yield the trials whenever an evaluation is due, and in the end.

        What is fitted does not depend on evaluations.

        `progress` is called now and then with the number of model-minibatches done since. With a
        checkpoint, a fit that was interrupted has the same bits as one that was not; the last
        snapshots of trials that were finished before are yielded once more.
        """
        raise NotImplementedError

    def posterior(self, snapshot: Snapshot, position: int) -> Posterior:
        """Return the posterior of the trial at a position of the snapshot's `index`."""
        return self.method.posterior(
            tree_map(lambda leaf: leaf[position] if leaf.ndim else leaf, snapshot.state)
        )


def run_to_end(
    fitting: Fitting, progress: Progress = ignore_progress, checkpoint: Checkpoint | None = None
) -> Snapshot:
    """Run a fit to the end, and return all trials in their order.

    `counters` is that of the trials that were finished last.
    """
    snapshots = [snapshot for snapshot in fitting.run(None, progress, checkpoint) if snapshot.last]
    if len(snapshots) == 1:
        return snapshots[0]
    index = [position for snapshot in snapshots for position in snapshot.index]
    order = torch.tensor(index).argsort().to(snapshots[0].diverged.device)
    fields = [
        (snapshot.state, snapshot.buffers, snapshot.diverged, snapshot.updates)
        for snapshot in snapshots
    ]
    state, buffers, diverged, updates = tree_map(lambda *leaves: torch.cat(leaves)[order], *fields)
    counters = snapshots[-1].counters
    return Snapshot(counters, tuple(sorted(index)), state, buffers, diverged, updates, last=True)


class TrainingState(NamedTuple):
    """State of R trials in the course of their fit."""

    state: Any  # The method's states, stacked
    buffers: dict[str, Tensor]  # Running statistics of the model, stacked
    diverged: Tensor  # As in `Snapshot`, int64, (R,)
    updates: int = 0
    """Updates made; the observations seen, for a stream."""
    epochs: int = 0
    """Epochs ended."""

    @classmethod
    def start(cls, state: Any, problem: Problem, count: int, pool: Pool) -> Self:
        """Begin with the states of so many trials.

        Running statistics that count stay integers.
        """
        buffers = {
            name: torch.stack(
                [value.to(pool.device, pool.dtype if value.is_floating_point() else None)] * count
            )
            for name, value in problem.buffers().items()
        }
        return cls(state, buffers, torch.zeros(count, dtype=torch.int64, device=pool.device))

    def save(self, checkpoint: Checkpoint, group_number: int) -> None:
        """Save the state of a slot group."""
        leaves = tree_leaves((self.state, self.buffers, self.diverged))
        numbers = {"updates": self.updates, "epochs": self.epochs}
        checkpoint.save(group_number, {str(i): leaf for i, leaf in enumerate(leaves)}, numbers)

    def restore(self, checkpoint: Checkpoint | None, group_number: int) -> "TrainingState":
        """Return the saved state of a slot group that starts with this state.

        This state if there is none.
        """
        saved = checkpoint.load(group_number) if checkpoint else None
        if saved is None:
            return self
        tensors, numbers = saved
        leaves, tree = tree_flatten((self.state, self.buffers, self.diverged))
        saved_leaves = [tensors[str(i)].to(self.diverged.device) for i in range(len(leaves))]
        state, buffers, diverged = tree_unflatten(saved_leaves, tree)
        return TrainingState(state, buffers, diverged, **numbers)

    def snapshot(
        self,
        counters: StepCounters,
        index: Sequence[int],
        slots: Sequence[int] | None = None,
        *,
        last: bool,
    ) -> Snapshot:
        """Make a snapshot of trials `index` in these slots; None for all in their order."""
        fields = self.state, self.buffers, self.diverged
        if slots is not None:
            slot_index = torch.as_tensor(slots, device=self.diverged.device)
            fields = tree_map(lambda leaf: leaf[slot_index], fields)
        updates = torch.full_like(fields[2], self.updates)
        return Snapshot(counters, tuple(index), *fields, updates, last)


def make_initial_state(
    method: MinibatchMethod,
    problem: Problem,
    trials: Trials,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Make the states that training starts from, stacked over trials."""
    shapes = method.init_noise(problem)
    keys = trial_keys(trials.identities, "init").to(device)
    counter = torch.zeros((), dtype=torch.int32, device=device)
    pairs = normal_generator(dtype, compile=False)(keys, counter, count_pairs(shapes))
    return torch.func.vmap(lambda pair: method.init(problem, unflatten_normals(pair, shapes)))(
        pairs
    )


def find_finite_trials(state: Any) -> Tensor:
    """Return which trials of a stacked state are finite: bool, (R,).

    All their numbers must be finite, and the sum of each tensor as well: one pass of sums takes a
    fifteenth of the time of testing each number.
    """
    sums = [leaf.flatten(1).sum(1) if leaf.ndim > 1 else leaf for leaf in list_tensors(state)]
    # one test for all tensors: for a small model each call takes as long as a sum
    return torch.stack(sums).isfinite().all(0)
