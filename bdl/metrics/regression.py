"""Scores of targets that are numbers."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import At, Draws, Evaluation


@dataclass(frozen=True)
class Rmse:
    """Root mean squared error of the predictive mean, target units.

    Parameters
    ----------
    standardised
        Give it in standard deviations of the training targets, as the thesis on noisy optimisers (Mata 2018) prints it.
    at
        Parameters that predict: samples of the posterior, or its mean alone.
    """

    standardised: bool = False
    at: At = "samples"

    info: ClassVar = MetricInfo("RMSE", "target units", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        errors = evaluation.at(self.at).predictions.mean - evaluation.tested.y
        error = float(errors.square().mean().sqrt())
        return error / float(evaluation.tested.y_unit) if self.standardised else error


@dataclass(frozen=True)
class MseAtMean:
    """Mean squared error of the model with the mean parameters, one pass, target units squared.

    Parameters
    ----------
    rows
        Rows that are predicted: those that test, or those that the fit has seen.
    """

    rows: Literal["test", "training"] = "test"

    info: ClassVar = MetricInfo("MSE at the mean", "target units squared", "lower", "predictive", "regression")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        examples = evaluation.tested if self.rows == "test" else evaluation.trained
        found = evaluation.at("mean").outputs(examples, Draws(1, evaluation.key))[0, :, 0]
        return float((found - examples.y.cpu()).square().mean())
