"""The posterior of a model's bias, which the SLANG paper prints for one split in Figure 7(d)."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.posteriors.tensors import as_type


@dataclass(frozen=True)
class BiasMean:
    """Posterior mean of the one bias of the model, in the unit of its outputs."""

    info: ClassVar = MetricInfo("Mean of the bias", "output units", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit.

        Raises
        ------
        InputError
            If the model has no bias, or several.
        """
        place = _bias("bias_mean", evaluation)
        return float(as_type(evaluation.posterior, torch.float64).mean()[place])


@dataclass(frozen=True)
class BiasVariance:
    """Posterior variance of the one bias of the model, in the unit of its outputs squared."""

    info: ClassVar = MetricInfo("Variance of the bias", "output units squared", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit; errors as in `BiasMean`."""
        place = _bias("bias_variance", evaluation)
        return float(as_type(evaluation.posterior, torch.float64).variance()[place])


def _bias(name: str, evaluation: Evaluation) -> int:
    """Position of the bias."""
    places = evaluation.model.layout.biases.nonzero().flatten().tolist()
    if len(places) != 1:
        raise InputError(f"{name}: the model has {len(places)} biases, not one: leave the metric out")
    return int(places[0])
