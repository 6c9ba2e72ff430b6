"""Weights that leave a unit are zero together: dropout as a distribution over parameters."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import Family, check_index, check_shape, check_vector


class _Fields(NamedTuple):
    loc: Tensor
    source: Tensor
    rate: Tensor


class Dropout(_Fields, Family):
    """theta_i = loc_i m_u, where u is the unit that weight i leaves and m_u is 0 or 1 / (1 - rate_u).

    Each of the U units is dropped, m_u = 0, with probability rate_u, independently (Gal and Ghahramani 2016, with
    the scale that keeps the mean). Biases are never dropped. There are 2^U values of theta, so `log_prob` and
    `entropy` are those of a discrete distribution; the log-probability of what is no sample is -inf. A sample takes
    one normal a unit, which is dropped where the distribution function of its normal is below rate.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    source
        Unit that each parameter leaves, 0 to U - 1; U for a bias. Integers, shape (D,).
    rate
        Probability that each unit is dropped, in [0, 1), shape (U,).
    """

    @property
    def noise_dim(self) -> int:
        return self.rate.shape[-1]

    def variance(self) -> Tensor:
        return self.loc.square() * self.spread(self._odds(), 0.0)

    def covariance(self) -> Tensor:
        root = self.loc.unsqueeze(-1) * self._leaves() * self._odds().sqrt()
        return root @ root.mT  # weights that leave the same unit are fully correlated

    def log_prob(self, theta: Tensor) -> Tensor:
        leaves = self._leaves()
        kept = (theta != self.loc * self.spread(1 / (1 - self.rate), 1.0)).to(leaves.dtype) @ leaves == 0
        dropped = (theta != 0).to(leaves.dtype) @ leaves == 0
        each = torch.where(kept, 1 - self.rate, 0.0) + torch.where(dropped, self.rate, 0.0)
        biases = torch.where(self.source == self.noise_dim, theta == self.loc, True).all(-1)
        return torch.where(biases, each.log().sum(-1), -torch.inf)

    def entropy(self) -> Tensor:
        kept = 1 - self.rate
        return -(torch.xlogy(self.rate, self.rate) + torch.xlogy(kept, kept)).sum()

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc * self.masks(noise)

    def masks(self, noise: Tensor) -> Tensor:
        """Return the factors m of all parameters, shape (..., U) -> (..., D)."""
        kept = torch.special.ndtr(noise) >= self.rate
        return self.spread(torch.where(kept, 1 / (1 - self.rate), 0.0), 1.0)

    def spread(self, units: Tensor, bias: Tensor | float) -> Tensor:
        """Return each weight the value of its unit and each bias `bias`, shape (..., U) -> (..., D)."""
        values = torch.cat([units, torch.zeros_like(units[..., :1]) + bias], dim=-1)
        return values.gather(-1, self.source.expand(*values.shape[:-1], -1))

    def _odds(self) -> Tensor:
        """Return the variance of m, rate / (1 - rate), shape (U,)."""
        return self.rate / (1 - self.rate)

    def _leaves(self) -> Tensor:
        """Mark with 1 the unit that each weight leaves, shape (D, U)."""
        units = torch.arange(self.noise_dim, device=self.source.device)
        return (self.source.unsqueeze(-1) == units).to(self.loc.dtype)

    def _validate(self) -> None:
        check_vector("loc", self.loc)
        check_vector("rate", self.rate)
        check_shape("source", self.source, self.dim)
        if not bool(((self.rate >= 0) & (self.rate < 1)).all()):
            raise InputError(f"rate must be in [0, 1): it ranges from {self.rate.min():g} to {self.rate.max():g}")
        check_index("source", self.source, self.noise_dim, "the number of units, which stands for a bias")
