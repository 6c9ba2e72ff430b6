"""A finite set of parameter vectors as a distribution: the draws of a sampler, or the members of an ensemble."""

from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from bdl.errors import InputError


class Empirical(NamedTuple):
    """Each of S parameter vectors with probability 1 / S.

    It has no density over the parameters; `log_prob` and `entropy` say so.

    Parameters
    ----------
    draws
        The vectors, shape (S, D).
    """

    draws: Tensor

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

    @property
    def atoms(self) -> Tensor:
        """All vectors that it gives, each as probable as the others, shape (S, D)."""
        return self.draws

    def mean(self) -> Tensor:
        """Mean of the draws, shape (D,)."""
        return self.draws.mean(-2)

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,): mean squares of the deviations, divided by S and not S - 1."""
        return self.draws.var(-2, correction=0)

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D), divided by S and not S - 1."""
        centred = self.draws - self.mean()
        return centred.mT @ centred / len(self.draws)

    def log_prob(self, theta: Tensor) -> NoReturn:
        """Raise `InputError`: it has no density."""
        raise InputError("draws have no density: leave out metrics that need one, or fit a Gaussian to the draws")

    def entropy(self) -> NoReturn:
        """Raise `InputError`: it has no density."""
        self.log_prob(self.draws)

    def sample(self, noise: Tensor) -> Tensor:
        """Pick draw floor(S Phi(noise)), shape (..., 1) -> (..., D)."""
        count = len(self.draws)
        index = (torch.special.ndtr(noise[..., 0]) * count).long().clamp(max=count - 1)
        return self.draws[index]

    def check(self) -> "Empirical":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If there is no draw, or one is not finite.
        """
        if self.draws.ndim != 2 or not self.draws.numel():
            raise InputError(f"draws has shape {tuple(self.draws.shape)}: give it shape (S, D) with S and D at least 1")
        if not bool(torch.isfinite(self.draws).all()):
            raise InputError("draws has values that are not finite: leave out what diverged")
        return self
