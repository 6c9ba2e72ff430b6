"""Predictive distributions in closed form, or by quadrature, where outputs are Gaussian.

Outputs f of a model that is linear in its parameters, or linearised, are N(m, s^2) under a
Gaussian posterior. A target with the noise of a Gaussian likelihood is then N(m, s^2 + 1 / beta),
and a label of a logistic one has the probability E[sigmoid(f)], an integral in one dimension.
Scores of benchmarks rest on samples of the posterior and not on these.
"""

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal

from bdl.metrics.targets import Examples
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.linear import expectation, linearised_moments
from bdl.models.networks import LinearModel
from bdl.models.problem import Buffers, Hyper, Problem
from bdl.posteriors.base import GaussianPosterior, Posterior, is_linearised
from bdl.posteriors.tensors import as_type

_CPU = torch.device("cpu")


def has_closed_form(problem: Problem, posterior: Posterior) -> bool:
    """Return whether the predictive distribution needs no samples of the posterior."""
    is_linear = isinstance(problem.model, LinearModel) or is_linearised(posterior)
    return (
        is_linear
        and isinstance(posterior, GaussianPosterior)
        and problem.d_out == 1
        and isinstance(problem.likelihood, GaussianLikelihood | Bernoulli)
    )


def predict_exactly(
    problem: Problem,
    posterior: GaussianPosterior,
    examples: Examples,
    hyper: Hyper,
    buffers: Buffers,
) -> Distribution:
    """Return the distributions of targets in original units, batch shape (n,), float64, CPU.

    They are normal, or categorical for labels; arguments are those of
    `bdl.metrics.predictions.predict`, for which `has_closed_form`.
    """
    double, x = as_type(posterior, torch.float64, _CPU), examples.x.to(_CPU, torch.float64)
    mean, deviation = linearised_moments(
        problem, double, x, as_type(dict(buffers), torch.float64, _CPU)
    )
    if isinstance(problem.likelihood, Bernoulli):
        probability = expectation(torch.sigmoid, mean, deviation)
        return Categorical(probs=torch.stack([1 - probability, probability], -1))
    unit, origin = examples.scale
    restored: Tensor = problem.likelihood.restore(mean, unit, origin)
    noise = hyper["noise_precision"].double().reciprocal()
    return Normal(restored, ((unit * deviation).square() + noise).sqrt(), validate_args=False)
