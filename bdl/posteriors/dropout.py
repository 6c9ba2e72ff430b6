"""Weights that leave a unit are zero together: dropout as a distribution over parameters."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import check_shape, check_vector


class Dropout(NamedTuple):
    """theta_i = loc_i m_u, where u is the unit that weight i leaves and m_u is 0 or 1 / (1 - rate_u).

    Each of the U units is dropped, m_u = 0, with probability rate_u, independently (Gal and Ghahramani 2016, with
    the scale that keeps the mean). Biases are never dropped. There are 2^U values of theta, so `log_prob` and
    `entropy` are those of a discrete distribution.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    source
        Unit that each parameter leaves, 0 to U - 1; U for a bias. Integers, shape (D,).
    rate
        Probability that each unit is dropped, in [0, 1), shape (U,).
    """

    loc: Tensor
    source: Tensor
    rate: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: one a unit, U."""
        return self.rate.shape[-1]

    def mean(self) -> Tensor:
        """Mean, shape (D,)."""
        return self.loc

    def variance(self) -> Tensor:
        """Marginal variances loc^2 rate / (1 - rate), shape (D,)."""
        return self.loc.square() * self.spread(self._odds(), 0.0)

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D): weights that leave the same unit are fully correlated."""
        root = self.loc.unsqueeze(-1) * self._leaves() * self._odds().sqrt()
        return root @ root.mT

    def log_prob(self, theta: Tensor) -> Tensor:
        """Logarithm of the probability of exactly `theta`, shape (..., D) -> (...), -inf for what is no sample."""
        leaves = self._leaves()
        kept = (theta != self.loc * self.spread(1 / (1 - self.rate), 1.0)).to(leaves.dtype) @ leaves == 0
        dropped = (theta != 0).to(leaves.dtype) @ leaves == 0
        each = torch.where(kept, 1 - self.rate, 0.0) + torch.where(dropped, self.rate, 0.0)
        biases = torch.where(self.source == self.noise_dim, theta == self.loc, True).all(-1)
        return torch.where(biases, each.log().sum(-1), -torch.inf)

    def entropy(self) -> Tensor:
        """Entropy of the masks in nats, a scalar."""
        kept = 1 - self.rate
        return -(torch.xlogy(self.rate, self.rate) + torch.xlogy(kept, kept)).sum()

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc o masks(noise), shape (..., U) -> (..., D)."""
        return self.loc * self.masks(noise)

    def masks(self, noise: Tensor) -> Tensor:
        """Return the factors m of all parameters, shape (..., U) -> (..., D).

        A unit is dropped where the distribution function of its noise is below rate.
        """
        kept = torch.special.ndtr(noise) >= self.rate
        return self.spread(torch.where(kept, 1 / (1 - self.rate), 0.0), 1.0)

    def spread(self, units: Tensor, bias: Tensor | float) -> Tensor:
        """Return each weight the value of its unit and each bias `bias`, shape (..., U) -> (..., D)."""
        values = torch.cat([units, torch.zeros_like(units[..., :1]) + bias], dim=-1)
        return values.gather(-1, self.source.expand(*values.shape[:-1], -1))

    def check(self) -> "Dropout":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, a source is no unit, or a rate is outside [0, 1).
        """
        check_vector("loc", self.loc)
        check_vector("rate", self.rate)
        check_shape("source", self.source, self.dim)
        if not bool(((self.rate >= 0) & (self.rate < 1)).all()):
            raise InputError(f"rate must be in [0, 1): it ranges from {self.rate.min():g} to {self.rate.max():g}")
        if not bool(((self.source >= 0) & (self.source <= self.noise_dim)).all()):
            raise InputError(f"source must be in 0 to {self.noise_dim}, the number of units, which stands for a bias")
        return self

    def _odds(self) -> Tensor:
        """Variance of m, rate / (1 - rate), shape (U,)."""
        return self.rate / (1 - self.rate)

    def _leaves(self) -> Tensor:
        """Mark with 1 the unit that each weight leaves, shape (D, U)."""
        units = torch.arange(self.noise_dim, device=self.source.device)
        return (self.source.unsqueeze(-1) == units).to(self.loc.dtype)
