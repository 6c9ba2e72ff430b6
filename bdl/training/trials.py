"""What a group of trials trains on: one shared table, and per trial rows, scaling and hyper-parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bdl.data import Dataset, Scaling
from bdl.data.splits import Rows
from bdl.models.problem import Batch


@dataclass(frozen=True, eq=False)
class Pool:
    """A data set on a device, shared by every trial.

    Inputs and targets are stored standardised by all rows, so that float32 keeps their digits. This leaks
    nothing: each trial's own scaling, fitted on its training rows, is expressed relative to the pool and
    undoes it exactly. Class labels stay as they are, since rounding could turn one into its neighbour.
    """

    x: Tensor
    """Inputs, float32, (n, d)."""
    y: Tensor
    """Targets or labels, float32, (n,)."""
    scaling: Scaling
    """How the pool was standardised, original units."""

    @classmethod
    def load(cls, dataset: Dataset, device: str = "cpu") -> "Pool":
        """Standardise a data set and put it on a device."""
        fitted = Scaling.fit(dataset.x, dataset.y, np.arange(len(dataset.y)))
        everything = fitted.only(inputs=True, targets=dataset.task == "regression")
        x = (dataset.x - everything.x_mean) / everything.x_scale
        y = (dataset.y - everything.y_mean) / everything.y_scale
        return cls(_tensor(x, device), _tensor(y, device), everything)

    @property
    def device(self) -> torch.device:
        """Where the data are."""
        return self.x.device


class View(NamedTuple):
    """How one trial sees the pool; tensors of one trial, or of R trials stacked."""

    x_mean: Tensor
    """(d,), relative to the pool."""
    x_scale: Tensor
    """(d,), relative to the pool."""
    y_mean: Tensor
    """Scalar, relative to the pool."""
    y_scale: Tensor
    """Scalar, relative to the pool."""
    y_origin: Tensor
    """Mean of the training targets, original units, a scalar."""
    y_unit: Tensor
    """Standard deviation of the training targets, original units, a scalar."""
    n: Tensor
    """Number of training rows, a scalar."""

    @classmethod
    def fit(cls, dataset: Dataset, pool: Pool, row_sets: Sequence[Rows]) -> "View":
        """Fit the scaling of R trials on their training rows and stack them."""
        own, base = fitted_scaling(dataset, row_sets), pool.scaling
        parts = (
            (own.x_mean - base.x_mean) / base.x_scale,
            own.x_scale / base.x_scale,
            (own.y_mean - base.y_mean) / base.y_scale,
            own.y_scale / base.y_scale,
            own.y_mean,
            own.y_scale,
            np.array([len(rows) for rows in row_sets]),
        )
        return cls(*(_tensor(part, pool.device) for part in parts))

    def inputs(self, x: Tensor) -> Tensor:
        """Standardise pool inputs (..., d) for one trial."""
        return (x - self.x_mean) / self.x_scale

    def batch(self, pool_x: Tensor, pool_y: Tensor, rows: Tensor) -> Batch:
        """Gather rows of the pool and standardise them for one trial; `rows` may have any shape."""
        y = (pool_y[rows] - self.y_mean) / self.y_scale
        return Batch(self.inputs(pool_x[rows]), y, self.n, self.y_unit)


@dataclass(frozen=True, eq=False)
class Trials:
    """R trials of one kind, to be trained together.

    Parameters
    ----------
    identities
        One identity a trial; it alone decides the trial's random numbers.
    rows
        Training rows of each trial, row numbers of the data set.
    view
        Scalings, stacked.
    hyper
        Hyper-parameters by name, each (R,).
    """

    identities: Sequence[Sequence[object]]
    rows: Sequence[Rows]
    view: View
    hyper: Mapping[str, Tensor]

    @classmethod
    def make(
        cls,
        dataset: Dataset,
        pool: Pool,
        identities: Sequence[Sequence[object]],
        rows: Sequence[Rows],
        hyper: Sequence[Mapping[str, float]],
    ) -> "Trials":
        """Fit scalings and stack hyper-parameters, one element of each sequence a trial."""
        stacked = {name: _tensor([setting[name] for setting in hyper], pool.device) for name in hyper[0]}
        return cls(identities, rows, View.fit(dataset, pool, rows), stacked)

    def __len__(self) -> int:
        return len(self.identities)

    def take(self, index: Sequence[int]) -> "Trials":
        """Select some trials, in the order of `index`."""
        chosen = torch.as_tensor(index, device=self.view.n.device)
        return Trials(
            [self.identities[i] for i in index],
            [self.rows[i] for i in index],
            View(*(value[chosen] for value in self.view)),
            {name: value[chosen] for name, value in self.hyper.items()},
        )


def fitted_scaling(dataset: Dataset, row_sets: Sequence[Rows]) -> Scaling:
    """Fit on R sets of rows what the data set standardises, original units; labels never are."""
    fitted = Scaling.fit_many(dataset.x, dataset.y, row_sets)
    targets = dataset.standardise == "both" and dataset.task == "regression"
    return fitted.only(inputs=dataset.standardise != "none", targets=targets)


def _tensor(values: object, device: torch.device | str) -> Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float32).to(device)
