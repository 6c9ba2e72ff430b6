"""The evidence lower bound of a generalised linear model and its derivatives, by quadrature."""

from typing import NamedTuple, cast

import torch
from torch import Tensor

from bdl.models.networks import Linear
from bdl.models.problem import Hyper, Problem
from bdl.models.quadrature import expected_derivatives, outputs, problem_log_prob
from bdl.posteriors import DiagonalGaussian, Gaussian, kl_divergence


class Elbo(NamedTuple):
    """ELBO(q) = E_q[log p(D | theta)] - KL(q || prior), and expectations under q that its derivatives are made of."""

    value: Tensor
    """Nats, a scalar."""
    slope: Tensor
    """E_q[d log p(D, theta) / d theta], (D,): the derivative by the mean of q."""
    curvature: Tensor
    """H = -E_q[d^2 log p(D, theta) / d theta^2], (D, D): that by the covariance S is (S^{-1} - H) / 2."""


def elbo(problem: Problem, q: Gaussian, x: Tensor, y: Tensor, hyper: Hyper, finer: int = 1) -> Elbo:
    """Evaluate the bound; not differentiable.

    Parameters
    ----------
    problem
        A generalised linear model (`bdl.models.quadrature.is_glm`) with a Gaussian prior.
    q
        Distribution of the parameters, float64.
    x, y
        Training rows as the model sees them, float64, (n, d_in) and (n,).
    hyper
        Hyper-parameters in the unit of `y`.
    finer
        Divides the step of the quadrature.

    Raises
    ------
    InputError
        If the prior has no precision.
    """
    design, precision = cast(Linear, problem.model).design(x), prior_precision(problem, hyper)
    centre, spread = outputs(problem, q, x)
    found = expected_derivatives(lambda f: problem_log_prob(problem, f, y, hyper), centre, spread, finer)
    prior = DiagonalGaussian(torch.zeros_like(precision), precision.reciprocal())
    return Elbo(
        found.value.sum() - kl_divergence(q, prior),
        design.T @ found.first - precision * q.mean(),
        precision.diag() - (design.T * found.second) @ design,
    )


def prior_precision(problem: Problem, hyper: Hyper) -> Tensor:
    """Prior precision of each parameter, (D,)."""
    return problem.prior_precision(hyper).expand(problem.dim)
