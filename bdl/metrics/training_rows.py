"""Scores of labels on rows that the fit has seen, for curves beside those of test rows."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from bdl.metrics.base import MetricInfo
from bdl.metrics.classification import ErrorPercent
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.likelihoods import Nll


@dataclass(frozen=True)
class TrainingErrorPercent:
    """`ErrorPercent` of training rows.

    Parameters
    ----------
    rows
        Rows that are predicted, drawn once and the same for every fit of the data; all of them if there are no more.
    """

    rows: Annotated[int, Ge(1)] = 1000

    info: ClassVar = MetricInfo("Training error", "%", "lower", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return ErrorPercent()(_seen(evaluation, self.rows))


@dataclass(frozen=True)
class TrainingNll:
    """`Nll` of training rows.

    Parameters
    ----------
    rows
        As for `TrainingErrorPercent`.
    """

    rows: Annotated[int, Ge(1)] = 1000

    info: ClassVar = MetricInfo(
        "Training NLL", "nats per training point", "lower", "predictive", "classification", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return Nll()(_seen(evaluation, self.rows))


def _seen(evaluation: Evaluation, count: int) -> Evaluation:
    """Put training rows in the place of the test rows.

    Drawn, not at regular distances: MNIST has two sources in turn, and its even rows err almost twice as often.
    """
    rows = evaluation.trained
    drawn = torch.randperm(len(rows.y), generator=torch.Generator().manual_seed(0))[:count].sort().values
    some = rows.take(drawn) if count < len(rows.y) else rows
    return replace(evaluation, test=lambda: some, predicted=None)
