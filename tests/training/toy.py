"""A small regression, programs on it, and plain helpers that tests of the engine share."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl.data import Dataset
from bdl.methods.vifa import Vifa
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.fitting import EvaluationSchedule, Fitting, Snapshot, run_to_end
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool, Trials

HYPER = {
    "learning_rate": 0.01,
    "prior_precision": 0.5,
    "noise_precision": 1e-3,
    "dropout_rate": 0.1,
    "weight_decay": 0.01,
    "warmup_learning_rate": 0.02,
    "kl_weight": 1.0,
    "damping": 0.1,
}


def toy(n: int = 60, d: int = 3, **changes: Any) -> Dataset:
    """Inputs with unlike origins and scales, a target of scale 30 and origin 500."""
    generator = np.random.default_rng(0)
    z = generator.normal(size=(n, d))
    y = 500 + 30 * (z @ np.linspace(1, -1, d) + np.sin(z[:, 0]) + 0.3 * generator.normal(size=n))
    return Dataset("toy", 1000 + z * 10.0 ** np.arange(-1, d - 1), y, **changes)


def toy_program(**changes: Any) -> TrainingSetup:
    """VIFA of a small network, 20 epochs of minibatches of 8, unless parts say otherwise."""
    parts = {
        "dataset": toy(),
        "problem": Problem(Mlp((5,)), GaussianLikelihood(), d_in=3),
        "method": Vifa(latent_dim=2, gradients_per_update=2),
        "schedule": Schedule(epochs=20, batch_size=8),
        "samples": 10,
    } | changes
    dtype = parts["schedule"].dtype if parts["schedule"] else "float32"
    return TrainingSetup(pool=Pool.load(parts["dataset"], dtype=dtype), **parts)


def toy_trials(program: TrainingSetup, lengths: list[int], **hyper: list[float]) -> Trials:
    """One trial a length, each with rows and a learning rate of its own."""
    order = np.random.default_rng(1)
    rows = [order.permutation(60)[:n] for n in lengths]
    names = {*program.method.hyper, *program.problem.hyper}
    settings = [
        {
            name: value * (i + 1 if name == "learning_rate" else 1)
            for name, value in HYPER.items()
            if name in names
        }
        | {name: values[i] for name, values in hyper.items()}
        for i in range(len(lengths))
    ]
    return program.trials([("toy", i) for i in range(len(lengths))], rows, settings)


def fitted(program: TrainingSetup, trials: Trials, compile: bool = False) -> Snapshot:
    """All trials in the end."""
    return run_to_end(program.fitting(trials, compile=compile))


def curve(
    fitting: Fitting, evaluations: EvaluationSchedule
) -> dict[tuple[int, int], list[Tensor]]:
    """State of each trial at each place that was looked at, and under place 0 in the end."""
    found = {}
    for snapshot in fitting.run(evaluations):
        for position, trial in enumerate(snapshot.index):
            place = evaluations.due(snapshot.counters)
            if place:
                found[trial, place] = pick(snapshot.state, position)
            if snapshot.last:
                found[trial, 0] = pick(snapshot.state, position)
    return found


def pick(state: Any, index: int) -> list[Tensor]:
    """Tensors of one trial."""
    return [leaf[index] for leaf in tree_leaves(state)]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    """Whether all bits are the same."""
    return len(one) == len(other) and all(map(torch.equal, one, other))
