"""Predictions of trained trials: what samples of each posterior say of rows that the trials share."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data.splits import Rows
from bdl.metrics.predictions import VALUES_AT_ONCE, Draws, Predictions
from bdl.metrics.predictions import predict as predict_one
from bdl.metrics.targets import Examples
from bdl.models.problem import Hyper
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys
from bdl.training.fitting import Snapshot
from bdl.training.program import Program
from bdl.training.trials import Trials, View


def predict(program: Program, trials: Trials, end: Snapshot, index: Sequence[int], rows: Rows) -> Predictions:
    """Predict rows that some trials share.

    Parameters
    ----------
    program, trials, end
        What was trained, and all trials in the end. Each draws its posterior samples from its stream "predict".
    index
        Positions of the trials that predict, which were trained on the same rows.
    rows
        Row numbers of the data set, (n,).

    Returns
    -------
    Predictions
        Stacked over the trials, on the device of the pool.
    """
    pool, problem, samples = program.pool, program.problem, program.samples
    chosen = trials.take(index)
    device = pool.device
    where = torch.as_tensor(index, device=device)
    states = as_type(tree_map(lambda leaf: leaf[where], end.state), torch.float32)
    statistics = {name: value[where] for name, value in end.buffers.items()}
    scale = as_type(chosen.view, torch.float32)._replace(y_origin=chosen.view.y_origin, y_unit=chosen.view.y_unit)
    keys = trial_keys(chosen.identities, "predict").to(device)
    # they share what they were trained on: a split, or all of it but a fold
    seen = pool.x[torch.as_tensor(chosen.rows[0], device=device)] if problem.recomputes else pool.x[:0]
    x, y = pool.x[torch.as_tensor(rows, device=device)], torch.from_numpy(program.dataset.y[rows]).double().to(device)

    def one(state: Any, buffers: Mapping[str, Tensor], view: View, hyper: Hyper, key: Tensor) -> Predictions:
        examples = Examples(view.inputs(x), y, view.y_unit, view.y_origin)
        draws = Draws(samples, key)
        return predict_one(
            problem, program.posterior(state), examples, hyper, buffers, draws, lambda: view.inputs(seen)
        )

    values = samples * max(len(rows) * problem.widest, problem.dim)
    chunk = max(1, VALUES_AT_ONCE // max(1, values))
    predictions: Predictions = torch.func.vmap(one, chunk_size=chunk)(states, statistics, scale, chosen.hyper, keys)
    return predictions
