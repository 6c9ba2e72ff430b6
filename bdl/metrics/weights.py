"""Scores of what the data say of a model, and of the weights that importance sampling leaves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics import MetricInfo
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, as_tensors, draw_samples, draw_vectors
from bdl.metrics.targets import Examples
from bdl.models.priors import PrecisionPrior
from bdl.models.problem import full_batch, log_joint
from bdl.posteriors import Weighted
from bdl.posteriors.base import GaussianPosterior
from bdl.references.mcmc import import_optional

_CPU = torch.device("cpu")
_STEP = 4
"""First counter word of its draws; those of other scores and of figures have others."""
_ROUNDING = 1e-10
"""Relative to log-densities: ratios that differ by less are all alike, and have no tail."""
_LARGEST_RANGE = 600.0
"""Nats from the largest ratio to the others of the tail, which is a fifth of all at most: float64
bears 700.
"""


@dataclass(frozen=True)
class Ess:
    """Effective sample size of weighted draws, (sum r)^2 / sum r^2.

    As many draws from the posterior itself would tell its mean about as well. It is blind to what
    the proposal misses.
    """

    info = MetricInfo("Effective sample size", "draws", "higher", "posterior")

    def __call__(self, evaluation: Evaluation) -> float:
        posterior = evaluation.posterior
        if not isinstance(posterior, Weighted):
            raise InputError(
                f"ess: {type(posterior).__name__} has no weights: leave the metric out"
            )
        return float(posterior.effective_size())


@dataclass(frozen=True)
class LogEvidence:
    """Estimate of log p(D), the evidence of the model, nats, all training rows together, targets
    in original units.

    For weighted draws the logarithm of their mean weight; its standard error by the delta method
    is the suffix ``mcse``, and the logarithm is too low by half of its square on average. For a
    Gaussian q with mean m, log p(D, m) - log q(m): Laplace's formula log p(D, m) + (1/2) log |2 pi
    H^-1| where q is the Laplace approximation, and exact where q is the posterior (Chib 1995).
    """

    info = MetricInfo("Log evidence", "nats", "none", "posterior", margin=1.0)

    def __call__(self, evaluation: Evaluation) -> Mapping[str, float]:
        posterior, stretch = evaluation.precise, _compute_log_scale(evaluation.trained)
        if isinstance(posterior, Weighted):
            error = (1 / posterior.effective_size() - 1 / len(posterior.draws)).clamp(min=0).sqrt()
            return {"": float(posterior.log_evidence() - stretch), "mcse": float(error)}
        if not isinstance(posterior, GaussianPosterior):
            raise InputError(
                f"log_evidence: {type(posterior).__name__} is neither weighted nor "
                "Gaussian: leave it out"
            )
        joint = _evaluate_log_joint("log_evidence", posterior.mean().unsqueeze(0), evaluation)
        return {"": float(joint - posterior.log_prob(posterior.mean()) - stretch)}


@dataclass(frozen=True)
class NegLogJoint:
    """-log p(D, theta) per training row, averaged over draws of the posterior.

    Targets in original units.

    What a point estimate minimises. Of a chain it is large before it has arrived, and where its
    steps are too large.

    Parameters
    ----------
    samples
        Draws; of a set of at most so many vectors each counts as often as the others.
    """

    info = MetricInfo(
        "Negative log joint density", "nats per training point", "lower", "posterior", margin=0.02
    )

    samples: Annotated[int, Ge(1)] = 100

    def __call__(self, evaluation: Evaluation) -> float:
        rows = evaluation.trained
        theta = torch.cat(
            list(
                draw_vectors(
                    evaluation.precise, Draws(self.samples, evaluation.key.to(_CPU), _STEP)
                )
            )
        )
        joint = _evaluate_log_joint("neg_log_joint", theta, evaluation)
        return float(_compute_log_scale(rows) - joint.mean()) / len(rows.y)


@dataclass(frozen=True)
class KHat:
    """Shape k of the generalised Pareto law that the largest ratios p(D, theta) / q(theta) of
    draws from q follow.

    Pareto-smoothed importance sampling (Vehtari, Simpson, Gelman, Yao & Gabry 2024, JMLR 25)
    estimates it; it needs no truth. Below 0.5 the ratios have a finite variance and q is near the
    posterior; above 0.7 q is too narrow somewhere, and not even weights mend it (Yao, Vehtari,
    Simpson & Gelman 2018). It rises with the number of parameters, and is 0 where all ratios are
    the same.

    Parameters
    ----------
    samples
        Draws from q.
    """

    info = MetricInfo(
        "Pareto k of the importance ratios", "shape", "lower", "posterior", margin=0.1
    )

    samples: Annotated[int, Ge(100)] = 2000

    def __call__(self, evaluation: Evaluation) -> float:
        theta = torch.cat(
            list(
                draw_samples(
                    evaluation.precise, Draws(self.samples, evaluation.key.to(_CPU), _STEP)
                )
            )
        )
        log_density = evaluation.precise.log_prob(theta)
        log_ratios = _evaluate_log_joint("k_hat", theta, evaluation) - log_density
        stats = import_optional("arviz_stats.base", "k_hat").array_stats
        if log_ratios.max() - log_ratios.min() <= _ROUNDING * log_density.abs().max():
            return 0.0
        # arviz takes log-likelihoods, whose reciprocals are ratios; k of their power p is p times
        # as large
        power = max(1.0, float(log_ratios.max() - log_ratios.quantile(0.8)) / _LARGEST_RANGE)
        return power * float(stats.psislw(-log_ratios.numpy() / power)[1])


def _compute_log_scale(rows: Examples) -> Tensor:
    """Nats by which the targets' density in original units is smaller: each of N axes is y_unit
    times as long.
    """
    return len(rows.y) * rows.scale[0].log()


def _evaluate_log_joint(metric: str, theta: Tensor, evaluation: Evaluation) -> Tensor:
    """Evaluate log p(D, theta) at parameter vectors, (m, D) -> (m,), of targets in the unit of the
    model's outputs.
    """
    model, rows = evaluation.model, evaluation.trained
    hyper = as_tensors(evaluation.as_fitted.hyper)
    if not isinstance(model.prior, PrecisionPrior):
        raise InputError(
            f"{metric}: prior {type(model.prior).__name__} has no precision: leave the metric out"
        )
    unit, _ = rows.scale
    data = full_batch(rows.x.double(), (rows.y - rows.y_origin) / unit)._replace(y_unit=unit)
    return log_joint(theta, model, data, hyper)
