"""Exact posteriors of linear regression."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.models.problem import Hyper, Problem
from bdl.references.base import Truth


@dataclass(frozen=True)
class ConjugateReference:
    """The posterior under known precisions, in closed form."""

    @property
    def estimates(self) -> tuple[str, ...]:
        """Names of the hyper-parameters that it estimates: none."""
        return ()

    def check(self, problem: Problem) -> None:
        """Raise `InputError` unless the model is linear and the likelihood Gaussian."""
        Conjugate().check(problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find the posterior of all parameters."""
        exact = Conjugate().fit(problem, x, y, hyper)
        return Truth(exact.mean(), exact.covariance(), {})


@dataclass(frozen=True)
class BayesianRidgeReference:
    """Precisions by maximising the evidence with scikit-learn's `BayesianRidge`, and the posterior under them.

    Its ``lambda_`` is the papers' prior precision alpha, its ``alpha_`` their noise precision beta.

    Parameters
    ----------
    bias
        ``"unpenalised"``: the bias is the intercept of `BayesianRidge`, which has no prior, and the covariance
        is that of the weights (Brownlie 2022, section 5.2.2). ``"penalised"``: the bias has the weights' prior,
        as in the approximations, and the covariance has its row and column; only the precisions are
        `BayesianRidge`'s.
    """

    bias: Literal["unpenalised", "penalised"] = "unpenalised"

    @property
    def estimates(self) -> tuple[str, ...]:
        """Names of the hyper-parameters that it estimates."""
        return ("prior_precision", "noise_precision")

    def check(self, problem: Problem) -> None:
        """Raise `InputError` unless the model is linear with a bias, and the likelihood Gaussian."""
        Conjugate().check(problem)
        if problem.dim == problem.d_in:
            raise InputError("bayesian-ridge fits an intercept: give the linear model its bias")

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find precisions and posterior; `hyper` has no part.

        Raises
        ------
        InputError
            If the targets are constant.
        """
        from sklearn.linear_model import BayesianRidge

        if bool((y == y[0]).all()):
            raise InputError("the targets are constant: there is no noise precision to estimate")
        ridge = BayesianRidge().fit(x.numpy(), y.numpy())
        found = {"prior_precision": float(ridge.lambda_), "noise_precision": float(ridge.alpha_)}
        if self.bias == "penalised":
            given = {name: torch.tensor(value, dtype=torch.float64) for name, value in found.items()}
            exact = Conjugate().fit(problem, x, y, given)
            return Truth(exact.mean(), exact.covariance(), found)
        mean = torch.tensor([*ridge.coef_, ridge.intercept_], dtype=torch.float64)
        return Truth(mean, torch.from_numpy(ridge.sigma_), found)
