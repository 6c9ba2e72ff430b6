"""Predictions of trained trials: what samples of each posterior say of rows that the trials share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data.splits import Rows
from bdl.metrics.predictions import VALUES_AT_ONCE, Draws, Predictions
from bdl.metrics.predictions import predict as predict_one
from bdl.metrics.targets import Examples
from bdl.models.problem import Hyper, Problem
from bdl.posteriors.base import Posterior
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys
from bdl.training.trials import Pool, Trials, View


def predict(
    posterior_of: Callable[[Any], Posterior],
    problem: Problem,
    pool: Pool,
    trials: Trials,
    state: Any,
    buffers: Mapping[str, Tensor],
    index: Sequence[int],
    rows: Rows,
    targets: Tensor,
    samples: int,
) -> Predictions:
    """Predict rows that some trials share.

    Parameters
    ----------
    posterior_of
        Gives the posterior of one trial's state.
    problem, pool, trials
        What was trained on what.
    state, buffers
        The states and the running statistics of all trials, stacked.
    index
        Positions of the trials that predict, which were trained on the same rows.
    rows
        Row numbers of the data set, (n,).
    targets
        Targets of these rows in original units, (n,).
    samples
        Posterior samples, S; each trial draws its own from its stream "predict".

    Returns
    -------
    Predictions
        Stacked over the trials, on the device of the pool.
    """
    chosen = trials.take(index)
    device = pool.device
    where = torch.as_tensor(index, device=device)
    states = as_type(tree_map(lambda leaf: leaf[where], state), torch.float32)
    statistics = {name: value[where] for name, value in buffers.items()}
    scale = as_type(chosen.view, torch.float32)._replace(y_origin=chosen.view.y_origin, y_unit=chosen.view.y_unit)
    keys = trial_keys(chosen.identities, "predict").to(device)
    # they share what they were trained on: a split, or all of it but a fold
    seen = pool.x[torch.as_tensor(chosen.rows[0], device=device)] if problem.recomputes else pool.x[:0]
    x, y = pool.x[torch.as_tensor(rows, device=device)], targets.to(device, torch.float64)

    def one(state: Any, buffers: Mapping[str, Tensor], view: View, hyper: Hyper, key: Tensor) -> Predictions:
        examples = Examples(view.inputs(x), y, view.y_unit, view.y_origin)
        draws = Draws(samples, key)
        return predict_one(problem, posterior_of(state), examples, hyper, buffers, draws, lambda: view.inputs(seen))

    values = samples * max(len(rows) * problem.widest, problem.dim)
    chunk = max(1, VALUES_AT_ONCE // max(1, values))
    predictions: Predictions = torch.func.vmap(one, chunk_size=chunk)(states, statistics, scale, chosen.hyper, keys)
    return predictions
