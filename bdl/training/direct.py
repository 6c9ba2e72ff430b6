"""Fits by methods without minibatches, and the data that they and reference posteriors see."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.methods.base import DirectMethod
from bdl.models.problem import Problem
from bdl.training.engine import Fit
from bdl.training.trials import Trials, fitted_scaling


class TrainingData(NamedTuple):
    """Training rows as a model sees them, float64."""

    x: Tensor
    """Inputs, (n, d)."""
    y: Tensor
    """Targets, (n,)."""
    y_unit: float
    """Unit of `y` in original target units."""

    @classmethod
    def of(cls, dataset: Dataset, rows: Rows) -> "TrainingData":
        """Standardise rows by themselves, as far as the data set says."""
        scaling = fitted_scaling(dataset, [rows])
        x = (dataset.x[rows] - scaling.x_mean[0]) / scaling.x_scale[0]
        y = (dataset.y[rows] - scaling.y_mean[0]) / scaling.y_scale[0]
        return cls(torch.from_numpy(x), torch.from_numpy(y), float(scaling.y_scale[0]))

    def hyper(self, values: Mapping[str, float]) -> dict[str, Tensor]:
        """Give hyper-parameters, float64, with the noise precision in the unit of `y`."""
        units = {"noise_precision": self.y_unit**2}
        return {name: torch.tensor(value * units.get(name, 1), dtype=torch.float64) for name, value in values.items()}


def fit_directly(method: DirectMethod, problem: Problem, dataset: Dataset, trials: Trials) -> Fit:
    """Fit every trial, one after the other.

    Returns
    -------
    Fit
        The state of a trial is its posterior; nothing diverges and there are no updates.
    """
    found: dict[tuple[bytes, tuple[float, ...]], Any] = {}  # replicates on the same rows have the same posterior
    posteriors = []
    for index, rows in enumerate(trials.rows):
        values = {name: float(value[index]) for name, value in trials.hyper.items()}
        key = (rows.tobytes(), tuple(values.values()))
        if key not in found:
            data = TrainingData.of(dataset, rows)
            found[key] = method.fit(problem, data.x, data.y, data.hyper(values))
        posteriors.append(found[key])
    none = torch.zeros(len(posteriors), dtype=torch.int64)
    return Fit(tree_map(lambda *leaves: torch.stack(leaves), *posteriors), none, none)
