"""Selective prediction: scores of labels on the rows that are most certain (VIFA paper 2023, section 4.3).

Rows are put in the order of what is uncertain in them: the entropy of the averaged probabilities,
or the disagreement of the samples, sum_c Var_s p(c | theta_s). The paper's Eq. 60 is the
disagreement, its code takes the mean over classes in place of the sum; the order is the same.
Where the last row that is kept is as uncertain as others that are not, a score is its mean over
all ways to choose among those: it does not depend on the order of the rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Gt, Le
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import MetricInfo
from bdl.metrics.classification import counts, groups
from bdl.metrics.evaluation import Evaluation

Uncertainty = Literal["entropy", "disagreement"]

_CANCELLED = 16 * torch.finfo(torch.float64).eps
"""Relative size of what rounding leaves of the difference of a mean of squares and the square of
a mean.
"""


def uncertainties(evaluation: Evaluation, by: Uncertainty) -> Tensor:
    """Compute how uncertain the prediction of each row is, (n,): nats, or squared probability.

    0 if below rounding.
    """
    predictions = evaluation.predictions
    mean = predictions.probabilities
    if by == "entropy":
        return (-torch.xlogy(mean, mean).sum(-1)).clamp(min=0)
    spread = predictions.squares - mean.square()
    return torch.where(spread > _CANCELLED * predictions.squares, spread, 0).sum(-1)


def risks(evaluation: Evaluation, by: Uncertainty) -> Tensor:
    """Compute the mean error of the k most certain rows for k = 1, ..., n: (n,)."""
    ordered, order = uncertainties(evaluation, by).sort(stable=True)
    rows = _Rows(evaluation.predictions.probabilities[order], evaluation.tested.y[order].long())
    group = groups(ordered)
    sizes = group.bincount()
    # on average, a place among tied rows has the mean error of these
    misses = (torch.zeros(len(sizes)).double().index_add(0, group, 1 - rows.hits) / sizes)[group]
    return misses.cumsum(0) / torch.arange(1, len(misses) + 1)


class _Rows(NamedTuple):
    """Some of the test rows."""

    probabilities: Tensor
    """(m, C)."""
    labels: Tensor
    """(m,)."""

    @property
    def called(self) -> Tensor:
        """The most probable class, (m,); the first class wins a tie."""
        return self.probabilities.argmax(-1)

    @property
    def hits(self) -> Tensor:
        """1 where the most probable class is the label, (m,)."""
        return (self.called == self.labels).double()


class _Kept(NamedTuple):
    """Rows that are kept, and rows that are equally certain, of which some are kept."""

    sure: _Rows
    tied: _Rows
    drawn: int
    """How many of the tied rows are kept, each set of so many as probable as the others."""


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

    version: ClassVar[int] = 2
    """Of 2: averages over the order of rows that are equally certain."""

    def rows(self, evaluation: Evaluation) -> _Kept:
        """Return the rows that are kept."""
        ordered, order = uncertainties(evaluation, self.by).sort(stable=True)
        count = max(
            1, math.floor(self.kept * len(order) + 1e-9)
        )  # 0.7 of 10 rows is 7, whatever rounding says
        group = groups(ordered)
        last = int(group[count - 1])
        start, end = (
            int(place) for place in torch.searchsorted(group, torch.tensor([last, last + 1]))
        )
        if end == count:
            start = end
        probabilities, labels = evaluation.predictions.probabilities, evaluation.tested.y.long()
        sure, tied = (
            _Rows(probabilities[rows], labels[rows]) for rows in (order[:start], order[start:end])
        )
        return _Kept(sure, tied, count - start)

    def positives(self, evaluation: Evaluation) -> _Kept:
        """Return the rows that are kept, of two classes; `InputError` if there are more."""
        rows = self.rows(evaluation)
        if (found := rows.sure.probabilities.shape[-1]) != 2:
            raise InputError(
                f"precision, recall, f1 and auroc need two classes, not {found}: use accuracy or error"
            )
        return rows


@dataclass(frozen=True)
class Accuracy(_Selective):
    """Fraction of the kept rows whose most probable class is the label.

    The first class wins a tie.
    """

    info = MetricInfo(
        "Accuracy",
        "fraction of kept points",
        "higher",
        "predictive",
        "classification",
        margin=0.02,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        sure, tied, drawn = self.rows(evaluation)
        hits = float(sure.hits.sum()) + (drawn * float(tied.hits.mean()) if drawn else 0.0)
        return hits / (len(sure.labels) + drawn)


@dataclass(frozen=True)
class Precision(_Selective):
    """Of the kept rows that are called positive (class 1), the share that are; 0 if none is."""

    info = MetricInfo(
        "Precision",
        "fraction of called positives",
        "higher",
        "predictive",
        "classification",
        margin=0.02,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return _share_of_hits(self.positives(evaluation), lambda rows: rows.called)


@dataclass(frozen=True)
class Recall(_Selective):
    """Of the kept rows that are positive (class 1), the share that are called so; 0 if none is."""

    info = MetricInfo(
        "Recall", "fraction of positives", "higher", "predictive", "classification", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return _share_of_hits(self.positives(evaluation), lambda rows: rows.labels)


@dataclass(frozen=True)
class F1(_Selective):
    """Harmonic mean of precision and recall on the kept rows.

    0 if none is or is called positive.
    """

    info = MetricInfo("F1", "fraction", "higher", "predictive", "classification", margin=0.02)

    def __call__(self, evaluation: Evaluation) -> float:
        sure, tied, drawn = self.positives(evaluation)
        (hits, wrong), (tied_hits, tied_wrong) = (_hits_and_wrong(rows) for rows in (sure, tied))
        total = 0.0
        for more_hits, probability in zip(
            *counts(len(tied.labels), tied_hits, drawn), strict=True
        ):
            others, law = counts(len(tied.labels) - tied_hits, tied_wrong, drawn - int(more_hits))
            twice = 2 * (hits + more_hits)
            total += probability * float(law @ (twice / np.maximum(twice + wrong + others, 1)))
        return total


@dataclass(frozen=True)
class Auroc(_Selective):
    """Share of the pairs of a kept positive and a negative row that are ranked so, ties half.

    0.5 without a pair.
    """

    info = MetricInfo(
        "AUROC", "probability", "higher", "predictive", "classification", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> float:
        sure, tied, drawn = self.positives(evaluation)
        (ones, zeros), (tied_ones, tied_zeros) = (_by_label(rows) for rows in (sure, tied))
        more, law = counts(len(tied.labels), len(tied_ones), drawn)
        less = drawn - more
        # given the number of positives that are drawn, each of them and each negative is as
        # probable as the others
        won = _won(ones, zeros) + (
            less / max(len(tied_zeros), 1) * _won(ones, tied_zeros)
            + more / max(len(tied_ones), 1) * _won(tied_ones, zeros)
            + more * less / max(len(tied_ones) * len(tied_zeros), 1) * _won(tied_ones, tied_zeros)
        )
        pairs = (len(ones) + more) * (len(zeros) + less)
        return float(law @ np.where(pairs > 0, won / np.maximum(pairs, 1), 0.5))


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

    version: ClassVar[int] = 2
    """Of 2: averages over the order of rows that are equally certain."""

    info = MetricInfo("AURC", "fraction of kept points", "lower", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        return float(risks(evaluation, self.by).mean())


@dataclass(frozen=True)
class Disagreement:
    """Mean over rows of the disagreement of the samples, sum_c Var_s p(c | theta_s): 0 for a point estimate."""

    info = MetricInfo(
        "Model disagreement", "squared probability", "none", "predictive", "classification"
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return float(uncertainties(evaluation, "disagreement").mean())


def _share_of_hits(kept: _Kept, among: Callable[[_Rows], Tensor]) -> float:
    """Compute the expected share of true positives among rows that `among` marks with 1.

    0 where it marks none.
    """
    sure, tied, drawn = kept
    marked, tied_marked = (int(among(rows).sum()) for rows in (sure, tied))
    (hits, _), (tied_hits, _) = (_hits_and_wrong(rows) for rows in (sure, tied))
    more, law = counts(len(tied.labels), tied_marked, drawn)
    return float(
        law @ ((hits + more * tied_hits / max(tied_marked, 1)) / np.maximum(marked + more, 1))
    )


def _hits_and_wrong(rows: _Rows) -> tuple[int, int]:
    """Count true positives, and rows whose class is not what it is called, of two classes."""
    return int((rows.called * rows.labels).sum()), int((rows.called != rows.labels).sum())


def _by_label(rows: _Rows) -> tuple[Tensor, Tensor]:
    positive = rows.labels.bool()
    return rows.probabilities[positive, 1], rows.probabilities[~positive, 1]


def _won(ones: Tensor, zeros: Tensor) -> float:
    """Count the pairs in which the positive row has the larger probability, ties half."""
    ranked = zeros.sort().values
    below, beside = (
        torch.searchsorted(ranked, ones.contiguous(), right=right).sum() for right in (False, True)
    )
    return float(below + beside) / 2
