"""How far apart posterior samples predict, by quartiles, which a few samples far off do not move."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, tensors_of

_STEP = 3
"""First counter word of its draws; those of other scores and of figures have others."""


@dataclass(frozen=True)
class Spread:
    """Interquartile range of what posterior samples predict for a row, averaged over test rows.

    Predicted are the mean of a target, in its unit, or the probability of the second of two classes.

    Parameters
    ----------
    low, high
        Rows whose first input, as the model sees it, is from `low` to `high` count.
    """

    low: float = 0.0
    high: float = 1.0

    info: ClassVar = MetricInfo("Spread of samples", "target units or probability", "none", "predictive")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit.

        Raises
        ------
        InputError
            If no row counts, or the model has several outputs.
        """
        rows, problem = evaluation.tested, evaluation.model
        first = rows.x.float()[:, 0]
        counted = (first >= self.low) & (first <= self.high)
        if not bool(counted.any()):
            raise InputError(f"spread: no test row has its first input in [{self.low:g}, {self.high:g}]: widen that")
        if problem.d_out != 1:
            raise InputError(f"spread: the model has {problem.d_out} outputs, not one: leave the metric out")
        some = rows.take(counted)
        f = evaluation.outputs(some, Draws(evaluation.samples, evaluation.key, _STEP))
        target = problem.likelihood.predictive(f, tensors_of(evaluation.hyper))
        quartiles = target.mean.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64), dim=0)
        return float((quartiles[1] - quartiles[0]).mean())
