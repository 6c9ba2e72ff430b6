"""The metrics of a final fit, from its predictions or from its posterior's moments."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.metrics import INFO, METRICS
from bdl.metrics.distances import Moments, monte_carlo_se, noise_floor
from bdl.plan.cell import Cell
from bdl.references.base import Truth
from bdl.search.study import Setting

Kept = NDArray[np.floating[Any]]
"""What the store keeps of a fit: predictions (S, n), or moments (1 + D, D), the mean above the covariance.

Predictions are float32. Moments are float64: rounded to float32, an ill-conditioned covariance is not one any more.
"""


def score_predictions(cell: Cell, split: int, f: Kept, hyper: Setting) -> dict[str, float]:
    """Evaluate the benchmark's predictive metrics on the test rows of a split."""
    y = torch.as_tensor(cell.data.y[cell.data.split(split).test], dtype=torch.float64)
    values = {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}
    outputs = torch.as_tensor(f, dtype=torch.float64)
    return {name: float(METRICS.get(name)(outputs, y, values)) for name in _names(cell, "predictive")}


def score_moments(cell: Cell, moments: Kept, truth: Truth) -> dict[str, float]:
    """Measure the benchmark's distances to the truth.

    Where the truth has covariances of d < D parameters only, those alone are compared; a distance that looks at
    means only looks at all D. To a sampled truth, ``<name>_mcse`` is the Monte-Carlo standard error of a distance,
    and ``<name>_floor`` what `bdl.metrics.distances.noise_floor` says.
    """
    stacked = torch.as_tensor(moments, dtype=torch.float64)
    ours = stacked[0], stacked[1:]
    found = {}
    for name in _names(cell, "distance"):
        distance = partial(_distance, METRICS.get(name))
        found[name] = float(distance(ours, (truth.mean, truth.covariance)))
        if truth.chains is not None:
            error = monte_carlo_se(lambda *reference: distance(ours, reference), truth.chains)  # noqa: B023
            found |= {f"{name}_mcse": float(error), f"{name}_floor": float(noise_floor(distance, truth.chains))}
    return found


def _distance(metric: Callable[..., Tensor], ours: Moments, reference: Moments) -> Tensor:
    """Call a metric with the moments that it asks for by name."""
    wanted, d = signature(metric).parameters, len(reference[1])
    parts = {"mean": ours[0], "cov": ours[1][:d, :d], "reference_mean": reference[0], "reference_cov": reference[1]}
    if "cov" in wanted:
        parts |= {name: parts[name][:d] for name in ("mean", "reference_mean")}
    return metric(**{name: parts[name] for name in wanted})


def _names(cell: Cell, kind: str) -> list[str]:
    return [name for name in cell.benchmark.metrics if INFO[name].kind == kind]
