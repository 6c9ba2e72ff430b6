"""Trials of a group, and the data that they train on.

They share one table, and each has rows, a scaling and hyper-parameters of its own.
"""

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

_OUTLIER_RATIO = 1000.0
"""Standard deviation, in units of that of the middle half, from which a few rows make it up."""
_NORMAL_QUARTILE = 0.6745
"""Upper quartile of the standard normal distribution."""
_MAX_RANKED_ROWS = 100_000
"""Rows of which quartiles are computed."""


@dataclass(frozen=True, eq=False)
class Pool:
    """A data set on a device, shared by every trial.

    Inputs and targets are stored standardised by all rows, so that float32 keeps their digits; by
    the median and the quartiles where a few outliers would take the digits of all others. This
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
        scaling, targets = (
            _fit_pool_scaling(dataset),
            torch.float64 if dtype == "float64" else torch.float32,
        )
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
        fitted, base = fit_scaling(dataset, row_sets), pool.scaling

        def to_pool(values: object) -> Tensor:
            return _tensor(values, pool.device, pool.dtype)

        return cls(
            x_mean=to_pool((fitted.x_mean - base.x_mean) / base.x_scale),
            x_scale=to_pool(fitted.x_scale / base.x_scale),
            y_mean=to_pool((fitted.y_mean - base.y_mean) / base.y_scale),
            y_scale=to_pool(fitted.y_scale / base.y_scale),
            y_origin=_tensor(fitted.y_mean, pool.device, torch.float64),
            y_unit=_tensor(fitted.y_scale, pool.device, torch.float64),
            n=to_pool([len(rows) for rows in row_sets]),
        )

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
            name: _tensor([trial_hyper[name] for trial_hyper in hyper], pool.device, torch.float64)
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


def fit_scaling(dataset: Dataset, row_sets: Sequence[Rows]) -> Scaling:
    """Fit the scaling of R sets of rows, original units, as far as the data set says.

    Labels and images are not standardised.
    """
    targets = dataset.standardise == "both" and dataset.task == "regression"
    fitted = Scaling.fit_many(_scalable_inputs(dataset), dataset.y, row_sets)
    if dataset.images:
        return fitted.keep_only(inputs=False, targets=targets)._replace(
            x_scale=dataset.x_unit * fitted.x_scale
        )
    return fitted.keep_only(inputs=dataset.standardise != "none", targets=targets)


def _fit_pool_scaling(dataset: Dataset) -> Scaling:
    """Fit the scaling of the pool, original units."""
    all_rows, targets = np.arange(len(dataset.y)), dataset.task == "regression"
    inputs = _scalable_inputs(dataset)
    fitted = Scaling.fit(inputs, dataset.y, all_rows)
    return Scaling(
        *_robust_scaling(fitted.x_mean, fitted.x_scale, inputs),
        *_robust_scaling(fitted.y_mean, fitted.y_scale, dataset.y),
    ).keep_only(inputs=not dataset.images, targets=targets)


def _scalable_inputs(dataset: Dataset) -> NDArray[np.float64]:
    """Return inputs to fit a scaling on.

    For images, whose scaling is not fitted, that is one column of zeros.
    """
    return (
        np.zeros((len(dataset.y), 1))
        if dataset.images
        else dataset.x.astype(np.float64, copy=False)
    )


def _robust_scaling(
    mean: NDArray[np.float64], scale: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Replace mean and scale by median and quartiles where the scale is that of a few rows."""
    ranked = values[:: max(1, len(values) // _MAX_RANKED_ROWS)]
    low, median, high = np.percentile(ranked, [25, 50, 75], axis=0)
    middle = (high - low) / (2 * _NORMAL_QUARTILE)
    outlying = (middle > 0) & (scale > _OUTLIER_RATIO * middle)
    return np.where(outlying, median, mean), np.where(outlying, middle, scale)


def _tensor(values: object, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    return torch.as_tensor(np.asarray(values), dtype=dtype).to(device)
