"""Laplace's approximation: a Gaussian at the mode of the posterior, with the curvature there."""

from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.models.elbo import prior_precision
from bdl.models.joint import log_joint, whole
from bdl.models.mode import Slopes, laplace
from bdl.models.networks import Linear
from bdl.models.priors import PrecisionPrior
from bdl.models.problem import Hyper, Problem
from bdl.models.quadrature import derivatives, is_glm, problem_log_prob
from bdl.posteriors import FullGaussian

_MOST = 2000
"""Parameters whose Hessian is formed and decomposed in seconds."""


@dataclass(frozen=True)
class Laplace(Direct):
    """N(mode, H^{-1}) with H the Hessian of -log p(D, theta), prior included, at the mode (Bishop 2006, section 4.4).

    The mode is found by Newton's method. A linear model with one output starts at 0, and has H = diag(gamma) - X^T
    diag(l'') X; others start at their own start, so that the seed can decide which of several modes it is.
    """

    def check(self, problem: Problem) -> None:
        if problem.dim > _MOST:
            raise InputError(f"laplace forms the Hessian of {problem.dim} parameters: use a model of {_MOST} at most")
        if not isinstance(problem.prior, PrecisionPrior):
            raise InputError("laplace needs a prior on the parameters themselves: use the prior 'gaussian'")

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0) -> FullGaussian:
        """Return the approximation; `seed` is that of the start.

        Raises `InputError` if a value is not finite, or there is no maximum with a definite Hessian.
        """
        density = partial(log_joint, problem=problem, batch=whole(x, y), hyper=hyper)
        if is_glm(problem):
            mode, scale = laplace(density, x.new_zeros(problem.dim), partial(_slopes, problem, x, y, hyper))
        else:
            noise = torch.randn(problem.dim, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
            mode, scale = laplace(density, problem.initial(noise))
        return FullGaussian.from_covariance(mode, scale @ scale.T)


def _slopes(problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, theta: Tensor) -> Slopes:
    """Differentiate the log-likelihood of each row by its output, and so log p(D, theta) by the parameters."""
    design, gamma = cast(Linear, problem.model).design(x), prior_precision(problem, hyper)
    value, first, second = derivatives(lambda f: problem_log_prob(problem, f, y, hyper), design @ theta)
    return Slopes(
        value.sum() + problem.log_prior(theta, hyper),
        design.T @ first - gamma * theta,
        gamma.diag() - (design.T * second) @ design,
    )
