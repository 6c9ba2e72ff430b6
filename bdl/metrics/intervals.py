"""Scores of whole predictive distributions of numbers: CRPS, calibration and width of intervals."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Lt
from torch import Tensor

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.mixtures import Mixture, crps, normals

Level = Annotated[float, Gt(0), Lt(1)]


@dataclass(frozen=True)
class Crps:
    """Continuous ranked probability score, averaged over test rows, target units (Gneiting and Raftery 2007).

    The integral over t of (F(t) - [y <= t])^2 of the predictive distribution function F, in closed form for mixtures of
    normals (`bdl.metrics.mixtures.crps`). Of a point prediction it is the absolute error.
    """

    info: ClassVar = MetricInfo("CRPS", "target units", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return float(crps(normals("crps", evaluation), evaluation.tested.y).mean())


@dataclass(frozen=True)
class Coverage:
    """Share of the test targets that lie in the central predictive interval, which `level` should be.

    Parameters
    ----------
    level
        Probability of the interval.
    """

    level: Level = 0.9

    info: ClassVar = MetricInfo("Coverage", "fraction of test points", "none", "predictive", "regression", margin=0.02)

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        inside = (2 * _transforms("coverage", evaluation) - 1).abs() <= self.level
        return float(inside.double().mean())


@dataclass(frozen=True)
class IntervalWidth:
    """Width of the central predictive interval, averaged over test rows, target units.

    Of two fits with the right coverage, the one with narrower intervals says more.

    Parameters
    ----------
    level
        Probability of the interval.
    """

    level: Level = 0.9

    info: ClassVar = MetricInfo("Interval width", "target units", "none", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        law = Mixture.of(normals("interval_width", evaluation))
        low, high = (law.icdf(torch.tensor((1 + side * self.level) / 2, dtype=torch.float64)) for side in (-1, 1))
        return float((high - low).mean())


@dataclass(frozen=True)
class PitDistance:
    """Distance of the histogram of probability integral transforms F(y) from a flat one, whatever its bins.

    It is the area between their distribution function over test rows and the diagonal, which is the 1-Wasserstein
    distance from the uniform distribution: 0 where predictions are calibrated, at most 1/2 (Dawid 1984; Gneiting,
    Balabdaoui and Raftery 2007). With n rows, a calibrated prediction has about 0.3 / sqrt(n).
    """

    info: ClassVar = MetricInfo("PIT distance", "probability", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        found = _transforms("pit_distance", evaluation).sort().values
        ends = torch.arange(len(found) + 1, dtype=torch.float64) / len(found)
        areas = [(side - found) * (side - found).abs() / 2 for side in (ends[:-1], ends[1:])]
        return float((areas[1] - areas[0]).sum())


def _transforms(name: str, evaluation: Evaluation) -> Tensor:
    """Compute the predictive probability below each test target, (n,), for the metric of that name."""
    found: Tensor = Mixture.of(normals(name, evaluation)).cdf(evaluation.tested.y)  # type: ignore[no-untyped-call]
    return found
