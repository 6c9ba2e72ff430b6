"""Scores of labels, from the probabilities of classes averaged over posterior samples.

Also means over all choices among rows that are equally certain. Of g tied rows r are kept, each
set of r as probable as the others. The number of marked rows among those is then hypergeometric,
so that scores which are ratios of such numbers have finite sums as their expectations.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor

from bdl.metrics import MetricInfo
from bdl.metrics.evaluation import At, Evaluation
from bdl.types import Array


@dataclass(frozen=True)
class Error:
    """Fraction of the test rows whose most probable class is not the label.

    The first class wins a tie.

    Parameters
    ----------
    at
        Parameters that predict: samples of the posterior, or its mean alone.
    """

    at: At = "samples"

    info = MetricInfo("Error", "fraction of test points", "lower", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        return float((1 - _mark_hits(evaluation.at(self.at))).mean())


@dataclass(frozen=True)
class ErrorPercent(Error):
    """`Error` in percent, as papers print it (SLANG paper 2018, Table 3)."""

    info = MetricInfo("Test error", "%", "lower", "predictive", "classification")

    def __call__(self, evaluation: Evaluation) -> float:
        return 100 * super().__call__(evaluation)


@dataclass(frozen=True)
class Ece:
    """Expected calibration error: how far confidence is from accuracy (Guo et al. 2017, equation
    3).

    The confidence of a row is the probability of its most probable class. Rows fall into bins of
    equal width by confidence, each without its lower bound; the score is the mean over rows of
    |accuracy - mean confidence| of their bin.

    Parameters
    ----------
    bins
        Number of bins.
    """

    info = MetricInfo("ECE", "probability", "lower", "predictive", "classification")

    bins: Annotated[int, Ge(1)] = 15

    def __call__(self, evaluation: Evaluation) -> float:
        confidence, hits = evaluation.predictions.probabilities.amax(-1), _mark_hits(evaluation)
        bin_numbers = (confidence * self.bins).ceil().long().clamp(1, self.bins) - 1
        gaps = torch.zeros(self.bins, dtype=torch.float64).index_add(
            0, bin_numbers, hits - confidence
        )
        return float(gaps.abs().sum()) / len(hits)


@dataclass(frozen=True)
class Brier:
    """Mean over rows of sum_c (p_c - [y = c])^2, from 0 to 2 (Brier 1950).

    For two classes it is twice the mean of (p_1 - y)^2.
    """

    info = MetricInfo(
        "Brier score", "squared probability", "lower", "predictive", "classification"
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return float(_subtract_labels(evaluation).square().sum(-1).mean())


@dataclass(frozen=True)
class Rps:
    """Ranked probability score of ordered classes (Epstein 1969), averaged over test rows, from 0
    to C - 1.

    It is sum_c (P(class <= c) - [y <= c])^2: probability far from the label costs more than beside
    it. For two classes it is half of the Brier score.
    """

    info = MetricInfo(
        "RPS", "squared probability", "lower", "predictive", "classification", ordered=True
    )

    def __call__(self, evaluation: Evaluation) -> float:
        return float(_subtract_labels(evaluation).cumsum(-1).square().sum(-1).mean())


@dataclass(frozen=True)
class Entropy:
    """Mean over rows of the entropy of the averaged probabilities, nats: what is left uncertain.

    It does not look at labels: read it beside the error. Of two fits that err equally, the lower
    is the more certain.
    """

    info = MetricInfo(
        "Predictive entropy",
        "nats per test point",
        "lower",
        "predictive",
        "classification",
        margin=0.02,
        judges_predictions=False,
    )

    def __call__(self, evaluation: Evaluation) -> float:
        probabilities = evaluation.predictions.probabilities
        return -float(torch.xlogy(probabilities, probabilities).sum(-1).mean())


def _subtract_labels(evaluation: Evaluation) -> Tensor:
    """Subtract 1 for the label and 0 for every other class from the probabilities, (n, C)."""
    probabilities = evaluation.predictions.probabilities
    return probabilities - F.one_hot(evaluation.tested.y.long(), probabilities.shape[-1])


def _mark_hits(evaluation: Evaluation) -> Tensor:
    """Mark with 1 the rows whose most probable class is the label, (n,)."""
    return (evaluation.predictions.probabilities.argmax(-1) == evaluation.tested.y).double()


_ROUNDING = 1e-12
"""Relative difference up to which neighbours count as tied: what is computed of equal rows
differs by less.
"""
_REACH = 4.5
"""Times sqrt(r), the distance of a count from its mean beyond which it is left out. By
Hoeffding's inequality the
probability of all of that is at most 2 exp(-2 * 4.5^2), about 5e-18."""


def number_tied_groups(ordered: Tensor) -> Tensor:
    """Number the groups of tied values, of values (n,) that are not negative and ascending: (n,),
    from 0.
    """
    return (ordered.diff(prepend=ordered[:1]) > _ROUNDING * ordered).cumsum(0)


def compute_count_law(tied: int, marked: int, sampled: int) -> tuple[Array, Array]:
    """Compute the law of the number of marked rows among those drawn without replacement.

    Returns numbers of marked rows that have a probability worth counting, and these probabilities,
    whose sum is 1.
    """
    lowest, highest = max(0, sampled - (tied - marked)), min(marked, sampled)
    if lowest == highest:
        return np.array([float(highest)]), np.ones(1)
    # The law falls like a Gaussian: beyond the reach its terms are below rounding, and a count of
    # millions of rows would otherwise need as many of them.
    mean, reach = sampled * marked / tied, _REACH * math.sqrt(sampled)
    counts = np.arange(
        max(lowest, math.floor(mean - reach)), min(highest, math.ceil(mean + reach)) + 1
    )
    logarithms = _log_binomial(marked, counts) + _log_binomial(tied - marked, sampled - counts)
    # Binomial coefficients overflow float64 from about 1,000 rows on: only their ratios are
    # formed.
    law = np.exp(logarithms - logarithms.max())
    return counts.astype(np.float64), law / law.sum()


def _log_binomial(n: int, k: NDArray[np.int64]) -> Array:
    """Compute the logarithm of the number of ways to choose k of n."""
    from scipy.special import gammaln

    logarithm: Array = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logarithm
