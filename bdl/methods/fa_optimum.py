"""The factor-analysis posterior of rank K with the smallest KL divergence, found directly: what VIFA descends to.

KL(q || p) from q = N(m, F F^T + diag(psi)) to the exact p = N(m, P^-1) is, but for constants,
(tr F^T P F + sum_i P_ii psi_i - log |F F^T + diag(psi)|) / 2. It does not change when every parameter i is
rescaled by P_ii^1/2, nor does the family, so the search runs on the correlation form of P, where it is well
conditioned.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from bdl.methods.base import Direct, check_rank
from bdl.methods.conjugate import Conjugate
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import FactorAnalysis

_STARTS = 5
"""The cost has local optima: one start from the leading eigenvectors, the others at random."""


@dataclass(frozen=True)
class DirectSearch(Direct):
    """Settings of a direct search for a factor-analysis posterior.

    Parameters
    ----------
    latent_dim
        Rank K of the factors.
    """

    latent_dim: Annotated[int, Ge(1)] = 1

    deterministic: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        check_rank("latent_dim", self.latent_dim, problem)


@dataclass(frozen=True)
class FactorAnalysisOptimum(DirectSearch):
    """The search from the exact posterior."""

    def check(self, problem: Problem) -> None:
        Conjugate().check(problem)
        super().check(problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0) -> FactorAnalysis:
        exact = Conjugate().fit(problem, x, y, hyper)
        precision = torch.cholesky_inverse(exact.scale_tril)
        return closest(exact.loc, precision, self.latent_dim)


def descend(cost: Callable[[Tensor], Tensor], start: NDArray[np.float64], options: dict[str, Any], **given: Any) -> Any:
    """Minimise a function of a float64 tensor by L-BFGS; options and result are those of `scipy.optimize.minimize`."""

    def both(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.from_numpy(flat).requires_grad_()
        value = cost(point)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    return minimize(both, start, jac=True, method="L-BFGS-B", options=options, **given)  # type: ignore[call-overload]


def closest(mean: Tensor, precision: Tensor, latent_dim: int) -> FactorAnalysis:
    """Minimise KL(q || N(mean, precision^-1)) over factor-analysis q of rank `latent_dim`; float64, (D,) and (D, D)."""
    unit = precision.diagonal().rsqrt()
    scaled = unit.unsqueeze(1) * precision * unit
    shape = (len(mean), latent_dim)

    def posterior(flat: Tensor) -> FactorAnalysis:
        factors, log_diag = flat[: shape[0] * shape[1]].view(shape), flat[shape[0] * shape[1] :]
        return FactorAnalysis(torch.zeros_like(mean), factors, log_diag.exp())

    def cost(flat: Tensor) -> Tensor:
        q = posterior(flat)
        return 0.5 * ((q.factors * (scaled @ q.factors)).sum() + q.diag.sum() - q.log_det())

    options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-13, "gtol": 1e-8}
    found = [descend(cost, start, options) for start in _starts(scaled, shape)]
    best = posterior(torch.from_numpy(min(found, key=lambda result: float(result.fun)).x))
    return FactorAnalysis(mean, unit.unsqueeze(1) * best.factors, unit.square() * best.diag)


def _starts(scaled: Tensor, shape: tuple[int, int]) -> list[NDArray[np.float64]]:
    values, vectors = torch.linalg.eigh(torch.linalg.inv(scaled))
    leading = (vectors[:, -shape[1] :] * values[-shape[1] :].sqrt()).numpy()
    generator = np.random.default_rng(0)
    factors = [leading, *(generator.normal(size=shape) for _ in range(_STARTS - 1))]
    return [np.concatenate([start.ravel(), np.zeros(shape[0])]) for start in factors]
