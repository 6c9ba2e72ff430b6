"""The factor-analysis posterior of rank K with the smallest KL divergence, found directly: what VIFA descends to.

KL(q || p) from q = N(m, F F^T + diag(psi)) to the exact p = N(m, P^-1) is, but for constants,
(tr F^T P F + sum_i P_ii psi_i - log |F F^T + diag(psi)|) / 2. It does not change when every parameter i is
rescaled by P_ii^1/2, nor does the family, so the search runs on the correlation form of P, where it is well
conditioned.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.methods.conjugate import Conjugate
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import FactorAnalysis

_STARTS = 5
"""The cost has local optima: one start from the leading eigenvectors, the others at random."""


@dataclass(frozen=True)
class FactorAnalysisOptimum(Direct):
    """Settings of the direct search.

    Parameters
    ----------
    latent_dim
        Rank K of the factors.
    """

    latent_dim: Annotated[int, Ge(1)] = 1

    deterministic = True

    def check(self, problem: Problem) -> None:
        """Raise `InputError` if the exact posterior is unknown, or there are more factors than parameters."""
        Conjugate().check(problem)
        check_rank(self.latent_dim, problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0) -> FactorAnalysis:
        """Return the optimum for the exact posterior; arguments as in `Conjugate.fit`."""
        exact = Conjugate().fit(problem, x, y, hyper)
        precision = torch.cholesky_inverse(exact.scale_tril)
        return closest(exact.loc, precision, self.latent_dim)


def check_rank(latent_dim: int, problem: Problem) -> None:
    """Raise `InputError` if there are more factors than parameters."""
    if latent_dim > problem.dim:
        raise InputError(f"latent_dim {latent_dim} exceeds the {problem.dim} parameters of the model; lower it")


def closest(mean: Tensor, precision: Tensor, latent_dim: int) -> FactorAnalysis:
    """Minimise KL(q || N(mean, precision^-1)) over factor-analysis q of rank `latent_dim`; float64, (D,) and (D, D)."""
    unit = precision.diagonal().rsqrt()
    scaled = unit.unsqueeze(1) * precision * unit
    shape = (len(mean), latent_dim)

    def posterior(flat: Tensor) -> FactorAnalysis:
        factors, log_diag = flat[: shape[0] * shape[1]].view(shape), flat[shape[0] * shape[1] :]
        return FactorAnalysis(torch.zeros_like(mean), factors, log_diag.exp())

    def cost(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.from_numpy(flat).requires_grad_()
        q = posterior(point)
        value = 0.5 * ((q.factors * (scaled @ q.factors)).sum() + q.diag.sum() - q.log_det())
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-13, "gtol": 1e-8}
    found = [
        minimize(cost, start, jac=True, method="L-BFGS-B", options=options)  # type: ignore[call-overload]
        for start in _starts(scaled, shape)
    ]
    best = posterior(torch.from_numpy(min(found, key=lambda result: float(result.fun)).x))
    return FactorAnalysis(mean, unit.unsqueeze(1) * best.factors, unit.square() * best.diag)


def _starts(scaled: Tensor, shape: tuple[int, int]) -> list[NDArray[np.float64]]:
    values, vectors = torch.linalg.eigh(torch.linalg.inv(scaled))
    leading = (vectors[:, -shape[1] :] * values[-shape[1] :].sqrt()).numpy()
    generator = np.random.default_rng(0)
    factors = [leading, *(generator.normal(size=shape) for _ in range(_STARTS - 1))]
    return [np.concatenate([start.ravel(), np.zeros(shape[0])]) for start in factors]
