"""The metrics of a final fit, from its predictions or from its posterior's moments."""

from inspect import signature
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bdl.metrics import INFO, METRICS
from bdl.references.base import Truth
from bdl.runs.plan import Cell
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
    means only looks at all D.
    """
    stacked = torch.as_tensor(moments, dtype=torch.float64)
    mean, covariance = stacked[0], stacked[1:]
    d = len(truth.covariance)
    everything = {"mean": mean, "reference_mean": truth.mean}
    known = {name: value[:d] for name, value in everything.items()}
    known |= {"cov": covariance[:d, :d], "reference_cov": truth.covariance}
    found = {}
    for name in _names(cell, "distance"):
        distance = METRICS.get(name)
        wanted = signature(distance).parameters
        parts = known if "cov" in wanted else everything
        found[name] = float(distance(**{part: parts[part] for part in wanted}))
    return found


def _names(cell: Cell, kind: str) -> list[str]:
    return [name for name in cell.benchmark.metrics if INFO[name].kind == kind]
