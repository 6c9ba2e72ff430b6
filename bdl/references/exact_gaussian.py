"""The Gaussian with the best ELBO as a reference, held to a certificate.

It is not the posterior, but the best that any Gaussian can do: what variational methods with fewer parameters, or with
noise, are measured against (SLANG paper 2018, Tables 1, 4, 6 and 7).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.models.linear import check_glm, elbo, expected_log_likelihood, prior_precision
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import DiagonalGaussian, FullGaussian, kl_divergence
from bdl.references.base import Truth


class OptimumCertificate(NamedTuple):
    """How far q = N(m, L L^T) is from the optimum; expectations by quadrature with half the step of the fit's."""

    neg_elbo: float
    """Nats."""
    gradient: float
    """Length of the derivative of the ELBO by m and L, by automatic differentiation, over the ELBO."""
    mean_identity: float
    """Largest entry of L^T E_q[d log p(D, theta) / d theta], which is 0 at the optimum: nats per standard deviation."""
    covariance_identity: float
    """Largest entry of L^T H L - I with H = -E_q[d^2 log p(D, theta) / d theta^2], which is 0 at the optimum."""
    quadrature: float
    """Change of the ELBO by halving the step, over the ELBO."""

    def admit(self) -> "OptimumCertificate":
        """Return the certificate itself if it keeps every limit; `InputError` names the first that it does not."""
        for name, limit in LIMITS.items():
            if not (value := getattr(self, name)) <= limit:
                raise InputError(
                    f"reference exact-gaussian refused: {name} is {value:.2g}, above {limit:g}; raise prior_precision, "
                    "or take the reference 'nuts'"
                )
        return self

    def lines(self) -> list[str]:
        """Name each number, with its limit if it has one."""
        told = ((name, value, LIMITS.get(name)) for name, value in self._asdict().items())
        return [
            f"{name} {value:.8g} nats" if limit is None else f"{name} {value:.2g} <= {limit:g}"
            for name, value, limit in told
        ]


LIMITS: Mapping[str, float] = {
    "gradient": 1e-8,
    "mean_identity": 1e-8,
    "covariance_identity": 1e-8,
    "quadrature": 1e-10,
}
"""Largest values that a certificate may have."""


def certify_optimum(problem: Problem, q: FullGaussian, x: Tensor, y: Tensor, hyper: Hyper) -> OptimumCertificate:
    """Judge whether q has the best ELBO of all Gaussians; arguments as in `bdl.models.linear.elbo`."""
    at = FullGaussian(q.loc.detach().requires_grad_(), q.scale_tril.detach().requires_grad_())
    precision = prior_precision(problem, hyper)
    divergence = kl_divergence(at, DiagonalGaussian(torch.zeros_like(precision), precision.reciprocal()))
    bound = expected_log_likelihood(problem, at, x, y, hyper, finer=2) - divergence
    by_mean, by_factor = torch.autograd.grad(bound, list(at))
    once, twice = elbo(problem, q, x, y, hyper), elbo(problem, q, x, y, hyper, finer=2)
    curvature = q.scale_tril.mT @ twice.curvature @ q.scale_tril
    size = twice.value.abs()
    return OptimumCertificate(
        neg_elbo=-float(twice.value),
        gradient=float(torch.cat([by_mean, by_factor.tril().flatten()]).norm() / size),
        mean_identity=float((q.scale_tril.mT @ twice.slope).abs().max()),
        covariance_identity=float((curvature - torch.eye(q.dim, dtype=curvature.dtype)).abs().max()),
        quadrature=float((once.value - twice.value).abs() / size),
    )


@dataclass(frozen=True)
class ExactGaussianReference:
    """The Gaussian of any covariance with the best ELBO, by `ExactGaussian`, if its certificate keeps the limits."""

    estimates = ()

    def check(self, problem: Problem) -> None:
        check_glm("reference exact-gaussian", problem)

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find the optimum; the entries of a benchmark, which ask for the same, get it at once.

        `InputError` if the climb has not converged, or the certificate is above a limit.
        """
        q, _ = _optimum(_task(problem, x, y, hyper))
        return Truth(q.mean(), q.covariance(), {})

    def evidence(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> list[str]:
        return _optimum(_task(problem, x, y, hyper))[1].lines()


@dataclass(frozen=True)
class _Task:
    """Arguments of a fit, equal where the problem and their content are."""

    problem: Problem
    digest: str
    x: Tensor = field(compare=False)
    y: Tensor = field(compare=False)
    hyper: Hyper = field(compare=False)


def _task(problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> _Task:
    content = hashlib.sha256(repr((x.shape, sorted((name, float(value)) for name, value in hyper.items()))).encode())
    for part in (x, y):
        content.update(part.contiguous().numpy().tobytes())
    return _Task(problem, content.hexdigest(), x, y, hyper)


@lru_cache(maxsize=64)
def _optimum(task: _Task) -> tuple[FullGaussian, OptimumCertificate]:
    given = task.x, task.y, task.hyper
    q = ExactGaussian("full").fit(task.problem, *given)
    assert isinstance(q, FullGaussian), "the structure says so"
    return q, certify_optimum(task.problem, q, *given).admit()
