"""First calls of a stepped method, outside of `vmap`, whose results are checked before training."""

from typing import Any, cast

import torch
from torch.utils._pytree import tree_map

from bdl.methods.base import MinibatchMethod
from bdl.methods.contract_check import (
    KnownHyper,
    check_dtypes,
    check_numbers,
    check_state,
    check_update,
    returned_by,
)
from bdl.methods.counters import StepCounters
from bdl.posteriors.base import Posterior, check_posterior
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys
from bdl.training.engine import scheduled_hyper
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Trials, View
from bdl.training.updates import count_pairs, normal_generator, unflatten_normals, update_kind


def check_initial_state(setup: TrainingSetup, trials: Trials) -> Any:
    """Return the initial state of the first of the trials, one model's.

    `InputError` if `init` or `posterior` does not return what a method has to, with the line where
    it is defined.
    """
    method, dtype = cast(MinibatchMethod, setup.method), setup.pool.dtype
    shapes = method.init_noise(setup.problem)
    state = method.init(setup.problem, _draw_normals(setup, trials, "init", shapes))
    with returned_by(method, "init", state):
        check_state(state, dtype)
    _call_posterior(setup, state)
    return state


def check_first_update(setup: TrainingSetup, trials: Trials, state: Any) -> None:
    """Make the first update of a state that `check_initial_state` has returned.

    `InputError` if it does not return a finite state of the same form, or the posterior of that is
    not finite.
    """
    method, schedule, pool = cast(MinibatchMethod, setup.method), setup.schedule, setup.pool
    assert schedule is not None, "minibatches need a schedule"
    count, size = method.batches_per_step, schedule.batch_size
    rows = torch.as_tensor(trials.rows[0], device=pool.device)
    # the first rows, over and over where there are fewer
    indices = rows[torch.arange(count * size, device=pool.device) % len(rows)]
    indices = indices if count == 1 else indices.view(count, size)
    batches = View(*(value[0] for value in trials.view)).batch(pool.x[indices], pool.y[indices])
    hyper = {name: value[0] for name, value in as_type(dict(trials.hyper), pool.dtype).items()}
    per_epoch, total = schedule.batches(len(rows)) / count, schedule.updates(len(rows), count)
    counters = StepCounters(1, 0, ended=False, per_epoch=per_epoch, total=total)
    hyper |= scheduled_hyper(schedule, method, hyper, counters)
    normals = _draw_normals(setup, trials, "noise", method.step_noise(setup.problem))
    for function in update_kind(method, counters):
        updated = getattr(method, function)(
            state, batches, KnownHyper(hyper), normals, setup.problem
        )
        with returned_by(method, function, updated):
            check_update(state, updated)
            check_numbers(updated, "the first update has to return numbers")
        state = updated
    posterior = _call_posterior(setup, state)
    # a posterior of iterates needs more of them than one
    if not method.idle_epochs:
        with returned_by(method, "posterior", posterior):
            check_numbers(posterior, "after the first update it has to be")


def _call_posterior(setup: TrainingSetup, state: Any) -> Posterior:
    """Return the posterior of one model's state, whose form is checked."""
    posterior = setup.method.posterior(state)
    with returned_by(setup.method, "posterior", posterior):
        check_posterior(posterior, setup.problem.dim)
        check_dtypes(posterior, setup.pool.dtype)
    return posterior


def _draw_normals(
    setup: TrainingSetup, trials: Trials, stream: str, shapes: Any
) -> dict[str, torch.Tensor]:
    """Draw the first trial's first normals of a stream."""
    pool = setup.pool
    keys = trial_keys(trials.identities[:1], stream).to(pool.device)
    counter = torch.zeros((), dtype=torch.int32, device=pool.device)
    pairs = normal_generator(pool.dtype, compile=False)(keys, counter, count_pairs(shapes))
    return unflatten_normals(tree_map(lambda half: half[0], pairs), shapes)
