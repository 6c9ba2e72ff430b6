"""Independent parameters, Gaussian or Student's t, and Gaussian ones with shared scales."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.posteriors.base import (
    GaussianPosterior,
    NoDensity,
    Posterior,
    check_index,
    check_positive,
    check_shape,
    check_vector,
)


class DiagonalGaussian(
    NamedTuple("Fields", [("loc", Tensor), ("var", Tensor)]), GaussianPosterior
):
    """N(loc, diag(var)): independent parameters, with positive variances, (D,)."""

    def variance(self) -> Tensor:
        return self.var

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc + self.var.sqrt() * noise

    def log_det(self) -> Tensor:
        return self.var.log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        return delta / self.var.sqrt()

    def precision_diagonal(self) -> Tensor:
        return self.var.reciprocal()

    def trace_solve(self, p: GaussianPosterior) -> Tensor:
        return self.var @ p.precision_diagonal()

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        check_shape("var", self.var, self.dim)

    def check_values(self) -> None:
        check_positive("var", self.var)


class StudentT(
    NamedTuple("Fields", [("loc", Tensor), ("scale", Tensor), ("degrees", Tensor)]), Posterior
):
    """theta_i = loc_i + scale_i t_i with t_i of Student's t distribution, independently.

    Location and positive scales are (D,), the degrees of freedom nu a scalar. Variances scale^2 nu
    / (nu - 2) are infinite up to nu = 2. A sample takes two normals a parameter: of two uniform
    variables, t = sqrt(nu (U^(-2 / nu) - 1)) cos(2 pi V) is Student's (Bailey 1994).
    """

    @property
    def noise_dim(self) -> int:
        return 2 * self.dim

    def variance(self) -> Tensor:
        nu = self.degrees
        return self.scale.square() * torch.where(nu > 2, nu / (nu - 2), torch.inf)

    def log_prob(self, theta: Tensor) -> Tensor:
        return student_t_log_prob(theta - self.loc, self.scale, self.degrees).sum(-1)

    def entropy(self) -> Tensor:
        half, exponent = self.degrees / 2, (self.degrees + 1) / 2
        return (
            self.scale.log()
            - _log_constant(self.degrees)
            + exponent * (torch.digamma(exponent) - torch.digamma(half))
        ).sum()

    def sample(self, noise: Tensor) -> Tensor:
        first, second = noise.chunk(2, dim=-1)
        # `torch.special.ndtr` is 0 below -5.5 in single precision, which would be an infinite
        # draw.
        log_u = (0.5 * torch.erfc(-math.sqrt(0.5) * first)).log()
        # expm1, since the exponent is small for many degrees of freedom, where t is nearly normal
        radius = (self.degrees * torch.expm1(-2 / self.degrees * log_u)).sqrt()
        angle: Tensor = 2 * math.pi * torch.special.ndtr(second)
        return self.loc + self.scale * radius * angle.cos()

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        check_shape("scale", self.scale, self.dim)
        check_shape("degrees", self.degrees)

    def check_values(self) -> None:
        check_positive("scale", self.scale)
        check_positive("degrees", self.degrees)


def student_t_log_prob(theta: Tensor, scale: Tensor, degrees: float | Tensor) -> Tensor:
    """Compute the log-density of Student's t, centred at 0, entry by entry, nats."""
    nu = torch.as_tensor(degrees, dtype=theta.dtype, device=theta.device)
    return (
        _log_constant(nu) - scale.log() - (nu + 1) / 2 * torch.log1p((theta / scale).square() / nu)
    )


def _log_constant(nu: Tensor) -> Tensor:
    """Return the logarithm of the normalising constant of t."""
    return torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * (nu * math.pi).log()


class Scaled(
    NamedTuple(
        "Fields",
        [
            ("loc", Tensor),
            ("var", Tensor),
            ("log_loc", Tensor),
            ("log_var", Tensor),
            ("source", Tensor),
        ],
    ),
    NoDensity,
):
    """theta_i = w_i prod_j s_source[j, i], Gaussian weights times log-normal scales.

    The weights w ~ N(loc, diag(var)) are (D,), and the scales, log s ~ N(log_loc, diag(log_var)),
    (K,). `source` has the scales of each parameter, 0 to K - 1, no
    scale twice, and K for none: integers, (J, D). With m and v the mean and variance of the
    logarithm of a parameter's scale, its mean is loc exp(m + v / 2) and its variance (loc^2 + var)
    exp(2 m + 2 v) - mean^2; parameters that share a scale are correlated. The density is an
    integral over the scales without a closed form. A sample takes one normal a parameter, and then
    one a scale.
    """

    _reason = "posterior 'scaled' has no closed density: leave out metrics that need one"

    @property
    def noise_dim(self) -> int:
        return self.dim + self.log_loc.shape[-1]

    def mean(self) -> Tensor:
        return self.loc * (self._spread(self.log_loc) + 0.5 * self._spread(self.log_var)).exp()

    def variance(self) -> Tensor:
        m, v = self._spread(self.log_loc), self._spread(self.log_var)
        # the formula of the docstring without its difference, which cancels for small v
        return (2 * m + v).exp() * (self.var * v.exp() + self.loc.square() * torch.expm1(v))

    def covariance(self) -> Tensor:
        leaves = (
            torch.nn.functional.one_hot(self.source, self.log_loc.shape[-1] + 1)
            .sum(0)[:, :-1]
            .to(self.loc)
        )
        shared = torch.expm1((leaves * self.log_var) @ leaves.T)
        mean = self.mean()
        m, v = self._spread(self.log_loc), self._spread(self.log_var)
        return mean.unsqueeze(-1) * mean * shared + (self.var * (2 * m + 2 * v).exp()).diag_embed()

    def sample(self, noise: Tensor) -> Tensor:
        z, e = noise[..., : self.dim], noise[..., self.dim :]
        return (self.loc + self.var.sqrt() * z) * self._spread(
            self.log_loc + self.log_var.sqrt() * e
        ).exp()

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        check_vector("log_loc", self.log_loc)
        check_shape("var", self.var, self.dim)
        check_shape("log_var", self.log_var, len(self.log_loc))
        check_shape("source", self.source, len(self.source), self.dim)

    def check_values(self) -> None:
        check_positive("var", self.var)
        check_positive("log_var", self.log_var)
        check_index(
            "source", self.source, len(self.log_loc), "the number of scales, which stands for none"
        )

    def _spread(self, scales: Tensor) -> Tensor:
        """Add up the values of each parameter's scales, shape (..., K) -> (..., D)."""
        padded = torch.cat([scales, torch.zeros_like(scales[..., :1])], dim=-1)
        flat = padded.gather(-1, self.source.flatten().expand(*padded.shape[:-1], -1))
        return flat.reshape(*flat.shape[:-1], *self.source.shape).sum(-2)
