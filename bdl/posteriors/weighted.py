"""Parameter vectors with weights: what importance sampling leaves of a posterior."""

from math import log
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import check_shape
from bdl.posteriors.empirical import Empirical


class Weighted(NamedTuple):
    """Draw s of S with probability r_s / sum r.

    It has no density over the parameters; `log_prob` and `entropy` say so.

    Parameters
    ----------
    draws
        The vectors, shape (S, D).
    log_weights
        log r_s, nats, not normalised, shape (S,): where r_s = p(D, theta_s) / q(theta_s) for draws from q, their
        mean is the evidence.
    """

    draws: Tensor
    log_weights: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.draws.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: one, which picks a draw."""
        return 1

    @property
    def multimodal(self) -> bool:
        """True: the vectors need not be near each other."""
        return True

    def weights(self) -> Tensor:
        """Probability of each draw, shape (S,)."""
        return self.log_weights.softmax(-1)

    def mean(self) -> Tensor:
        """Weighted mean of the draws, shape (D,)."""
        return self.weights() @ self.draws

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,)."""
        return self.weights() @ (self.draws - self.mean()).square()

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D)."""
        centred = self.draws - self.mean()
        return centred.mT @ (self.weights().unsqueeze(-1) * centred)

    def effective_size(self) -> Tensor:
        """Effective sample size (sum r)^2 / sum r^2, a scalar from 1 to S (Kong 1992)."""
        return (2 * self.log_weights.logsumexp(-1) - (2 * self.log_weights).logsumexp(-1)).exp()

    def log_evidence(self) -> Tensor:
        """Logarithm of the mean weight, nats, a scalar."""
        return self.log_weights.logsumexp(-1) - log(len(self.log_weights))

    def log_prob(self, theta: Tensor) -> NoReturn:
        """Raise `InputError`: it has no density."""
        Empirical(self.draws).log_prob(theta)

    def entropy(self) -> NoReturn:
        """Raise `InputError`: it has no density."""
        self.log_prob(self.draws)

    def sample(self, noise: Tensor) -> Tensor:
        """Pick the draw at which the sum of the weights exceeds Phi(noise), shape (..., 1) -> (..., D)."""
        total = self.log_weights.double().softmax(-1).cumsum(-1)
        below = torch.special.ndtr(noise[..., 0].double()).clamp(max=1 - torch.finfo(total.dtype).eps)
        # times the last sum, which rounding takes off 1: a draw beyond it, maybe without weight, is never picked
        return self.draws[torch.searchsorted(total, below * total[..., -1], right=True)]

    def check(self) -> "Weighted":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If there is no draw, shapes disagree, or a value is not finite.
        """
        Empirical(self.draws).check()
        check_shape("log_weights", self.log_weights, len(self.draws))
        if not bool(torch.isfinite(self.log_weights).all()):
            raise InputError("log_weights has values that are not finite: leave out draws without a density")
        return self
