"""Independent parameters with Student's t distribution."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.posteriors.base import check_positive, check_shape, check_vector


class StudentT(NamedTuple):
    """theta_i = loc_i + scale_i t_i with t_i of Student's t distribution, independently.

    Parameters
    ----------
    loc
        Location, shape (D,): the median, and the mean where there is one.
    scale
        Scales, positive, shape (D,).
    degrees
        Degrees of freedom of all, positive, a scalar.
    """

    loc: Tensor
    scale: Tensor
    degrees: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: two a parameter, 2 D."""
        return 2 * self.dim

    def mean(self) -> Tensor:
        """Location, shape (D,); with one degree of freedom or fewer there is no mean, and it is the median."""
        return self.loc

    def variance(self) -> Tensor:
        """Marginal variances scale^2 nu / (nu - 2), shape (D,); infinite up to two degrees of freedom."""
        nu = self.degrees
        return self.scale.square() * torch.where(nu > 2, nu / (nu - 2), torch.inf)

    def covariance(self) -> Tensor:
        """Dense covariance, diagonal, shape (D, D)."""
        return self.variance().diag_embed()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-density in nats at `theta`, shape (..., D) -> (...)."""
        nu = self.degrees
        tails = (nu + 1) / 2 * torch.log1p(((theta - self.loc) / self.scale).square() / nu)
        return (self._constant() - self.scale.log() - tails).sum(-1)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, a scalar."""
        half, more = self.degrees / 2, (self.degrees + 1) / 2
        return (self.scale.log() - self._constant() + more * (torch.digamma(more) - torch.digamma(half))).sum()

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc + scale o t, shape (..., 2 D) -> (..., D).

        Of two uniform variables, t = sqrt(nu (U^(-2 / nu) - 1)) cos(2 pi V) is Student's (Bailey 1994).
        """
        first, second = noise.chunk(2, dim=-1)
        log_u = torch.special.ndtr(first).log()
        radius = (self.degrees * torch.expm1(-2 / self.degrees * log_u)).sqrt()
        angle: Tensor = 2 * math.pi * torch.special.ndtr(second)
        return self.loc + self.scale * radius * angle.cos()

    def check(self) -> "StudentT":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, or a scale or the degrees of freedom are not positive and finite.
        """
        check_vector("loc", self.loc)
        check_shape("scale", self.scale, self.dim)
        check_shape("degrees", self.degrees)
        check_positive("scale", self.scale)
        check_positive("degrees", self.degrees)
        return self

    def _constant(self) -> Tensor:
        """Logarithm of the normalising constant of t."""
        nu = self.degrees
        return torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * (nu * math.pi).log()
