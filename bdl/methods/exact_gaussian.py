"""The Gaussian with the best ELBO of a generalised linear model.

It has any covariance, or independent parameters. At the optimum q = N(m, S), with prior precisions
gamma, the log-likelihood l_n of row n as a function of its output f_n = x_n theta, and all
expectations under q,

    sum_n x_n E[l_n'(f_n)] = gamma o m,    S^{-1} = H = diag(gamma) - sum_n x_n x_n^T
    E[l_n''(f_n)],

or S_ii^{-1} = H_ii for independent parameters (Opper and Archambeau 2009, Neural Computation
21(3), section 3). For a log-concave likelihood the ELBO is concave in m and the Cholesky factor of
S (Challis and Barber 2013, JMLR 14, section 3.2), so that there is one optimum. From anywhere go
the share rho of the way to what the conditions say,

    S^{-1} <- (1 - rho) S^{-1} + rho H,    m <- m + rho S^{-1} g,    g = sum_n x_n E[l_n'] - gamma
    o m,

a step of natural gradient ascent (Khan and Lin 2017); independent parameters take 1 / S_ii for
S^{-1}, and for the mean Newton's step H^{-1} g. Full steps go to and fro where a posterior is
wide: rho falls when the ELBO does, or the error grows.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.models.linear import Elbo, check_glm, elbo, prior_precision
from bdl.models.networks import LinearModel
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import DiagonalGaussian, FullGaussian, FullPrecision

_Family = FullPrecision | DiagonalGaussian

_STEPS = 1000
_LEAST_SHARE = 1e-4
"""Least rho: if so little of the way does not help, only rounding is left to gain, or there is no
optimum.
"""
_RECOVERY = 1.2
"""Growth of rho after a step that helped."""
_ROUNDING = 1e-12
"""Relative to the ELBO: what it may fall by, and an error that is as good as none."""
_CONVERGED = 1e-8
"""Relative to the ELBO: largest error."""


@dataclass(frozen=True)
class ExactGaussian(Direct):
    """Settings of the optimisation.

    Parameters
    ----------
    structure
        ``"full"``: any covariance. ``"diagonal"``: independent parameters, as in mean-field
        variational inference.
    """

    structure: Literal["full", "diagonal"] = "full"

    deterministic = True

    def check(self, problem: Problem) -> None:
        check_glm("exact-gaussian", problem)

    def fit(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0
    ) -> FullGaussian | DiagonalGaussian:
        """Return the optimum; `InputError` if it has not converged, or the prior has no precision.

        It has if the error, which is the length of the ELBO's gradient with parameters measured in
        posterior standard deviations, is at most 1e-8 of the ELBO.
        """

        def evaluate(q: _Family) -> _Iterate:
            bound = elbo(problem, q, x, y, hyper)
            return _Iterate(q, bound, _error(q, bound))

        current, share = evaluate(self._start(problem, x, hyper)), 1.0
        for _ in range(_STEPS):
            rounding = _ROUNDING * abs(float(current.bound.value))
            if current.error <= rounding or share < _LEAST_SHARE:
                break
            q = _step_towards(current, share)
            proposal = evaluate(q) if q else None
            # the negation holds for NaN as well
            if proposal is None or not proposal.bound.value >= current.bound.value - rounding:
                share /= 2
                continue
            improves = proposal.error < current.error
            share = min(1.0, _RECOVERY * share) if improves else share / 2
            current = proposal
        if not current.error <= _CONVERGED * abs(float(current.bound.value)):
            raise InputError(
                f"exact-gaussian has not converged (error {current.error:.1g}): "
                "raise prior_precision, or check the data"
            )
        if isinstance(current.q, DiagonalGaussian):
            return current.q
        return FullGaussian.from_covariance(current.q.mean(), current.q.covariance())

    def _start(self, problem: Problem, x: Tensor, hyper: Hyper) -> _Family:
        """Return independent parameters about 0."""
        design = cast(LinearModel, problem.model).design(x)
        precision = prior_precision(problem, hyper) + design.square().sum(0)
        mean = torch.zeros_like(precision)
        if self.structure == "diagonal":
            return DiagonalGaussian(mean, precision.reciprocal())
        return FullPrecision(mean, precision.sqrt().diag())


class _Iterate(NamedTuple):
    """A distribution on the way to the optimum, with its ELBO and its error."""

    q: _Family
    bound: Elbo
    error: float


def _step_towards(current: _Iterate, share: float) -> _Family | None:
    """Go a share of the way; None where the precision would not be positive definite."""
    mean, (_, slope, curvature) = current.q.mean(), current.bound
    if isinstance(current.q, FullPrecision):
        tril = current.q.precision_tril
        factor, failed = torch.linalg.cholesky_ex(torch.lerp(tril @ tril.mT, curvature, share))
        step = torch.cholesky_solve(slope.unsqueeze(1), factor).squeeze(1)
        return None if bool(failed) else FullPrecision(mean + share * step, factor)
    precision = torch.lerp(current.q.var.reciprocal(), curvature.diagonal(), share)
    factor, failed = torch.linalg.cholesky_ex(curvature)
    step = (
        slope / precision
        if bool(failed)
        else torch.cholesky_solve(slope.unsqueeze(1), factor).squeeze(1)
    )
    return (
        None
        if bool((precision <= 0).any())
        else DiagonalGaussian(mean + share * step, precision.reciprocal())
    )


def _error(q: _Family, bound: Elbo) -> float:
    """Compute the length of A^T slope and of A^T H A - I, where A is a root of the covariance.

    If A is diagonal, only the diagonal of the matrix counts.
    """
    roots = q._replace(loc=torch.zeros_like(q.loc)).sample(torch.eye(q.dim, dtype=q.loc.dtype))
    curvature = roots @ bound.curvature @ roots.mT - torch.eye(q.dim, dtype=q.loc.dtype)
    if isinstance(q, DiagonalGaussian):
        curvature = curvature.diagonal()
    return float((roots @ bound.slope).square().sum().add(curvature.square().sum()).sqrt())
