"""Scores of targets that are numbers."""

from dataclasses import dataclass
from typing import ClassVar

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation


@dataclass(frozen=True)
class Rmse:
    """Root mean squared error of the predictive mean, target units.

    Parameters
    ----------
    standardised
        Give it in standard deviations of the training targets, as the thesis on noisy optimisers (Mata 2018) prints it.
    """

    standardised: bool = False

    info: ClassVar = MetricInfo("RMSE", "target units", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        errors = evaluation.predictions.mean - evaluation.tested.y
        error = float(errors.square().mean().sqrt())
        return error / float(evaluation.tested.y_unit) if self.standardised else error
