"""Finite sets of parameter vectors: a point, draws, weighted draws, ensembles, dropout."""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import (
    NoDensity,
    Posterior,
    check_finite,
    check_index,
    check_shape,
    check_vector,
)


class Point(NamedTuple("Fields", [("loc", Tensor)]), NoDensity):
    """All probability at one vector, (D,); it has no density over the parameters.

    A sample takes no normals.
    """

    _reason = (
        "a point estimate has no density: leave out metrics that need one, or use another method"
    )

    @property
    def noise_dim(self) -> int:
        return 0

    @property
    def atoms(self) -> Tensor:
        """All vectors that a sample can be, equally probable, shape (1, D)."""
        return self.loc.unsqueeze(0)

    def variance(self) -> Tensor:
        return torch.zeros_like(self.loc)

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc.expand(*noise.shape[:-1], -1)

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)

    def check_values(self) -> None:
        check_finite("loc", self.loc)


class _Draws(NoDensity):
    """A family with a field `draws`, shape (S, D).

    A sample takes one normal, which picks a draw.
    """

    draws: Tensor
    multimodal = True  # the vectors need not be near each other
    _reason = (
        "draws have no density: leave out metrics that need one, or fit a Gaussian to the draws"
    )

    @property
    def dim(self) -> int:
        return self.draws.shape[-1]

    @property
    def noise_dim(self) -> int:
        return 1

    def check_shapes(self) -> None:
        if self.draws.ndim != 2 or not self.draws.numel():
            shape = tuple(self.draws.shape)
            raise InputError(
                f"draws has shape {shape}: give it shape (S, D) with S and D at least 1"
            )

    def check_values(self) -> None:
        check_finite("draws", self.draws)


class Empirical(NamedTuple("Fields", [("draws", Tensor)]), _Draws):
    """Each of S parameter vectors, (S, D), with probability 1 / S.

    It has no density over the parameters.

    Moments are divided by S, not S - 1. A sample is draw floor(S Phi(noise)).
    """

    @property
    def atoms(self) -> Tensor:
        """All vectors that a sample can be, equally probable, shape (S, D)."""
        return self.draws

    def mean(self) -> Tensor:
        return self.draws.mean(-2)

    def variance(self) -> Tensor:
        return self.draws.var(-2, correction=0)

    def covariance(self) -> Tensor:
        centred = self.draws - self.mean()
        return centred.mT @ centred / len(self.draws)

    def sample(self, noise: Tensor) -> Tensor:
        count = len(self.draws)
        # Phi of a large normal rounds to 1, which would be a draw beyond the last
        index = (torch.special.ndtr(noise[..., 0]) * count).long().clamp(max=count - 1)
        return self.draws[index]


class Weighted(NamedTuple("Fields", [("draws", Tensor), ("log_weights", Tensor)]), _Draws):
    """Draw s of S with probability r_s / sum r, as importance sampling leaves them.

    No density over the parameters.

    `draws` are (S, D), and `log_weights` log r_s, nats, not normalised, (S,): where r_s = p(D,
    theta_s) / q(theta_s) for draws from q, their mean is the evidence. A sample is the draw at
    which the sum of the weights exceeds Phi(noise).
    """

    def weights(self) -> Tensor:
        """Return the probability of each draw, shape (S,)."""
        return self.log_weights.softmax(-1)

    def mean(self) -> Tensor:
        return self.weights() @ self.draws

    def variance(self) -> Tensor:
        return self.weights() @ (self.draws - self.mean()).square()

    def covariance(self) -> Tensor:
        centred = self.draws - self.mean()
        return centred.mT @ (self.weights().unsqueeze(-1) * centred)

    def effective_size(self) -> Tensor:
        """Return the effective sample size (sum r)^2 / sum r^2, from 1 to S (Kong 1992)."""
        # in logarithms: weights of thousands of nats overflow, and their ratio does not
        return (2 * self.log_weights.logsumexp(-1) - (2 * self.log_weights).logsumexp(-1)).exp()

    def log_evidence(self) -> Tensor:
        """Return the logarithm of the mean weight, nats, a scalar."""
        return self.log_weights.logsumexp(-1) - log(len(self.log_weights))

    def sample(self, noise: Tensor) -> Tensor:
        # float64: a sum of many thousand weights in float32 loses the small ones
        total = self.log_weights.double().softmax(-1).cumsum(-1)
        below = torch.special.ndtr(noise[..., 0].double()).clamp(
            max=1 - torch.finfo(total.dtype).eps
        )
        # times the last sum, which rounding takes off 1: a draw beyond it, maybe without weight,
        # is never picked
        return self.draws[torch.searchsorted(total, below * total[..., -1], right=True)]

    def check_shapes(self) -> None:
        super().check_shapes()
        check_shape("log_weights", self.log_weights, len(self.draws))

    def check_values(self) -> None:
        super().check_values()
        check_finite("log_weights", self.log_weights, "leave out draws without a density")


class Dropout(
    NamedTuple("Fields", [("loc", Tensor), ("source", Tensor), ("rate", Tensor)]), Posterior
):
    """theta_i = loc_i m_u, with a random factor m_u for the unit u that weight i leaves.

    It is 0 or 1 / (1 - rate_u). Each of the U units is dropped, m_u = 0, with probability rate_u,
    independently (Gal and Ghahramani 2016, with the scale that keeps the mean). Biases are never
    dropped. There are 2^U values of theta, so `log_prob` and `entropy` are those of a discrete
    distribution; the log-probability of what is no sample is -inf. A sample takes one normal a
    unit, which is dropped where the distribution function of its normal is below rate. `source`
    has the unit that each parameter leaves, 0 to U - 1, and U for a bias: integers, (D,); `rate`
    is in [0, 1), (U,).
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
        # by the same operations as a sample, whose bits it is compared with
        scaled = self.loc * self.spread(1 / (1 - self.rate), 1.0)
        # a unit may have been kept, or dropped, if no weight that leaves it contradicts that
        can_be_kept = (theta != scaled).to(leaves.dtype) @ leaves == 0
        can_be_dropped = (theta != 0).to(leaves.dtype) @ leaves == 0
        probability = torch.where(can_be_kept, 1 - self.rate, 0.0) + torch.where(
            can_be_dropped, self.rate, 0.0
        )
        biases_agree = torch.where(self.source == self.noise_dim, theta == self.loc, True).all(-1)
        return torch.where(biases_agree, probability.log().sum(-1), -torch.inf)

    def entropy(self) -> Tensor:
        keep_rate = 1 - self.rate
        return -(torch.xlogy(self.rate, self.rate) + torch.xlogy(keep_rate, keep_rate)).sum()

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc * self.masks(noise)

    def masks(self, noise: Tensor) -> Tensor:
        """Return the factors m of all parameters, shape (..., U) -> (..., D)."""
        is_kept = torch.special.ndtr(noise) >= self.rate
        return self.spread(torch.where(is_kept, 1 / (1 - self.rate), 0.0), 1.0)

    def spread(self, units: Tensor, bias: Tensor | float) -> Tensor:
        """Map values of units to their weights, `bias` to biases, shape (..., U) -> (..., D)."""
        values = torch.cat([units, torch.zeros_like(units[..., :1]) + bias], dim=-1)
        return values.gather(-1, self.source.expand(*values.shape[:-1], -1))

    def _odds(self) -> Tensor:
        """Return the variance of m, rate / (1 - rate), shape (U,)."""
        return self.rate / (1 - self.rate)

    def _leaves(self) -> Tensor:
        """Return a matrix with 1 at the unit that each weight leaves, shape (D, U)."""
        units = torch.arange(self.noise_dim, device=self.source.device)
        return (self.source.unsqueeze(-1) == units).to(self.loc.dtype)

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        check_vector("rate", self.rate)
        check_shape("source", self.source, self.dim)

    def check_values(self) -> None:
        if not bool(((self.rate >= 0) & (self.rate < 1)).all()):
            raise InputError(
                "rate must be in [0, 1): "
                f"it ranges from {self.rate.min():g} to {self.rate.max():g}"
            )
        check_index(
            "source", self.source, self.noise_dim, "the number of units, which stands for a bias"
        )
