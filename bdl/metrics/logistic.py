"""Scores of logistic regression without Monte-Carlo error: the integrals over parameters are one-dimensional."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.outputs import expected, gaussian, law
from bdl.models.likelihoods import Bernoulli
from bdl.models.linear import is_glm

_WIDTHS = (0.44, 0.41, 0.40, 0.39, 0.36)
_SHARES = (
    1.146480988574439e02,
    -1.508871030070582e03,
    2.676085036831241e03,
    -1.356294962039222e03,
    7.543285642111850e01,
)
"""sigmoid(f) is about the sum of shares times Phi(sqrt(2) width f): the constants of `likLogistic`."""


@dataclass(frozen=True)
class NllByQuadrature:
    """Negative log-probability of the test labels, nats per test point: the mean of -log E_q p(y_i | theta).

    For logistic regression and a Gaussian q, E_q is exact, by quadrature. Unlike `Nll`, it draws nothing.
    """

    info: ClassVar = MetricInfo("Test NLL", "nats per test point", "lower", "predictive", "classification", margin=0.02)

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit.

        Raises
        ------
        InputError
            If the model is not a linear one of two classes, or the posterior is not Gaussian.
        """
        _check("test_nll", evaluation)
        posterior = gaussian("test_nll", evaluation)
        return -float(expected(evaluation, posterior, evaluation.tested, torch.exp).log().mean())


@dataclass(frozen=True)
class NllPrinted:
    """`NllByQuadrature` by the approximation with which the SLANG paper (2018) makes its column NLL.

    E_q sigmoid(f) is `probability_of_one`, cut off at the precision of float64 from both ends.
    """

    info: ClassVar = MetricInfo(
        "Test NLL as printed", "nats per test point", "lower", "predictive", "classification", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit; errors as in `NllByQuadrature`."""
        _check("test_nll_printed", evaluation)
        posterior = gaussian("test_nll_printed", evaluation)
        epsilon = torch.finfo(torch.float64).eps
        p = probability_of_one(*law(evaluation, posterior, evaluation.tested)).clamp(epsilon, 1 - epsilon)
        y = evaluation.tested.y.to(p)
        return -float(torch.where(y == 1, p.log(), (-p).log1p()).mean())


def probability_of_one(centre: Tensor, spread: Tensor) -> Tensor:
    """E[sigmoid(f)] with f ~ N(centre, spread^2), float64, (n,) -> (n,), as GPML's `likLogistic` approximates it.

    A mixture of five normal distribution functions stands for the sigmoid. Where |centre| is far above 0.98 spread^2 +
    4, all the mass is in the tail, and the smaller of both probabilities is exp(spread^2 / 2 - |centre|), at most
    exp(-0.1). In between, logarithms are interpolated (Rasmussen and Nickisch 2010, GPML toolbox, JMLR 11).
    """
    variance, size = spread.square(), centre.abs()
    parts = (
        share * torch.special.ndtr(math.sqrt(2) * width * centre / (1 + 2 * width**2 * variance).sqrt())
        for width, share in zip(_WIDTHS, _SHARES, strict=True)
    )
    mixture = torch.stack(list(parts)).sum(0)
    rare = (variance / 2 - size).clamp(max=-0.1)
    tail = torch.where(centre > 0, (-rare.exp()).log1p(), rare)
    weight = torch.sigmoid(10 * (size - 0.98 * variance - 4))
    return torch.where(weight == 1, tail, (1 - weight) * mixture.log() + weight * tail).exp()


def _check(name: str, evaluation: Evaluation) -> None:
    problem = evaluation.model
    if not (is_glm(problem) and isinstance(problem.likelihood, Bernoulli)):
        raise InputError(f"{name} needs a linear model and the likelihood 'bernoulli' of two classes: use nll")
