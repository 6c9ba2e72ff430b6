"""Predictions of trained trials: the model's outputs under samples of the posterior."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data.splits import Rows
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior
from bdl.rng import random_normals, trial_keys
from bdl.training.trials import Pool, Trials, View

_OUTPUTS_AT_ONCE = 200_000
"""Outputs evaluated together; with 50 hidden units their activations take 40 MB and stay near the cache."""


def predict(
    posterior_of: Callable[[Any], Posterior],
    problem: Problem,
    pool: Pool,
    trials: Trials,
    state: Any,
    index: Sequence[int],
    rows: Rows,
    samples: int,
) -> Tensor:
    """Evaluate the models of some trials on rows they share.

    Parameters
    ----------
    posterior_of
        Gives the posterior of one trial's state.
    problem, pool, trials, state
        As for `bdl.training.engine.train`, and the stacked states it gave.
    index
        Positions of the trials.
    rows
        Row numbers of the data set, (n,).
    samples
        Posterior samples, S; each trial draws its own from its stream "predict".

    Returns
    -------
    Tensor
        Outputs in original target units, (len(index), S, n).
    """
    chosen = trials.take(index)
    device = pool.device
    where = torch.as_tensor(index, device=device)
    states = tree_map(lambda leaf: leaf[where].float(), state)
    keys = trial_keys(chosen.identities, "predict").to(device)
    x = pool.x[torch.as_tensor(rows, device=device)]

    def one(state: Any, view: View, halves: tuple[Tensor, Tensor]) -> Tensor:
        posterior = posterior_of(state)
        size = samples * posterior.noise_dim
        theta = posterior.sample(torch.cat(halves)[:size].view(samples, -1))
        inputs = view.inputs(x)
        f = torch.func.vmap(lambda sample: problem.model(sample, inputs, problem.d_out))(theta)
        return f.squeeze(-1) * view.y_unit + view.y_origin

    noise_dim = posterior_of(tree_map(lambda leaf: leaf[0], states)).noise_dim
    step = torch.zeros((), dtype=torch.int32, device=device)
    normals = random_normals(keys, step, (samples * noise_dim + 1) // 2)
    chunk = max(1, _OUTPUTS_AT_ONCE // (samples * len(rows)))
    outputs: Tensor = torch.func.vmap(one, chunk_size=chunk)(states, chosen.view, normals)
    return outputs
