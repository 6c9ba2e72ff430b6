"""Scores of targets that are numbers."""

from dataclasses import dataclass
from typing import ClassVar

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation


@dataclass(frozen=True)
class Rmse:
    """Root mean squared error of the predictive mean, target units."""

    info: ClassVar = MetricInfo("RMSE", "target units", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        errors = evaluation.predictions.mean - evaluation.tested.y
        return float(errors.square().mean().sqrt())
