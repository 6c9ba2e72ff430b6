"""A program: the data, model, method and schedule that a group of trials shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.methods.base import Method
from bdl.models.problem import Problem
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
        What is trained and for how long.
    samples
        Posterior samples of a prediction, S.
    """

    dataset: Dataset
    pool: Pool
    problem: Problem
    method: Method
    schedule: Schedule
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
        return train(self.method, self.problem, self.pool, trials, self.schedule, compile=compile, progress=progress)

    def predict(self, trials: Trials, fit: Fit, index: Sequence[int], rows: Rows) -> Tensor:
        """Predict the same rows by some of the trials: (len(index), S, len(rows)), original units."""
        return predict(self.method, self.problem, self.pool, trials, fit.state, index, rows, self.samples)

    def targets(self, rows: Rows) -> Tensor:
        """Targets of some rows, original units, float32."""
        return torch.as_tensor(self.dataset.y[rows].astype(np.float32), device=self.pool.device)
