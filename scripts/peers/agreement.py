"""Do the contenders compute the same thing? One update from one state, with the same noise and minibatches."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.methods.optim import DescentState
from bdl.methods.vifa import Vifa
from bdl.rng import random_normals, trial_keys
from bdl.training.batches import iterate_minibatches
from bdl.training.fitting import run_to_end
from bdl.training.schedule import Schedule
from bdl.training.updates import count_pairs, unflatten_normals
from peers.torch_loop import LoopModel
from peers.workload import BATCH_SIZE, Setting, Workload

TOLERANCE = 1e-5
"""Largest difference, relative to the largest entry of the tensor: float32 rounding over one
update.
"""
_BEFORE = 10
"""Updates before the one that is compared: Adam's first steps hide the size of a gradient."""
_CHECKED = 8
"""Trials compared; more would meet a ReLU whose input rounds to the other side of zero."""


class Update(NamedTuple):
    """One update of some trials, stacked: where it starts, what it is given, and where the engine went."""

    before: DescentState
    setting: Setting[Tensor]
    data: tuple[Tensor, Tensor]
    rows: Tensor
    h: Tensor
    z: Tensor
    after: DescentState

    def trial(self, index: int) -> "Update":
        """Take the update of one trial."""
        one: Update = tree_map(lambda leaf: leaf[index], self)
        return one


Contender = Callable[[Update], Mapping[str, Tensor]]


def engine_update(work: Workload[Vifa], compile: bool) -> Update:
    """Let the engine make an update, and reproduce the noise and minibatches that it used.

    Parameters
    ----------
    work
        Trials with as many training rows as one update takes, so that an epoch is an update.
    compile
        Which of the engine's two ways.
    """
    method, trials = work.method, work.trials
    before, after = (
        run_to_end(work.fitting(epochs, compile=compile)).state
        for epochs in (_BEFORE, _BEFORE + 1)
    )
    keys = {stream: trial_keys(trials.identities, stream) for stream in ("noise", "shuffle")}
    shapes = method.step_noise(work.problem)
    halves = random_normals(
        keys["noise"], torch.tensor(_BEFORE, dtype=torch.int32), count_pairs(shapes)
    )
    noise = torch.func.vmap(lambda own: unflatten_normals(own, shapes))(halves)
    schedule = Schedule(_BEFORE + 1, BATCH_SIZE)
    *_, (_, (rows,)) = iterate_minibatches(
        trials.rows, keys["shuffle"], schedule, batches_per_step=method.batches_per_step
    )
    everything = Update(before, work.settings(), work.data(), rows, noise["h"], noise["z"], after)
    some: Update = tree_map(lambda leaf: leaf[:_CHECKED], everything)
    return some


def engine_numbers(update: Update) -> Mapping[str, Tensor]:
    """Return the engine's result of the update."""
    params, (first, second, _) = update.after
    return {
        **params,
        **{f"first {name}": value for name, value in first.items()},
        **{f"second {name}": value for name, value in second.items()},
    }


def loop_numbers(
    work: Workload[Vifa], update: Update, *, together: bool = False
) -> Mapping[str, Tensor]:
    """Make the update of each trial with the plain loop."""
    results = []
    for index in range(len(update.rows)):
        one = update.trial(index)
        model = LoopModel(work.method, one.before, one.setting, *one.data, together=together)
        model.update(one.rows, one.h, one.z)
        results.append(model.numbers())
    return {name: torch.stack([result[name] for result in results]) for name in results[0]}


def jax_numbers(work: Workload[Vifa], update: Update) -> Mapping[str, Tensor]:
    """Make the update of all trials with JAX."""
    import jax

    from peers import jax_scan

    x, y = (
        torch.stack([own[rows] for own, rows in zip(table, update.rows, strict=True)])
        for table in update.data
    )
    start = jax_scan.state_from_torch(update.before)
    given = jax_scan.from_torch((update.setting, x, y, update.h, update.z))
    return jax_scan.numbers(
        jax.vmap(lambda *args: jax_scan.update(work.method, *args))(start, *given)
    )


def difference(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> float:
    """Largest difference of two results, each tensor relative to its largest entry."""
    assert left.keys() == right.keys()
    return max(
        float((left[name] - right[name]).abs().max() / right[name].abs().max()) for name in right
    )
