"""What a group of trials trains on: one shared table, and per trial rows, scaling and hyper-parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.data import Dataset, Scaling
from bdl.data.splits import Rows
from bdl.models.problem import Batch
from bdl.training.schedule import Precision

_OUTLYING = 1000.0
"""A column whose standard deviation is so many times that of its middle half has it from a few
rows.
"""
_QUARTILE = 0.6745
"""Upper quartile of the standard normal distribution."""
_RANKED = 100_000
"""Rows among which quartiles are found."""


@dataclass(frozen=True, eq=False)
class Pool:
    """A data set on a device, shared by every trial.

    Inputs and targets are stored standardised by all rows, so that float32 keeps their digits; by
    the median and the quartiles where a few rows far out would take the digits of all others. This
    leaks nothing: each trial's own scaling, fitted on its training rows, is expressed relative to
    the pool and undoes it exactly. Class labels stay as they are, since rounding could turn one
    into its neighbour, and so do images, which are exact as they are and take a quarter of the
    memory.
    """

    x: Tensor  # Inputs, of the type of `y`, or uint8 for images; (n, d)
    y: Tensor  # Targets or labels, float32 or float64, (n,)
    scaling: Scaling  # How the pool was standardised, original units

    @classmethod
    def load(cls, dataset: Dataset, device: str = "cpu", dtype: Precision = "float32") -> "Pool":
        """Standardise a data set and put it on a device."""
        scaling, targets = _pooled(dataset), torch.float64 if dtype == "float64" else torch.float32
        y = _tensor((dataset.y - scaling.y_mean) / scaling.y_scale, device, targets)
        if dataset.images:
            images = np.ascontiguousarray(dataset.x.reshape(len(dataset.y), -1))
            return cls(torch.from_numpy(images).to(device), y, scaling)
        return cls(
            _tensor((dataset.x - scaling.x_mean) / scaling.x_scale, device, targets), y, scaling
        )

    @property
    def device(self) -> torch.device:
        """Where the data are."""
        return self.y.device

    @property
    def dtype(self) -> torch.dtype:
        """Precision of what is trained on the data."""
        return self.y.dtype


class View(NamedTuple):
    """How one trial sees the pool; tensors of one trial, or of R trials stacked."""

    x_mean: Tensor  # (d,), or (1,) for images; relative to the pool
    x_scale: Tensor  # (d,), or (1,) for images; relative to the pool
    y_mean: Tensor  # Scalar, relative to the pool
    y_scale: Tensor  # Scalar, relative to the pool
    y_origin: Tensor  # Mean of the training targets, original units, a float64 scalar
    y_unit: Tensor  # Standard deviation of the training targets, original units, a float64 scalar
    n: Tensor  # Number of training rows, a scalar

    @classmethod
    def fit(cls, dataset: Dataset, pool: Pool, row_sets: Sequence[Rows]) -> "View":
        """Fit the scaling of R trials on their training rows and stack them."""
        own, base = fitted_scaling(dataset, row_sets), pool.scaling
        parts = (
            (own.x_mean - base.x_mean) / base.x_scale,
            own.x_scale / base.x_scale,
            (own.y_mean - base.y_mean) / base.y_scale,
            own.y_scale / base.y_scale,
            [len(rows) for rows in row_sets],
        )
        x_mean, x_scale, y_mean, y_scale, n = (
            _tensor(part, pool.device, pool.dtype) for part in parts
        )
        origin, unit = (
            _tensor(part, pool.device, torch.float64) for part in (own.y_mean, own.y_scale)
        )
        return cls(x_mean, x_scale, y_mean, y_scale, origin, unit, n)

    def inputs(self, x: Tensor) -> Tensor:
        """Standardise pool inputs (..., d) for one trial."""
        return (x - self.x_mean) / self.x_scale

    def batch(self, pool_x: Tensor, pool_y: Tensor) -> Batch:
        """Standardise rows of the pool for one trial, in any number of axes."""
        y = (pool_y - self.y_mean) / self.y_scale
        return Batch(self.inputs(pool_x), y, self.n, self.y_unit.to(y.dtype))


@dataclass(frozen=True, eq=False)
class Trials:
    """R trials of one kind, to be trained together."""

    identities: Sequence[
        Sequence[object]
    ]  # One identity a trial; it alone decides the trial's random numbers
    rows: Sequence[Rows]  # Training rows of each trial, row numbers of the data set
    view: View  # Scalings, stacked
    hyper: Mapping[str, Tensor]  # Hyper-parameters by name, original units, float64, each (R,)

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
        stacked = {
            name: _tensor([own[name] for own in hyper], pool.device, torch.float64)
            for name in hyper[0]
        }
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
    """Fit on R sets of rows what the data set standardises, original units.

    Labels and images never are.
    """
    targets = dataset.standardise == "both" and dataset.task == "regression"
    fitted = Scaling.fit_many(_numbers(dataset), dataset.y, row_sets)
    if dataset.images:
        return fitted.only(inputs=False, targets=targets)._replace(
            x_scale=dataset.x_unit * fitted.x_scale
        )
    return fitted.only(inputs=dataset.standardise != "none", targets=targets)


def _pooled(dataset: Dataset) -> Scaling:
    """Choose the scaling of the pool, original units."""
    everything, targets = np.arange(len(dataset.y)), dataset.task == "regression"
    inputs = _numbers(dataset)
    fitted = Scaling.fit(inputs, dataset.y, everything)
    return Scaling(
        *_robust(fitted.x_mean, fitted.x_scale, inputs),
        *_robust(fitted.y_mean, fitted.y_scale, dataset.y),
    ).only(inputs=not dataset.images, targets=targets)


def _numbers(dataset: Dataset) -> NDArray[np.float64]:
    """Return inputs to fit a scaling on: one column of zeros stands for images, whose scaling is not fitted."""
    return (
        np.zeros((len(dataset.y), 1))
        if dataset.images
        else dataset.x.astype(np.float64, copy=False)
    )


def _robust(
    mean: NDArray[np.float64], scale: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Replace mean and scale by median and quartiles where the scale is that of a few rows."""
    ranked = values[:: max(1, len(values) // _RANKED)]
    low, median, high = np.percentile(ranked, [25, 50, 75], axis=0)
    middle = (high - low) / (2 * _QUARTILE)
    outlying = (middle > 0) & (scale > _OUTLYING * middle)
    return np.where(outlying, median, mean), np.where(outlying, middle, scale)


def _tensor(values: object, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    return torch.as_tensor(np.asarray(values), dtype=dtype).to(device)
