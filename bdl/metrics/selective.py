"""Selective prediction: scores of labels on the rows that are most certain (VIFA paper 2023, section 4.3).

Rows are put in the order of what is uncertain in them: the entropy of the averaged probabilities, or the disagreement
of the samples, sum_c Var_s p(c | theta_s). The paper's Eq. 60 is the disagreement, its code takes the mean over classes
in place of the sum; the order is the same. Ties are in the order of the rows.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from annotated_types import Gt, Le
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation

Uncertainty = Literal["entropy", "disagreement"]


def uncertainties(evaluation: Evaluation, by: Uncertainty) -> Tensor:
    """Return how uncertain the prediction of each row is, (n,): nats, or squared probability."""
    predictions = evaluation.predictions
    mean = predictions.probabilities
    if by == "entropy":
        return -torch.xlogy(mean, mean).sum(-1)
    return (predictions.squares - mean.square()).clamp(min=0).sum(-1)


class _Kept(NamedTuple):
    """Rows that are kept, the most certain first."""

    probabilities: Tensor
    """(m, C)."""
    labels: Tensor
    """(m,)."""

    @property
    def hits(self) -> Tensor:
        """1 where the most probable class is the label, (m,); the first class wins a tie."""
        return (self.probabilities.argmax(-1) == self.labels).double()


def _kept(evaluation: Evaluation, share: float, by: Uncertainty) -> _Kept:
    order = uncertainties(evaluation, by).argsort(stable=True)
    chosen = order[: max(1, math.floor(share * len(order) + 1e-9))]  # 0.7 of 10 rows is 7, whatever rounding says
    return _Kept(evaluation.predictions.probabilities[chosen], evaluation.tested.y[chosen].long())


@dataclass(frozen=True)
class _Selective:
    """Settings of a score of the most certain rows.

    Parameters
    ----------
    kept
        Share of the test rows that are kept, the most certain ones; their number is rounded down.
    by
        What makes a row uncertain: ``"entropy"``, or ``"disagreement"`` of the samples.
    """

    kept: Annotated[float, Gt(0), Le(1)] = 1.0
    by: Uncertainty = "entropy"

    def rows(self, evaluation: Evaluation) -> _Kept:
        """Return the rows that are kept."""
        return _kept(evaluation, self.kept, self.by)

    def counts(self, evaluation: Evaluation) -> tuple[float, float, float]:
        """Count true positives, rows called positive, and positive rows, of two classes.

        Raises
        ------
        InputError
            If there are more classes.
        """
        rows = _two_classes(self.rows(evaluation))
        called, positive = rows.probabilities.argmax(-1), rows.labels
        return float((called * positive).sum()), float(called.sum()), float(positive.sum())


@dataclass(frozen=True)
class Accuracy(_Selective):
    """Fraction of the kept rows whose most probable class is the label; the first class wins a tie."""

    info: ClassVar = MetricInfo("Accuracy", "fraction of kept points", "higher", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return float(self.rows(evaluation).hits.mean())


@dataclass(frozen=True)
class Precision(_Selective):
    """Of the kept rows that are called positive (class 1), the share that are; 0 if none is."""

    info: ClassVar = MetricInfo("Precision", "fraction of called positives", "higher", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        hits, called, _ = self.counts(evaluation)
        return hits / max(called, 1)


@dataclass(frozen=True)
class Recall(_Selective):
    """Of the kept rows that are positive (class 1), the share that are called so; 0 if none is."""

    info: ClassVar = MetricInfo("Recall", "fraction of positives", "higher", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        hits, _, positive = self.counts(evaluation)
        return hits / max(positive, 1)


@dataclass(frozen=True)
class F1(_Selective):
    """Harmonic mean of precision and recall on the kept rows; 0 if none is or is called positive."""

    info: ClassVar = MetricInfo("F1", "fraction", "higher", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        hits, called, positive = self.counts(evaluation)
        return 2 * hits / max(called + positive, 1)


@dataclass(frozen=True)
class Auroc(_Selective):
    """Share of the pairs of a kept positive and a negative row that are ranked so, ties half; 0.5 without a pair."""

    info: ClassVar = MetricInfo("AUROC", "probability", "higher", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        from scipy.stats import rankdata

        rows = _two_classes(self.rows(evaluation))
        positive = rows.labels.bool()
        many, few = int(positive.sum()), int((~positive).sum())
        if not many or not few:
            return 0.5
        ranks = torch.from_numpy(rankdata(rows.probabilities[:, 1].numpy()))
        return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


@dataclass(frozen=True)
class Aurc:
    """Area under the curve of risk by coverage: mean error of the k most certain rows, averaged over k = 1, ..., n.

    Geifman, Uziel and El-Yaniv (2019), "Bias-reduced uncertainty estimation".

    Parameters
    ----------
    by
        As in `Accuracy`.
    """

    by: Uncertainty = "entropy"

    info: ClassVar = MetricInfo("AURC", "fraction of kept points", "lower", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        misses = 1 - _kept(evaluation, 1.0, self.by).hits
        return float((misses.cumsum(0) / torch.arange(1, len(misses) + 1)).mean())


@dataclass(frozen=True)
class Disagreement:
    """Mean over rows of the disagreement of the samples, sum_c Var_s p(c | theta_s): 0 for a point estimate."""

    info: ClassVar = MetricInfo("Model disagreement", "squared probability", "none", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return float(uncertainties(evaluation, "disagreement").mean())


def _two_classes(rows: _Kept) -> _Kept:
    if (found := rows.probabilities.shape[-1]) != 2:
        raise InputError(f"precision, recall, f1 and auroc need two classes, not {found}: use accuracy or error")
    return rows
