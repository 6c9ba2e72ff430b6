"""What contenders train: VIFA, or another method, on synthetic data of Boston's shape, or on made-up digits."""

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from bdl.data import Dataset
from bdl.methods.base import MinibatchMethod
from bdl.methods.vifa import Vifa
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.engine import MinibatchFitting
from bdl.training.fitting import make_initial_state
from bdl.training.schedule import Schedule
from bdl.training.trials import Pool, Trials

N, D_IN, BATCH_SIZE = 506, 13, 10
PIXELS, CLASSES = 784, 10
TRAINING_ROWS = 364
"""Rows of a training fold: four fifths of nine tenths of Boston's 506."""


Number = TypeVar("Number")
Trained = TypeVar("Trained", bound=MinibatchMethod, covariant=True)
Other = TypeVar("Other", bound=MinibatchMethod)


class Setting(NamedTuple, Generic[Number]):
    """What differs between trials; scalars, or (R,) for R trials stacked."""

    learning_rate: Number
    prior_precision: Number
    noise_precision: Number
    """Of the standardised targets."""
    n: Number
    """Number of training rows."""


@dataclass(frozen=True, eq=False)
class Workload(Generic[Trained]):
    """R trials of one program."""

    method: Trained
    problem: Problem
    dataset: Dataset
    pool: Pool
    trials: Trials
    batch_size: int = BATCH_SIZE

    def with_method(self, method: Other) -> "Workload[Other]":
        """Return the same data and trials to another method."""
        return Workload(
            method, self.problem, self.dataset, self.pool, self.trials, self.batch_size
        )

    def fitting(self, epochs: int, *, compile: bool) -> MinibatchFitting:
        """Describe the engine's training of all trials."""
        schedule = Schedule(epochs, self.batch_size)
        return MinibatchFitting(
            self.dataset, self.pool, self.problem, self.method, schedule, self.trials, compile
        )

    def initial_state(self) -> Any:
        """Return the states that training starts from, stacked."""
        return make_initial_state(self.method, self.problem, self.trials, self.pool.device)

    @property
    def cost_units(self) -> int:
        """Model-minibatches in an epoch: trials times minibatches that belong to an update of this epoch."""
        return len(self.trials) * (len(self.trials.rows[0]) // self.batch_size)

    def settings(self) -> Setting[Tensor]:
        """Hyper-parameters in the units of the standardised targets, each (R,)."""
        hyper, view = self.trials.hyper, self.trials.view
        precision = hyper["noise_precision"] * view.y_unit.square()
        return Setting(hyper["learning_rate"], hyper["prior_precision"], precision, view.n)

    def data(self) -> tuple[Tensor, Tensor]:
        """Return the whole table as each trial sees it: x (R, 506, 13) and y (R, 506)."""
        batch = torch.func.vmap(lambda view: view.batch(self.pool.x, self.pool.y))(
            self.trials.view
        )
        return batch.x, batch.y


def make(trials: int, hidden: int = 50, rows: int = TRAINING_ROWS) -> Workload[Vifa]:
    """Draw the data and the trials; the same arguments give the same workload.

    Parameters
    ----------
    trials
        Number of trials, R; each has its own training rows and hyper-parameters.
    hidden
        Units of the hidden layer; the network has D = 15 * hidden + 1 parameters.
    rows
        Training rows of a trial.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D_IN)) * rng.uniform(1, 10, D_IN)
    y = 22 + 9 * np.tanh(x @ rng.normal(size=D_IN) / 20) + rng.normal(size=N)
    dataset = Dataset("synthetic", x, y)
    pool = Pool.load(dataset)
    # so wide that some trials are clipped at every update, which hides the size of a gradient, and
    # some never
    hyper = [
        {
            "learning_rate": 10 ** rng.uniform(-2.5, -1.5),
            "prior_precision": 10 ** rng.uniform(-1, 0.5),
            "noise_precision": 10 ** rng.uniform(-6, -1),
            "dropout_rate": 0.05,
        }
        for _ in range(trials)
    ]
    identities = [("bench_training", trial) for trial in range(trials)]
    folds = [rng.permutation(N)[:rows] for _ in range(trials)]
    return Workload(
        Vifa(),
        Problem(Mlp((hidden,)), GaussianLikelihood(), D_IN),
        dataset,
        pool,
        Trials.make(dataset, pool, identities, folds, hyper),
    )


def digits(
    hidden: tuple[int, ...], batch_size: int, updates: int, method: Other
) -> Workload[Other]:
    """Make one trial that classifies made-up images of 784 pixels into ten classes.

    Parameters
    ----------
    hidden
        Units of the hidden layers.
    batch_size
        Rows of a minibatch.
    updates
        Minibatches of an epoch.
    method
        What trains.
    """
    rng = np.random.default_rng(0)
    labels = np.arange(updates * batch_size) % CLASSES
    x = np.maximum(
        rng.normal(size=(CLASSES, PIXELS))[labels] + rng.normal(size=(len(labels), PIXELS)), 0
    )
    dataset = Dataset("digits", x, labels.astype(np.float64), task="classification")
    pool, hyper = (
        Pool.load(dataset),
        {"learning_rate": 1e-3, "prior_precision": 1.0, "kl_weight": 1.0},
    )
    trials = Trials.make(dataset, pool, [("digits",)], [np.arange(len(x))], [hyper])
    return Workload(
        method,
        Problem(Mlp(hidden), Categorical(), PIXELS, CLASSES),
        dataset,
        pool,
        trials,
        batch_size,
    )
