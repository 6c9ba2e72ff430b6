"""Do the engine, the plain loop and JAX make the same update? From one state, with the same rows and samples."""

from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.methods.slang import SlangState
from bdl.rng import random_normals, trial_keys
from bdl.training.batches import iterate_minibatches
from bdl.training.fitting import EvaluationSchedule
from bdl.training.updates import count_pairs, unflatten_normals
from peers.agreement import difference
from peers.natural_loop import NaturalState
from peers.natural_loop import SlangState as SlangLoopState
from peers.natural_workload import Regressions, stacked

ENGINE, JAX = "engine", "JAX"
TOLERANCE = 1e-9
"""Largest difference of means and precisions, relative to the largest entry: float64 rounding
over one update.
"""
BEFORE = 100
"""Updates before the one that is compared. SLANG's eigenvectors are those of a Krylov space
(`bdl.methods.slang`), which misses up to 6e-5 of the matrix in the first tens of updates, while
the gap in its spectrum is small; after 60 it misses less than 1e-10."""


class Update(NamedTuple):
    """One update of all models, stacked: where it starts, what it is given, and where the engine went."""

    before: Any
    after: Any
    rows: Tensor
    """Row numbers, (R, M)."""
    theta: Tensor
    """Parameter samples, (R, S, D)."""
    rate: float


def agree(work: Regressions, *, compile: bool) -> dict[str, float]:
    """Compare an update of each contender with the plain loop's.

    The largest relative difference by name.
    """
    update = engine_update(work, BEFORE, compile=compile)
    found = {ENGINE: engine_numbers(update.after)} | (
        {JAX: jax_numbers(work, update)} if find_spec("jax") else {}
    )
    expected = loop_numbers(work, update)
    return {name: difference(numbers, expected) for name, numbers in found.items()}


def engine_update(work: Regressions, before: int, *, compile: bool) -> Update:
    """Let the engine make an update after so many, and reproduce the samples and minibatches that it used."""
    method, trials, shapes = work.method, work.trials, work.method.step_noise(work.problem)
    epochs = before // work.per_epoch + 1
    evaluations = work.fitting(epochs, compile=compile).run(EvaluationSchedule("updates", every=1))
    states = {
        look.counters.updates: look.state
        for look in evaluations
        if before <= look.counters.updates <= before + 1
    }
    keys = {stream: trial_keys(trials.identities, stream) for stream in ("noise", "shuffle")}
    count = torch.tensor(before, dtype=torch.int32)
    halves = random_normals(keys["noise"], count, count_pairs(shapes), dtype=work.pool.dtype)

    def sample(state: Any, own: Any) -> Tensor:
        return method.posterior(state).sample(unflatten_normals(own, shapes)["theta"])

    theta = torch.func.vmap(sample)(states[before], halves)
    schedule = replace(work.schedule, epochs=epochs)
    orders = iterate_minibatches(
        trials.rows, keys["shuffle"], schedule, batches_per_step=1, updates_done=before
    )
    _, (rows, *_) = next(orders)
    return Update(
        states[before], states[before + 1], rows.squeeze(1), theta, work.rate(before + 1)
    )


def engine_numbers(state: Any) -> dict[str, Tensor]:
    """Return the means and precisions of stacked states of the engine."""
    if isinstance(state, SlangState):
        return {"mu": state.mu, "P": state.U @ state.U.mT + state.d.diag_embed()}
    return {"mu": state.mu, "P": state.P}


def loop_numbers(work: Regressions, update: Update) -> dict[str, Tensor]:
    """Make the update of each model with the plain loop; means and precisions, stacked."""
    found = []
    for model, (rows, theta) in enumerate(
        zip(update.rows.numpy(), update.theta.numpy(), strict=True)
    ):
        state = loop_state(tree_map(lambda leaf, i=model: leaf[i], update.before))
        after = work.algorithm.update(state, theta, work.table(model).take(rows), update.rate)
        found.append(work.algorithm.numbers(after))
    return {name: torch.from_numpy(np.stack([own[name] for own in found])) for name in found[0]}


def jax_numbers(work: Regressions, update: Update) -> dict[str, Tensor]:
    """Make the update of all models with JAX; means and precisions, stacked."""
    from peers import natural_jax

    rows = stacked(
        [work.table(model).take(rows) for model, rows in enumerate(update.rows.numpy())]
    )
    found = natural_jax.numbers(
        work.algorithm, loop_state(update.before), update.theta.numpy(), rows, update.rate
    )
    return {name: torch.from_numpy(value.copy()) for name, value in found.items()}


def loop_state(state: Any) -> Any:
    """Copy a state of the engine for the peers, of one model or of several that are stacked."""
    if isinstance(state, SlangState):
        return SlangLoopState(*(leaf.numpy() for leaf in state))
    return NaturalState(state.mu.numpy(), state.P.numpy())
