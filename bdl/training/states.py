"""The states of a fit: where they start, what is kept of them, how they lie in memory, and which are finite."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from bdl.methods.base import MinibatchMethod
from bdl.methods.counters import StepCounters
from bdl.models.problem import Problem
from bdl.rng import trial_keys
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import Snapshot
from bdl.training.programs import generator, pairs, shaped
from bdl.training.trials import Pool, Trials


class TrainingState(NamedTuple):
    """What changes in the course of a fit, of R trials."""

    state: Any
    """The method's states, stacked."""
    buffers: dict[str, Tensor]
    """Running statistics of the model, stacked."""
    diverged: Tensor
    """As in `Snapshot`, int64, (R,)."""
    updates: int = 0
    """Updates made; the observations seen, for a stream."""
    epochs: int = 0
    """Epochs ended."""

    def save(self, checkpoint: Checkpoint, part: int) -> None:
        """Keep it as a part of a fit."""
        leaves = tree_leaves((self.state, self.buffers, self.diverged))
        numbers = {"updates": self.updates, "epochs": self.epochs}
        checkpoint.save(part, {str(i): leaf for i, leaf in enumerate(leaves)}, numbers)

    def restored(self, checkpoint: Checkpoint | None, part: int) -> "TrainingState":
        """Return what is kept of a part of a fit that starts with this state; this state if nothing is."""
        kept = checkpoint.load(part) if checkpoint else None
        if kept is None:
            return self
        leaves, tree = tree_flatten((self.state, self.buffers, self.diverged))
        found = [kept.tensors[str(i)].to(self.diverged.device) for i in range(len(leaves))]
        state, buffers, diverged = tree_unflatten(found, tree)
        return TrainingState(state, buffers, diverged, **kept.numbers)

    def snapshot(
        self, counters: StepCounters, index: Sequence[int], places: Sequence[int] | None = None, *, last: bool
    ) -> Snapshot:
        """Show trials `index`, which stand at `places`; None for all in their order."""
        shown = self.state, self.buffers, self.diverged
        if places is not None:
            where = torch.as_tensor(places, device=self.diverged.device)
            shown = tree_map(lambda leaf: leaf[where], shown)
        updates = torch.full_like(shown[2], self.updates)
        return Snapshot(counters, tuple(index), *shown, updates, last)


def initial_state(
    method: MinibatchMethod, problem: Problem, trials: Trials, device: torch.device, dtype: torch.dtype = torch.float32
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


def stacked_buffers(problem: Problem, count: int, pool: Pool) -> dict[str, Tensor]:
    """Return the running statistics that training starts from, of so many trials; counts stay integers."""
    return {
        name: value.to(pool.device, pool.dtype if value.is_floating_point() else None).repeat(
            count, *(1 for _ in value.shape)
        )
        for name, value in problem.buffers().items()
    }
