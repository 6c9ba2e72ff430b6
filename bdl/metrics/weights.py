"""Scores of what the data say of a model, and of the weights that importance sampling leaves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation, Examples
from bdl.metrics.predictions import tensors_of
from bdl.models.joint import log_joint, whole
from bdl.models.priors import PrecisionPrior
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import Weighted
from bdl.posteriors.base import Gaussian
from bdl.posteriors.tensors import as_type


@dataclass(frozen=True)
class Ess:
    """Effective sample size of weighted draws, (sum r)^2 / sum r^2.

    As many draws from the posterior itself would tell its mean about as well. It is blind to what the proposal misses.
    """

    info: ClassVar = MetricInfo("Effective sample size", "draws", "higher", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        """Score a fit.

        Raises
        ------
        InputError
            If the posterior has no weights.
        """
        posterior = evaluation.posterior
        if not isinstance(posterior, Weighted):
            raise InputError(f"ess: {type(posterior).__name__} has no weights: leave the metric out")
        return float(posterior.effective_size())


@dataclass(frozen=True)
class LogEvidence:
    """Estimate of log p(D), the evidence of the model, nats, all training rows together, targets in original units.

    For weighted draws the logarithm of their mean weight; its standard error by the delta method is the suffix
    ``mcse``, and the logarithm is too low by half of its square on average. For a Gaussian q with mean m,
    log p(D, m) - log q(m): Laplace's formula log p(D, m) + (1/2) log |2 pi H^-1| where q is the Laplace approximation,
    and exact where q is the posterior (Chib 1995).
    """

    info: ClassVar = MetricInfo("Log evidence", "nats", "none", "posterior", margin=1.0)

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        """Score a fit.

        Raises
        ------
        InputError
            If the posterior is neither weighted nor Gaussian, or observations come from a stream.
        """
        posterior = as_type(evaluation.posterior, torch.float64, torch.device("cpu"))
        model, rows = evaluation.model, evaluation.trained
        # the density of targets in original units: each of their N axes is y_unit times as long
        stretch = len(rows.y) * torch.as_tensor(rows.y_unit, dtype=torch.float64).log()
        if isinstance(posterior, Weighted):
            error = (1 / posterior.effective_size() - 1 / len(posterior.draws)).clamp(min=0).sqrt()
            return {"": float(posterior.log_evidence() - stretch), "mcse": float(error)}
        if not isinstance(posterior, Gaussian):
            raise InputError(f"log_evidence: {type(posterior).__name__} is neither weighted nor Gaussian: leave it out")
        joint = _log_joint(posterior.mean(), model, rows, tensors_of(evaluation.hyper))
        return {"": float(joint - posterior.log_prob(posterior.mean()) - stretch)}


def _log_joint(theta: Tensor, model: Problem, rows: Examples, hyper: Hyper) -> Tensor:
    """Evaluate log p(D, theta) at one parameter vector, of targets in the unit of the model's outputs."""
    if not isinstance(model.prior, PrecisionPrior):
        raise InputError(f"log_evidence: prior {type(model.prior).__name__} has no precision: leave the metric out")
    unit = torch.as_tensor(rows.y_unit, dtype=torch.float64)
    data = whole(rows.x.double(), (rows.y - rows.y_origin) / unit)._replace(y_unit=unit)
    return log_joint(theta.unsqueeze(0), model, data, hyper).squeeze(0)
