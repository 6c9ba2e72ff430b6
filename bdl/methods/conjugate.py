"""The exact posterior of Bayesian linear regression with known precisions."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.linear import PRECISIONS, check_precision
from bdl.models.networks import LinearModel
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import FullGaussian


@dataclass(frozen=True)
class Conjugate(Direct):
    """N(m, S) with S^-1 = diag(alpha) + beta X^T X and m = beta S X^T y, in float64.

    Brownlie (2022), equation 4.40.
    """

    deterministic = True

    def check(self, problem: Problem) -> None:
        if not (
            isinstance(problem.model, LinearModel)
            and isinstance(problem.likelihood, GaussianLikelihood)
        ):
            raise InputError(
                "the posterior has no closed form: give a linear model and a gaussian likelihood"
            )

    def fit(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0
    ) -> FullGaussian:
        """Return the posterior; raises `InputError` if a precision is not positive and finite."""
        for name in PRECISIONS:
            check_precision(name, float(hyper[name]))
        design = cast(LinearModel, problem.model).design(x)
        beta = hyper["noise_precision"]
        precision = beta * design.T @ design + torch.diag(
            problem.prior_precision(hyper).expand(problem.dim)
        )
        factor = torch.linalg.cholesky(precision)
        mean = torch.cholesky_solve(beta * (design.T @ y).unsqueeze(1), factor).squeeze(1)
        return FullGaussian.from_covariance(mean, torch.cholesky_inverse(factor))
