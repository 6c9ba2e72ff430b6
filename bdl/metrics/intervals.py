"""Scores of whole predictive distributions of numbers: CRPS, calibration and width of intervals."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt, Lt

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.mixtures import below, crps, mixtures, quantile

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
        return float(crps(mixtures("crps", evaluation), evaluation.tested.y).mean())


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
        inside = (2 * below(mixtures("coverage", evaluation), evaluation.tested.y) - 1).abs() <= self.level
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
        law, tail = mixtures("interval_width", evaluation), (1 - self.level) / 2
        return float((quantile(law, 1 - tail) - quantile(law, tail)).mean())


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
        found = below(mixtures("pit_distance", evaluation), evaluation.tested.y).sort().values
        ends = torch.arange(len(found) + 1, dtype=torch.float64) / len(found)
        areas = [(side - found) * (side - found).abs() / 2 for side in (ends[:-1], ends[1:])]
        return float((areas[1] - areas[0]).sum())
