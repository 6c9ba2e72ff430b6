"""Scores of rows that a fit has seen: how far it has converged, and how much it overfits."""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from annotated_types import Ge

from bdl.metrics import MetricInfo
from bdl.metrics.classification import ErrorPercent
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.likelihoods import Nll, Nmll


@dataclass(frozen=True)
class TrainingScore:
    """Settings of a score of training rows.

    Parameters
    ----------
    rows
        Rows that are predicted, drawn once and the same for every fit of the data; all of them if
        there are no more.
    """

    rows: Annotated[int, Ge(1)] = 1000

    def on_training_rows(self, evaluation: Evaluation) -> Evaluation:
        """Put training rows where the test rows are.

        Drawn, not at regular distances: MNIST has two sources in turn, and its even rows err
        almost twice as often.
        """
        rows = evaluation.trained
        chosen_rows = rows
        if self.rows < len(rows.y):
            order = torch.randperm(len(rows.y), generator=torch.Generator().manual_seed(0))
            chosen_rows = rows.take(order[: self.rows].sort().values)
        return replace(evaluation, test=lambda: chosen_rows, predicted=None)


@dataclass(frozen=True)
class TrainingErrorPercent(TrainingScore):
    """`ErrorPercent` of training rows."""

    info = MetricInfo(
        "Training error",
        "%",
        "lower",
        "predictive",
        "classification",
        judges_predictions=False,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return ErrorPercent()(self.on_training_rows(evaluation))


@dataclass(frozen=True)
class TrainingNll(TrainingScore):
    """`Nll` of training rows."""

    info = MetricInfo(
        "Training NLL",
        "nats per training point",
        "lower",
        "predictive",
        "classification",
        margin=0.02,
        judges_predictions=False,
    )

    def __call__(self, evaluation: Evaluation) -> float | dict[str, float]:
        return Nll()(self.on_training_rows(evaluation))


@dataclass(frozen=True)
class TrainingNmll(TrainingScore):
    """`Nmll` of training rows."""

    info = MetricInfo(
        "Training NMLL",
        "nats per training point",
        "lower",
        "predictive",
        "regression",
        margin=0.05,
        judges_predictions=False,
    )

    def __call__(self, evaluation: Evaluation) -> float | dict[str, float]:
        return Nmll()(self.on_training_rows(evaluation))
