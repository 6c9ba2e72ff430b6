"""The best factor-analysis posterior of rank K, by direct search: the optimum of VIFA.

`FactorAnalysisOptimum` starts from the exact posterior p = N(m, P^-1) of a linear regression. KL(q
|| p) from q = N(m, F F^T + diag(psi)) is, but for constants, (tr F^T P F + sum_i P_ii psi_i - log
|F F^T + diag(psi)|) / 2. It does not change when every parameter i is rescaled by P_ii^1/2, nor
does the family, so the search runs on the correlation form of P, where it is well conditioned.

`FactorAnalysisElbo` is for any generalised linear model. Under q = N(m, S), S = F F^T + diag(psi),
the output for row x_n is N(x_n m, x_n S x_n^T). The negative ELBO

    J = -sum_n E[log p(y_n | f_n)] + (sum_i alpha_i (m_i^2 + S_ii) - log |S|) / 2 + const

needs only one-dimensional expectations (`bdl.models.linear`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

import numpy as np
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct, check_rank
from bdl.methods.conjugate import Conjugate
from bdl.models.linear import check_glm, expected_log_likelihood
from bdl.models.mode import minimise
from bdl.models.networks import LinearModel
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import FactorAnalysis


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

    def fit(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0
    ) -> FactorAnalysis:
        exact = Conjugate().fit(problem, x, y, hyper)
        precision = torch.cholesky_inverse(exact.scale_tril)
        return closest_factor_analysis(exact.loc, precision, self.latent_dim)


_STARTS = 5
"""The cost has local optima: one start from the leading eigenvectors, the others at random."""


def closest_factor_analysis(mean: Tensor, precision: Tensor, latent_dim: int) -> FactorAnalysis:
    """Minimise KL(q || N(mean, precision^-1)) over factor-analysis q of rank `latent_dim`.

    Float64, (D,) and (D, D).
    """
    unit = precision.diagonal().rsqrt()
    scaled = unit.unsqueeze(1) * precision * unit
    shape = (len(mean), latent_dim)

    def posterior(flat: Tensor) -> FactorAnalysis:
        factors, log_diag = flat[: shape[0] * shape[1]].view(shape), flat[shape[0] * shape[1] :]
        return FactorAnalysis(torch.zeros_like(mean), factors, log_diag.exp())

    def cost(flat: Tensor) -> Tensor:
        q = posterior(flat)
        return 0.5 * ((q.factors * (scaled @ q.factors)).sum() + q.diag.sum() - q.log_det())

    values, vectors = torch.linalg.eigh(torch.linalg.inv(scaled))
    leading = (vectors[:, -latent_dim:] * values[-latent_dim:].sqrt()).numpy()
    generator = np.random.default_rng(0)
    starts = [leading, *(generator.normal(size=shape) for _ in range(_STARTS - 1))]
    options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-13, "gtol": 1e-8}
    optima = [
        minimise(cost, np.concatenate([factors.ravel(), np.zeros(len(mean))]), options)
        for factors in starts
    ]
    best = posterior(torch.from_numpy(min(optima, key=lambda optimum: float(optimum.fun)).x))
    return FactorAnalysis(mean, unit.unsqueeze(1) * best.factors, unit.square() * best.diag)


_ELBO_STARTS, _RESTARTS = 3, 5
_LOG_PSI = (-40.0, 20.0)
"""Bounds of log psi in the unit of the descent, far beyond any optimum: a long step must not
overflow.
"""
_FLAT = 1e-3
"""Largest derivative, nats per unit, at which a descent counts as converged."""
_OPTIONS = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "ftol": 1e-14, "gtol": 1e-6}


@dataclass(frozen=True)
class FactorAnalysisElbo(DirectSearch):
    """The search by the ELBO."""

    def check(self, problem: Problem) -> None:
        check_glm("fa-elbo", problem)
        super().check(problem)

    def fit(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0
    ) -> FactorAnalysis:
        """Return the optimum; raises `InputError` if the best descent has not converged.

        J has local optima in F. Of three descents by L-BFGS the best is taken: one starts from the
        widest directions of a rough posterior, precision P = diag(alpha) + X^T X / 4, the others
        at random. Parameter i is measured in units of P_ii^-1/2.
        """
        design = cast(LinearModel, problem.model).design(x)
        alpha = problem.prior_precision(hyper).expand(problem.dim)
        unit = (alpha + design.square().sum(0) / 4).rsqrt()
        dim, rank = problem.dim, self.latent_dim

        def posterior(flat: Tensor) -> FactorAnalysis:
            mean, factors, log_psi = torch.split(flat, [dim, dim * rank, dim])
            scaled = unit.unsqueeze(1) * factors.view(dim, rank)
            return FactorAnalysis(unit * mean, scaled, unit.square() * log_psi.exp())

        def cost(flat: Tensor) -> Tensor:
            q = posterior(flat)
            likelihood = expected_log_likelihood(problem, q, x, y, hyper)
            prior = 0.5 * (alpha * (q.mean().square() + q.variance())).sum()
            return prior - likelihood - 0.5 * q.log_det()

        rough = torch.linalg.eigh(
            unit.unsqueeze(1) * (design.T @ design / 4 + alpha.diag()) * unit
        )
        generator = torch.Generator().manual_seed(0)
        widest = rough.eigenvectors[:, :rank] * rough.eigenvalues[:rank].rsqrt()
        random_starts = [
            0.5 * torch.randn(dim, rank, generator=generator, dtype=x.dtype)
            for _ in range(_ELBO_STARTS - 1)
        ]
        zeros = torch.zeros(dim, dtype=x.dtype)
        starts = [
            torch.cat([zeros, factors.flatten(), zeros]) for factors in (widest, *random_starts)
        ]
        bounds = [(None, None)] * (dim + dim * rank) + [_LOG_PSI] * dim
        return posterior(torch.from_numpy(minimise_from_starts(cost, starts, bounds)))


def minimise_from_starts(
    cost: Callable[[Tensor], Tensor],
    starts: Sequence[Tensor],
    bounds: Sequence[tuple[float | None, float | None]],
) -> NDArray[np.float64]:
    """Minimise by L-BFGS from each start, (p,) float64, and return the best point."""
    optima = [minimise(cost, start.numpy(), _OPTIONS, bounds=bounds) for start in starts]
    best = min(optima, key=lambda optimum: float(optimum.fun))
    for _ in range(_RESTARTS):  # a fresh memory lets a failed line search go on
        if np.abs(best.jac).max() > _FLAT:
            best = minimise(cost, best.x, _OPTIONS, bounds=bounds)
    slope = np.abs(best.jac).max()
    if not slope <= _FLAT:
        raise InputError(
            f"fa-elbo has not converged (a derivative is {slope:.1g}): "
            "scale the inputs, or raise alpha"
        )
    return best.x
