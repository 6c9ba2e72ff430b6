"""The evidence lower bound of a Gaussian posterior."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Draws, Evaluation
from bdl.metrics.predictions import tensors_of
from bdl.posteriors import DiagonalGaussian, Gaussian, kl_divergence
from bdl.posteriors.tensors import as_type

_STEP = 1
"""Counter of its draws: the draws of predictions have 0, so the errors of both are independent."""


@dataclass(frozen=True)
class NegElbo:
    """Negative evidence lower bound, nats per training point.

    (KL(q || prior) - E_q log p(D | theta)) / N with all N training rows, targets in original units. The divergence is
    exact and summed over all parameters; the expectation is a mean over draws from q, so the score carries
    Monte-Carlo error: its standard error is ``neg_elbo_mcse``, same unit.

    Parameters
    ----------
    samples
        Draws from q.
    """

    info: ClassVar = MetricInfo("Negative ELBO", "nats per training point", "lower", "posterior")

    samples: Annotated[int, Ge(2)] = 100

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit.

        Raises
        ------
        InputError
            If the posterior or the prior is not Gaussian, or observations come from a stream.
        """
        posterior = as_type(evaluation.posterior, torch.float64, torch.device("cpu"))
        if not isinstance(posterior, Gaussian):
            raise InputError(f"neg_elbo: {type(posterior).__name__} is not Gaussian: leave the metric out")
        precision = evaluation.model.prior_precision(tensors_of(evaluation.hyper)).to(posterior.mean())
        variance = precision.reciprocal().expand(posterior.dim)
        divergence = kl_divergence(posterior, DiagonalGaussian(torch.zeros_like(variance), variance))
        predicted = evaluation.predict(evaluation.trained, Draws(self.samples, evaluation.key, _STEP))
        drawn, n = predicted.sample_log_likelihood, len(evaluation.trained.y)
        error = drawn.std() / math.sqrt(self.samples)
        return {"": float(divergence - drawn.mean().cpu()) / n, "mcse": float(error) / n}
