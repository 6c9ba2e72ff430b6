"""Selective prediction: scores of labels on the rows that are most certain (VIFA paper 2023,
section 4.3).

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
from bdl.metrics.classification import compute_count_law, number_tied_groups
from bdl.metrics.evaluation import Evaluation

Uncertainty = Literal["entropy", "disagreement"]

_CANCELLED = 16 * torch.finfo(torch.float64).eps
"""Relative size of what rounding leaves of the difference of a mean of squares and the square of
a mean.
"""


def measure_uncertainty(evaluation: Evaluation, by: Uncertainty) -> Tensor:
    """Compute how uncertain the prediction of each row is, (n,): nats, or squared probability.

    0 if below rounding.
    """
    predictions = evaluation.predictions
    mean = predictions.probabilities
    if by == "entropy":
        return (-torch.xlogy(mean, mean).sum(-1)).clamp(min=0)
    spread = predictions.squares - mean.square()
    return torch.where(spread > _CANCELLED * predictions.squares, spread, 0).sum(-1)


def compute_risks(evaluation: Evaluation, by: Uncertainty) -> Tensor:
    """Compute the mean error of the k most certain rows for k = 1, ..., n: (n,)."""
    ordered, order = measure_uncertainty(evaluation, by).sort(stable=True)
    rows = _LabelledRows(
        evaluation.predictions.probabilities[order], evaluation.tested.y[order].long()
    )
    group = number_tied_groups(ordered)
    sizes = group.bincount()
    # on average, a place among tied rows has the mean error of these
    misses = (torch.zeros(len(sizes)).double().index_add(0, group, 1 - rows.hits) / sizes)[group]
    return misses.cumsum(0) / torch.arange(1, len(misses) + 1)


class _LabelledRows(NamedTuple):
    """Rows of the test set with probabilities and labels."""

    probabilities: Tensor
    """(m, C)."""
    labels: Tensor
    """(m,)."""

    @property
    def predicted(self) -> Tensor:
        """The most probable class, (m,); the first class wins a tie."""
        return self.probabilities.argmax(-1)

    @property
    def hits(self) -> Tensor:
        """1 where the most probable class is the label, (m,)."""
        return (self.predicted == self.labels).double()


class _Selection(NamedTuple):
    """Rows that are kept, and rows that are equally certain, of which some are kept."""

    certain: _LabelledRows
    tied: _LabelledRows
    n_chosen: int
    """How many of the tied rows are kept, each set of so many as probable as the others."""


@dataclass(frozen=True)
class _SelectiveScore:
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

    def select_rows(self, evaluation: Evaluation) -> _Selection:
        """Return the rows that are kept."""
        ordered, order = measure_uncertainty(evaluation, self.by).sort(stable=True)
        # 0.7 of 10 rows is 7, whatever rounding says
        count = max(1, math.floor(self.kept * len(order) + 1e-9))
        group = number_tied_groups(ordered)
        last = int(group[count - 1])
        start, end = torch.searchsorted(group, torch.tensor([last, last + 1])).tolist()
        if end == count:
            start = end
        probabilities, labels = evaluation.predictions.probabilities, evaluation.tested.y.long()
        before, among = order[:start], order[start:end]
        return _Selection(
            certain=_LabelledRows(probabilities[before], labels[before]),
            tied=_LabelledRows(probabilities[among], labels[among]),
            n_chosen=count - start,
        )

    def select_binary_rows(self, evaluation: Evaluation) -> _Selection:
        """Return the rows that are kept, of two classes; `InputError` if there are more."""
        rows = self.select_rows(evaluation)
        classes = rows.certain.probabilities.shape[-1]
        if classes != 2:
            raise InputError(
                f"precision, recall, f1 and auroc need two classes, not {classes}: use "
                "accuracy or error"
            )
        return rows


@dataclass(frozen=True)
class Accuracy(_SelectiveScore):
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
        certain, tied, n_chosen = self.select_rows(evaluation)
        hits = float(certain.hits.sum()) + (
            n_chosen * float(tied.hits.mean()) if n_chosen else 0.0
        )
        return hits / (len(certain.labels) + n_chosen)


@dataclass(frozen=True)
class Precision(_SelectiveScore):
    """Of the kept rows that are called positive (class 1), the share that are; 0 if none is."""

    info = MetricInfo(
        "Precision",
        "fraction of called positives",
        "higher",
        "predictive",
        "classification",
        margin=0.02,
        binary=True,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return _compute_hit_share(self.select_binary_rows(evaluation), lambda rows: rows.predicted)


@dataclass(frozen=True)
class Recall(_SelectiveScore):
    """Of the kept rows that are positive (class 1), the share that are called so; 0 if none is."""

    info = MetricInfo(
        "Recall",
        "fraction of positives",
        "higher",
        "predictive",
        "classification",
        margin=0.02,
        binary=True,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return _compute_hit_share(self.select_binary_rows(evaluation), lambda rows: rows.labels)


@dataclass(frozen=True)
class F1(_SelectiveScore):
    """Harmonic mean of precision and recall on the kept rows.

    0 if none is or is called positive.
    """

    info = MetricInfo(
        "F1", "fraction", "higher", "predictive", "classification", margin=0.02, binary=True
    )

    def __call__(self, evaluation: Evaluation) -> float:
        certain, tied, n_chosen = self.select_binary_rows(evaluation)
        hits, errors = _count_hits_and_errors(certain)
        tied_hits, tied_errors = _count_hits_and_errors(tied)
        total = 0.0
        for more_hits, probability in zip(
            *compute_count_law(len(tied.labels), tied_hits, n_chosen), strict=True
        ):
            more_errors, law = compute_count_law(
                len(tied.labels) - tied_hits, tied_errors, n_chosen - int(more_hits)
            )
            twice = 2 * (hits + more_hits)
            f1 = twice / np.maximum(twice + errors + more_errors, 1)
            total += probability * float(law @ f1)
        return total


@dataclass(frozen=True)
class Auroc(_SelectiveScore):
    """Share of the pairs of a kept positive and a negative row that are ranked so, ties half.

    0.5 without a pair.
    """

    info = MetricInfo(
        "AUROC",
        "probability",
        "higher",
        "predictive",
        "classification",
        margin=0.02,
        binary=True,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        certain, tied, n_chosen = self.select_binary_rows(evaluation)
        positive, negative = _split_by_label(certain)
        tied_positive, tied_negative = _split_by_label(tied)
        n_positive, law = compute_count_law(len(tied.labels), len(tied_positive), n_chosen)
        n_negative = n_chosen - n_positive
        # given the number of positives among the tied rows that are kept, each of them and each
        # negative is as probable as the others
        negative_share = n_negative / max(len(tied_negative), 1)
        positive_share = n_positive / max(len(tied_positive), 1)
        tied_pairs = max(len(tied_positive) * len(tied_negative), 1)
        won = _count_ordered_pairs(positive, negative) + (
            negative_share * _count_ordered_pairs(positive, tied_negative)
            + positive_share * _count_ordered_pairs(tied_positive, negative)
            + n_positive
            * n_negative
            / tied_pairs
            * _count_ordered_pairs(tied_positive, tied_negative)
        )
        pairs = (len(positive) + n_positive) * (len(negative) + n_negative)
        return float(law @ np.where(pairs > 0, won / np.maximum(pairs, 1), 0.5))


@dataclass(frozen=True)
class Aurc:
    """Area under the curve of risk by coverage: mean error of the k most certain rows, averaged
    over k = 1, ..., n.

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
        return float(compute_risks(evaluation, self.by).mean())


@dataclass(frozen=True)
class Disagreement:
    """Mean over rows of the disagreement of the samples, sum_c Var_s p(c | theta_s): 0 for a point
    estimate.
    """

    info = MetricInfo(
        "Model disagreement", "squared probability", "none", "predictive", "classification"
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return float(measure_uncertainty(evaluation, "disagreement").mean())


def _compute_hit_share(selection: _Selection, among: Callable[[_LabelledRows], Tensor]) -> float:
    """Compute the expected share of true positives among rows that `among` marks with 1.

    0 where it marks none.
    """
    certain, tied, n_chosen = selection
    marked, tied_marked = int(among(certain).sum()), int(among(tied).sum())
    hits, _ = _count_hits_and_errors(certain)
    tied_hits, _ = _count_hits_and_errors(tied)
    more_marked, law = compute_count_law(len(tied.labels), tied_marked, n_chosen)
    more_hits = more_marked * tied_hits / max(tied_marked, 1)
    return float(law @ ((hits + more_hits) / np.maximum(marked + more_marked, 1)))


def _count_hits_and_errors(rows: _LabelledRows) -> tuple[int, int]:
    """Count true positives, and rows whose class is not what it is called, of two classes."""
    return int((rows.predicted * rows.labels).sum()), int((rows.predicted != rows.labels).sum())


def _split_by_label(rows: _LabelledRows) -> tuple[Tensor, Tensor]:
    positive = rows.labels.bool()
    return rows.probabilities[positive, 1], rows.probabilities[~positive, 1]


def _count_ordered_pairs(positive: Tensor, negative: Tensor) -> float:
    """Count the pairs in which the positive row has the larger probability, ties half."""
    ranked, values = negative.sort().values, positive.contiguous()
    below = torch.searchsorted(ranked, values).sum()
    up_to = torch.searchsorted(ranked, values, right=True).sum()
    return float(below + up_to) / 2
