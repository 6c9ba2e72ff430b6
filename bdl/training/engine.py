"""The engine: trains R trials as one program, by `vmap` of a method's single-model step."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from bdl.methods.base import Method
from bdl.models.problem import Hyper, Problem
from bdl.rng import random_bits, random_normals, trial_keys
from bdl.training.batches import minibatches
from bdl.training.compiling import compiled
from bdl.training.memory import keep_freed_memory
from bdl.training.noise import pairs, shaped
from bdl.training.trials import Pool, Trials, View

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Schedule:
    """How long and in what pieces to train.

    Parameters
    ----------
    epochs
        Passes over the training rows.
    batch_size
        Rows in a minibatch, M.
    """

    epochs: int
    batch_size: int


class Fit(NamedTuple):
    """What `train` gives back, in the order of the trials."""

    state: Any
    """The method's states, stacked over trials."""
    diverged: Tensor
    """Epoch (from 1) in which a trial's state became non-finite, 0 if it never did; int64, (R,)."""
    updates: Tensor
    """Updates made by each trial; int64, (R,)."""


def train(
    method: Method,
    problem: Problem,
    pool: Pool,
    trials: Trials,
    schedule: Schedule,
    *,
    compile: bool = False,
    progress: Progress = lambda minibatches: None,
) -> Fit:
    """Train every trial; a trial's result does not depend on its companions.

    Parameters
    ----------
    method, problem
        What is trained, on what kind of model.
    pool
        The shared data; its device is where the work is done.
    trials
        Rows, scalings, hyper-parameters and identities.
    schedule
        Epochs and minibatch size.
    compile
        Use `torch.compile`; `bdl.training.compiling.worthwhile` says when it pays.
    progress
        Called after each epoch with the number of model-minibatches it had.

    Returns
    -------
    Fit
        A diverged trial has non-finite numbers in its state and leaves the others alone.
    """
    if pool.device.type == "cpu":
        keep_freed_memory()
    groups: dict[int, list[int]] = {}
    for index, rows in enumerate(trials.rows):
        groups.setdefault(len(rows) // schedule.batch_size, []).append(index)
    fits = [
        _train_together(method, problem, pool, trials.take(group), schedule, compile, progress)
        for group in groups.values()
    ]
    positions = torch.tensor([index for group in groups.values() for index in group])
    order = positions.argsort().to(pool.device)
    fit: Fit = tree_map(lambda *parts: torch.cat(parts)[order], *fits)
    return fit


def initial_state(method: Method, problem: Problem, trials: Trials, device: torch.device) -> Any:
    """Make the states that training starts from, stacked over trials."""
    shapes = method.init_noise(problem)
    keys = trial_keys(trials.identities, "init").to(device)
    normals = random_normals(keys, _counter(0, device), pairs(shapes))
    return torch.func.vmap(lambda halves: method.init(problem, shaped(halves, shapes)))(normals)


def _train_together(
    method: Method,
    problem: Problem,
    pool: Pool,
    trials: Trials,
    schedule: Schedule,
    compile: bool,
    progress: Progress,
) -> Fit:
    """Train trials that have the same number of minibatches an epoch."""
    step, normals, bits = _programs(method, problem, compile)
    noise_keys, shuffle_keys = (
        trial_keys(trials.identities, stream).to(pool.device) for stream in ("noise", "shuffle")
    )
    if compile:  # one program for data sets of any length
        torch._dynamo.maybe_mark_dynamic(pool.x, 0)
        torch._dynamo.maybe_mark_dynamic(pool.y, 0)
    state = initial_state(method, problem, trials, pool.device)
    n_pairs, count = pairs(method.step_noise(problem)), 0
    diverged = torch.zeros(len(trials), dtype=torch.int64, device=pool.device)
    stream = minibatches(
        trials.rows,
        shuffle_keys,
        batch_size=schedule.batch_size,
        epochs=schedule.epochs,
        batches_per_step=method.batches_per_step,
        bits=bits,
    )
    for epoch, updates in enumerate(stream, start=1):
        for rows in updates:
            noise = normals(noise_keys, _counter(count, pool.device), n_pairs)
            state = step(state, noise, rows, pool.x, pool.y, trials.view, trials.hyper)
            count += 1
        if len(updates):
            diverged = torch.where((diverged == 0) & ~finite(state), epoch, diverged)
        progress(len(updates) * len(trials) * method.batches_per_step)
    return Fit(state, diverged, torch.full_like(diverged, count))


@lru_cache(maxsize=64)
def _programs(method: Method, problem: Problem, compile: bool) -> tuple[Callable[..., Any], ...]:
    """Make the batched step and the two generators, compiled or not."""
    shapes = method.step_noise(problem)

    def one(
        state: Any, noise: tuple[Tensor, Tensor], rows: Tensor, x: Tensor, y: Tensor, view: View, hyper: Hyper
    ) -> Any:
        return method.step(state, view.batch(x, y, rows), hyper, shaped(noise, shapes), problem)

    step = torch.func.vmap(one, in_dims=(0, 0, 0, None, None, 0, 0))
    return (compiled(step), *_generators()) if compile else (step, random_normals, random_bits)


@lru_cache(maxsize=1)
def _generators() -> tuple[Callable[..., Any], Callable[..., Any]]:
    # Four rounds of the cipher are 28 operations. Told to keep the result of so many, the compiler takes a
    # quarter of the time; left to itself it repeats rounds within rounds.
    options = {"realize_opcount_threshold": 28}
    normals, bits = (compiled(function, dynamic=True, options=options) for function in (random_normals, random_bits))
    return normals, bits


def finite(state: Any) -> Tensor:
    """Tell which trials of a stacked state hold only finite numbers, whose sum is finite as well: bool, (R,).

    One pass of sums takes a fifteenth of the time of testing each number.
    """
    flags = [leaf.reshape(len(leaf), -1).sum(1).isfinite() for leaf in tree_leaves(state)]
    return torch.stack(flags).all(0)


def _counter(value: int, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=torch.int32, device=device)
