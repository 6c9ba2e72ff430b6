"""Finite sets of parameter vectors: draws of a sampler, members of an ensemble, and draws with weights."""

from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import NoDensity, check_finite, check_shape


class _Fields(NamedTuple):
    draws: Tensor


class _WeightedFields(NamedTuple):
    draws: Tensor
    log_weights: Tensor


class _Draws(NoDensity):
    """A family with a field `draws`, shape (S, D); a sample takes one normal, which picks a draw."""

    _reason = "draws have no density: leave out metrics that need one, or fit a Gaussian to the draws"

    @property
    def dim(self: "Empirical | Weighted") -> int:  # type: ignore[misc]
        return self.draws.shape[-1]

    @property
    def noise_dim(self) -> int:
        return 1

    @property
    def multimodal(self) -> bool:
        """True: the vectors need not be near each other."""
        return True

    def _validate(self: "Empirical | Weighted") -> None:  # type: ignore[misc]
        shape = tuple(self.draws.shape)
        if self.draws.ndim != 2 or not self.draws.numel():
            raise InputError(f"draws has shape {shape}: give it shape (S, D) with S and D at least 1")
        check_finite("draws", self.draws)


class Empirical(_Fields, _Draws):
    """Each of S parameter vectors with probability 1 / S; it has no density over the parameters.

    Moments are divided by S, not S - 1. A sample is draw floor(S Phi(noise)).

    Parameters
    ----------
    draws
        The vectors, finite, shape (S, D).
    """

    @property
    def atoms(self) -> Tensor:
        """All vectors that it gives, each as probable as the others, shape (S, D)."""
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
        index = (torch.special.ndtr(noise[..., 0]) * count).long().clamp(max=count - 1)
        return self.draws[index]


class Weighted(_WeightedFields, _Draws):
    """Draw s of S with probability r_s / sum r, as importance sampling leaves them; no density over the parameters.

    A sample is the draw at which the sum of the weights exceeds Phi(noise).

    Parameters
    ----------
    draws
        The vectors, finite, shape (S, D).
    log_weights
        log r_s, nats, finite, not normalised, shape (S,): where r_s = p(D, theta_s) / q(theta_s) for draws from q,
        their mean is the evidence.
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
        """Return the effective sample size (sum r)^2 / sum r^2, a scalar from 1 to S (Kong 1992)."""
        return (2 * self.log_weights.logsumexp(-1) - (2 * self.log_weights).logsumexp(-1)).exp()

    def log_evidence(self) -> Tensor:
        """Return the logarithm of the mean weight, nats, a scalar."""
        return self.log_weights.logsumexp(-1) - log(len(self.log_weights))

    def sample(self, noise: Tensor) -> Tensor:
        total = self.log_weights.double().softmax(-1).cumsum(-1)
        below = torch.special.ndtr(noise[..., 0].double()).clamp(max=1 - torch.finfo(total.dtype).eps)
        # times the last sum, which rounding takes off 1: a draw beyond it, maybe without weight, is never picked
        return self.draws[torch.searchsorted(total, below * total[..., -1], right=True)]

    def _validate(self) -> None:
        super()._validate()
        check_shape("log_weights", self.log_weights, len(self.draws))
        check_finite("log_weights", self.log_weights, "leave out draws without a density")
