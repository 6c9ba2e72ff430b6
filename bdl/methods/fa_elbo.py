"""The factor-analysis posterior of rank K with the best ELBO, found directly: what VIFA descends to.

Under q = N(m, S), S = F F^T + diag(psi), the output of a linear model for row x_n is N(x_n m, x_n S x_n^T). The
negative ELBO

    J = -sum_n E[log p(y_n | f_n)] + (sum_i alpha_i (m_i^2 + S_ii) - log |S|) / 2 + const

needs only one-dimensional expectations (`bdl.models.linear`). Where the likelihood is Gaussian, `fa-optimum` gives
the same from the exact posterior, better conditioned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.fa_optimum import DirectSearch, descend
from bdl.models.linear import check_glm, expected_log_likelihood
from bdl.models.networks import Linear
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import FactorAnalysis

_STARTS, _RESTARTS = 3, 5
_LOG_PSI = (-40.0, 20.0)
"""Bounds of log psi in the unit of the descent, far beyond any optimum: a long step must not overflow."""
_FLAT = 1e-3
"""Largest derivative, nats per unit, at which a descent counts as converged."""
_OPTIONS = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 30, "ftol": 1e-14, "gtol": 1e-6}


@dataclass(frozen=True)
class FactorAnalysisElbo(DirectSearch):
    """The search by the ELBO."""

    def check(self, problem: Problem) -> None:
        check_glm("fa-elbo", problem)
        super().check(problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0) -> FactorAnalysis:
        """Return the optimum.

        Notes
        -----
        J has local optima in F. Of `_STARTS` descents by L-BFGS the best is taken: one starts from the widest
        directions of a rough posterior, precision P = diag(alpha) + X^T X / 4, the others at random. Parameter i is
        measured in units of P_ii^-1/2.

        Raises
        ------
        InputError
            If the best descent has not converged.
        """
        design = cast(Linear, problem.model).design(x)
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

        rough = torch.linalg.eigh(unit.unsqueeze(1) * (design.T @ design / 4 + alpha.diag()) * unit)
        generator = torch.Generator().manual_seed(0)
        widest = rough.eigenvectors[:, :rank] * rough.eigenvalues[:rank].rsqrt()
        others = [0.5 * torch.randn(dim, rank, generator=generator, dtype=x.dtype) for _ in range(_STARTS - 1)]
        zeros = torch.zeros(dim, dtype=x.dtype)
        starts = [torch.cat([zeros, factors.flatten(), zeros]) for factors in (widest, *others)]
        bounds = [(None, None)] * (dim + dim * rank) + [_LOG_PSI] * dim
        return posterior(torch.from_numpy(lowest(cost, starts, bounds)))


def lowest(
    cost: Callable[[Tensor], Tensor], starts: Sequence[Tensor], bounds: Sequence[tuple[float | None, float | None]]
) -> NDArray[np.float64]:
    """Minimise by L-BFGS from each start, (p,) float64, and return the best point."""
    found = [descend(cost, start.numpy(), _OPTIONS, bounds=bounds) for start in starts]
    best = min(found, key=lambda result: float(result.fun))
    for _ in range(_RESTARTS):  # a failed line search is mended by a fresh memory
        if np.abs(best.jac).max() > _FLAT:
            best = descend(cost, best.x, _OPTIONS, bounds=bounds)
    if not (slope := np.abs(best.jac).max()) <= _FLAT:
        raise InputError(f"fa-elbo has not converged (a derivative is {slope:.1g}): scale the inputs, or raise alpha")
    point: NDArray[np.float64] = best.x
    return point
