"""A program: the data, model, method and schedule that a group of trials shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.methods.base import DirectMethod, Method
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior
from bdl.training.direct import fit_directly
from bdl.training.engine import Fit, Progress, Schedule, train
from bdl.training.predict import predict
from bdl.training.trials import Pool, Trials


@dataclass(frozen=True, eq=False)
class Program:
    """What is trained, and how predictions are made.

    Parameters
    ----------
    dataset, pool
        The data in original units, and on the device.
    problem, method, schedule
        What is trained and for how long; no schedule for a method without minibatches.
    samples
        Posterior samples of a prediction, S.
    """

    dataset: Dataset
    pool: Pool
    problem: Problem
    method: Method | DirectMethod
    schedule: Schedule | None
    samples: int

    def trials(
        self,
        identities: Sequence[Sequence[object]],
        rows: Sequence[Rows],
        hyper: Sequence[Mapping[str, float]],
    ) -> Trials:
        """Describe trials; one element of each sequence a trial."""
        return Trials.make(self.dataset, self.pool, identities, rows, hyper)

    def train(self, trials: Trials, *, compile: bool, progress: Progress) -> Fit:
        """Train them together."""
        if self.schedule is None:
            return fit_directly(cast(DirectMethod, self.method), self.problem, self.dataset, trials)
        method = cast(Method, self.method)
        return train(method, self.problem, self.pool, trials, self.schedule, compile=compile, progress=progress)

    def posterior(self, state: Any) -> Posterior:
        """Give the posterior of one trial's state."""
        posterior: Posterior = state if self.schedule is None else cast(Method, self.method).posterior(state)
        return posterior

    def predict(self, trials: Trials, fit: Fit, index: Sequence[int], rows: Rows) -> Tensor:
        """Predict the same rows by some of the trials: (len(index), S, len(rows)), original units."""
        return predict(self.posterior, self.problem, self.pool, trials, fit.state, index, rows, self.samples)

    def moments(self, fit: Fit, index: int) -> Tensor:
        """Give a trial's mean above its covariance: (1 + D, D), float64."""
        posterior = self.posterior(tree_map(lambda leaf: leaf[index].double(), fit.state))
        return torch.cat([posterior.mean().unsqueeze(0), posterior.covariance()])

    def targets(self, rows: Rows) -> Tensor:
        """Targets of some rows, original units, float32."""
        return torch.as_tensor(self.dataset.y[rows].astype(np.float32), device=self.pool.device)
