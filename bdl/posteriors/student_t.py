"""Independent parameters with Student's t distribution."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.posteriors.base import Family, check_positive, check_shape, check_vector


class _Fields(NamedTuple):
    loc: Tensor
    scale: Tensor
    degrees: Tensor


class StudentT(_Fields, Family):
    """theta_i = loc_i + scale_i t_i with t_i of Student's t distribution, independently.

    Variances scale^2 nu / (nu - 2) are infinite up to two degrees of freedom nu. A sample takes two normals a
    parameter: of two uniform variables, t = sqrt(nu (U^(-2 / nu) - 1)) cos(2 pi V) is Student's (Bailey 1994).

    Parameters
    ----------
    loc
        Location, shape (D,): the median, and the mean where there is one.
    scale
        Scales, positive, shape (D,).
    degrees
        Degrees of freedom of all, positive, a scalar.
    """

    @property
    def noise_dim(self) -> int:
        return 2 * self.dim

    def variance(self) -> Tensor:
        nu = self.degrees
        return self.scale.square() * torch.where(nu > 2, nu / (nu - 2), torch.inf)

    def log_prob(self, theta: Tensor) -> Tensor:
        nu = self.degrees
        tails = (nu + 1) / 2 * torch.log1p(((theta - self.loc) / self.scale).square() / nu)
        return (self._constant() - self.scale.log() - tails).sum(-1)

    def entropy(self) -> Tensor:
        half, more = self.degrees / 2, (self.degrees + 1) / 2
        return (self.scale.log() - self._constant() + more * (torch.digamma(more) - torch.digamma(half))).sum()

    def sample(self, noise: Tensor) -> Tensor:
        first, second = noise.chunk(2, dim=-1)
        # `torch.special.ndtr` is 0 below -5.5 in single precision, which would be an infinite draw.
        log_u = (0.5 * torch.erfc(-math.sqrt(0.5) * first)).log()
        radius = (self.degrees * torch.expm1(-2 / self.degrees * log_u)).sqrt()
        angle: Tensor = 2 * math.pi * torch.special.ndtr(second)
        return self.loc + self.scale * radius * angle.cos()

    def _validate(self) -> None:
        check_vector("loc", self.loc)
        check_shape("scale", self.scale, self.dim)
        check_shape("degrees", self.degrees)
        check_positive("scale", self.scale)
        check_positive("degrees", self.degrees)

    def _constant(self) -> Tensor:
        """Return the logarithm of the normalising constant of t."""
        nu = self.degrees
        return torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * (nu * math.pi).log()
