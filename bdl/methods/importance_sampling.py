"""Self-normalised importance sampling, and the Gaussian with the moments of its draws.

Draws theta_s from a proposal q have weights r_s = p(D | theta_s) p(theta_s) / q(theta_s). Their
mean is an unbiased estimate of the evidence p(D), and sum_s r_s f(theta_s) / sum_s r_s one of
E[f(theta) | D] whose bias falls as 1 / S. With the prior as q, r_s is the likelihood: few draws
count as soon as the data say much. Student's t in the shape of a Gaussian approximation has
heavier tails than any Gaussian prior, so that its weights are bounded; the more degrees of
freedom, the closer it is to that Gaussian, which pays in many dimensions.
"""

from dataclasses import dataclass
from math import lgamma, log, pi
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.methods.laplace import Laplace
from bdl.models.problem import Hyper, Problem, full_batch, log_joint, log_likelihood
from bdl.posteriors import FullGaussian, Weighted
from bdl.posteriors.base import GaussianPosterior

Approximation = Literal["laplace", "variational"]


@dataclass(frozen=True)
class Sampling(Direct):
    """Settings of weighted draws.

    Parameters
    ----------
    samples
        Number of draws S; the posterior keeps all of them.
    proposal
        ``"laplace"`` and ``"variational"``: Student's t with the location and the shape of the
        Laplace approximation, or of the Gaussian with the best ELBO, for linear models with one
        output; the latter is nearer where a posterior is skewed, so that its mean is far from the
        mode. ``"prior"`` suits any model and prior.
    degrees
        Degrees of freedom of Student's t.
    """

    samples: Annotated[int, Ge(2)] = 10_000
    proposal: Literal["laplace", "variational", "prior"] = "laplace"
    degrees: Annotated[int, Ge(1)] = 10

    @property
    def draws(self) -> int:
        return self.samples

    def check(self, problem: Problem) -> None:
        if self.proposal != "prior":
            _METHODS[self.proposal].check(problem)

    def weighted(
        self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int
    ) -> Weighted:
        """Draw from the proposal, and weigh.

        Raises `InputError` if a weight is not finite, or the approximation is refused.
        """
        generator, data = torch.Generator().manual_seed(seed), full_batch(x, y)
        if self.proposal == "prior":
            noise = torch.randn(
                self.samples, problem.latent_dim, generator=generator, dtype=x.dtype
            )
            latent = problem.prior.sample(noise, hyper, problem.layout)
            theta = torch.func.vmap(lambda phi: problem.push(phi, hyper))(latent)
            log_weights = log_likelihood(theta, problem, data, hyper)
        else:
            shape = _METHODS[self.proposal].fit(problem, x, y, hyper, seed)
            theta, log_density = draw_student_t(shape, self.degrees, self.samples, generator)
            log_weights = log_joint(theta, problem, data, hyper) - log_density
        if not bool(log_weights.isfinite().all()):
            raise InputError(
                "importance-sampling: a weight is not finite: "
                "check the data and the hyper-parameters"
            )
        return Weighted(theta, log_weights)


@dataclass(frozen=True)
class ImportanceSampling(Sampling):
    """All draws with their weights."""

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int) -> Weighted:
        return self.weighted(problem, x, y, hyper, seed)


_METHODS: dict[Approximation, Laplace | ExactGaussian] = {
    "laplace": Laplace(),
    "variational": ExactGaussian(),
}


def draw_student_t(
    shape: GaussianPosterior, degrees: int, samples: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw from Student's t with the location and the shape matrix of a Gaussian.

    The noise of the Gaussian is of length D. With z ~ N(0, I), c ~ chi^2 of nu degrees of freedom
    and A A^T the covariance of the Gaussian, theta = m + (nu / c)^1/2 A z; so that (theta - m)^T
    (A A^T)^-1 (theta - m) = nu |z|^2 / c, and the density needs no solve. Returns draws, (S, D),
    and their log-densities, nats, (S,).
    """
    mean, dim = shape.mean(), shape.dim
    z = torch.randn(samples, dim, generator=generator, dtype=mean.dtype)
    c = torch.randn(samples, degrees, generator=generator, dtype=mean.dtype).square().sum(1)
    theta = mean + (degrees / c).sqrt().unsqueeze(1) * (shape.sample(z) - mean)
    constant = lgamma((degrees + dim) / 2) - lgamma(degrees / 2) - dim / 2 * log(degrees * pi)
    return theta, constant - shape.log_det() / 2 - (degrees + dim) / 2 * torch.log1p(
        z.square().sum(1) / c
    )


_LEAST = 2
"""Effective draws a parameter, below which a covariance says little beyond the proposal's."""


@dataclass(frozen=True)
class MomentMatching(Sampling):
    """The Gaussian with the mean and the covariance of the posterior.

    Of all Gaussians q it has the least KL(p || q) from the posterior p, since the cross-entropy
    with a Gaussian depends on the first two moments of p alone; variational inference has the
    least KL(q || p) instead, which is narrower. The moments are those of `ImportanceSampling`
    under a proposal by Student's t, with a Monte-Carlo error: if n draws count, the mean is off by
    about (D / n)^1/2 posterior standard deviations, all D parameters together, and the covariance
    by as much of its norm where its eigenvalues are alike.
    """

    proposal: Approximation = "laplace"

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int) -> FullGaussian:
        """Weigh draws, and take their moments.

        Also raises if the effective sample size is below two a parameter.
        """
        weighted = self.weighted(problem, x, y, hyper, seed)
        size = float(weighted.effective_size())
        if size < _LEAST * problem.dim:
            raise InputError(
                f"moment-matching: {self.samples} draws have an effective size of {size:.0f}, "
                f"which is below {_LEAST} for each of {problem.dim} parameters: "
                "raise samples or change degrees"
            )
        return FullGaussian.from_covariance(weighted.mean(), weighted.covariance())
