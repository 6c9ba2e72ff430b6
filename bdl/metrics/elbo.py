"""The evidence lower bound of a Gaussian posterior."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Draws, Evaluation
from bdl.metrics.outputs import expected, gaussian
from bdl.metrics.predictions import tensors_of
from bdl.models.linear import is_glm
from bdl.posteriors import DiagonalGaussian, Gaussian, kl_divergence

_STEP = 1
"""Counter of its draws: the draws of predictions have 0, so the errors of both are independent."""


@dataclass(frozen=True)
class NegElbo:
    """Negative evidence lower bound, nats per training point.

    (KL(q || prior) - E_q log p(D | theta)) / N with all N training rows, targets in original units. The divergence is
    exact and summed over all parameters. So is the expectation for a linear model with one output, by quadrature; for
    others it is a mean over draws from q, and ``neg_elbo_mcse`` is the standard error of the score, same unit.

    Parameters
    ----------
    samples
        Draws from q, where they are needed.
    """

    info: ClassVar = MetricInfo("Negative ELBO", "nats per training point", "lower", "posterior", margin=0.02)

    samples: Annotated[int, Ge(2)] = 100

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit.

        Raises
        ------
        InputError
            If the posterior or the prior is not Gaussian, or observations come from a stream.
        """
        posterior = gaussian("neg_elbo", evaluation)
        return self._score(evaluation, posterior, _divergence(evaluation, posterior))

    def _score(self, evaluation: Evaluation, posterior: Gaussian, divergence: Tensor) -> Mapping[str, float]:
        n = len(evaluation.trained.y)
        if is_glm(evaluation.model):
            likelihood = expected(evaluation, posterior, evaluation.trained, lambda log_prob: log_prob).sum()
            return {"": float(divergence - likelihood) / n}
        predicted = evaluation.predict(evaluation.trained, Draws(self.samples, evaluation.key, _STEP))
        drawn = predicted.sample_log_likelihood
        error = drawn.std() / math.sqrt(self.samples)
        return {"": float(divergence - drawn.mean().cpu()) / n, "mcse": float(error) / n}


@dataclass(frozen=True)
class PriorKl:
    """KL(q || prior), the part of the negative evidence lower bound that is not the fit, nats per training point.

    It is exact and summed over all parameters; errors as in `NegElbo`.
    """

    info: ClassVar = MetricInfo("Divergence from the prior", "nats per training point", "none", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit."""
        return float(_divergence(evaluation, gaussian("prior_kl", evaluation))) / len(evaluation.trained.y)


@dataclass(frozen=True)
class NegElboPrinted(NegElbo):
    """`NegElbo` without the constant of the biases' prior, as the SLANG paper (2018) prints it in Tables 1 and 4.

    Its authors' code sums log gamma, of the prior precisions, over the weights alone, so that KL(q || prior) lacks
    -(1/2) sum log gamma over the biases: 5.76 nats for the bias precision 1e-5, by which the printed values are too
    low. They are too high, by about 1e-4 nats per training point, by the bound that stands for the expectation there.
    """

    info: ClassVar = MetricInfo(
        "Negative ELBO as printed", "nats per training point", "lower", "posterior", margin=0.02
    )

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit; errors as in `NegElbo`."""
        found = super().__call__(evaluation)
        constant = -0.5 * float(_prior_precision(evaluation)[evaluation.model.layout.biases].log().sum())
        return {**found, "": found[""] - constant / len(evaluation.trained.y)}


def _divergence(evaluation: Evaluation, posterior: Gaussian) -> Tensor:
    """Return KL(q || prior), nats."""
    variance = _prior_precision(evaluation).reciprocal()
    return kl_divergence(posterior, DiagonalGaussian(torch.zeros_like(variance), variance))


def _prior_precision(evaluation: Evaluation) -> Tensor:
    """Prior precision of each parameter, float64, (D,)."""
    problem = evaluation.model
    return problem.prior_precision(tensors_of(evaluation.hyper)).expand(problem.dim)
