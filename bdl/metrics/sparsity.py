"""How many weights a posterior leaves small, or large: Tables 4.4 and 4.5 of the thesis on noisy optimisers (2018)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.posteriors.tensors import as_type

Layer = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class WeightsBelow:
    """Weights whose posterior mean is below a limit in size; the thesis prints "# w < limit" and means this.

    Parameters
    ----------
    limit
        The limit, in the unit of the weights as the model has them.
    layer
        Layer whose weights are counted, from 0.
    """

    limit: Annotated[float, Gt(0)] = 0.01
    layer: Layer = 0

    info: ClassVar = MetricInfo("Weights below", "weights", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit.

        Raises
        ------
        InputError
            If the model has no such layer.
        """
        return float((_weights("weights_below", evaluation, self.layer).abs() < self.limit).sum())


@dataclass(frozen=True)
class WeightsFrom:
    """Weights whose posterior mean is a limit or more in size; errors as in `WeightsBelow`.

    Parameters
    ----------
    limit
        The limit, in the unit of the weights as the model has them.
    layer
        Layer whose weights are counted, from 0.
    """

    limit: Annotated[float, Gt(0)] = 0.01
    layer: Layer = 0

    info: ClassVar = MetricInfo("Weights from", "weights", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return float((_weights("weights_from", evaluation, self.layer).abs() >= self.limit).sum())


def _weights(name: str, evaluation: Evaluation, layer: int) -> Tensor:
    layout = evaluation.model.layout
    if layer >= layout.n_layers:
        raise InputError(f"{name}: the model has {layout.n_layers} layers, counted from 0: there is no layer {layer}")
    mean = as_type(evaluation.posterior, torch.float64).mean().cpu()
    return mean[layout.layers == layer]
