"""Mixtures of Gaussians of low rank plus diagonal: several modes, each with a width."""

from math import log
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import Family
from bdl.posteriors.low_rank import FactorAnalysis


class _Fields(NamedTuple):
    locs: Tensor
    factors: Tensor
    diags: Tensor


class Mixture(_Fields, Family):
    """(1/C) sum_c N(loc_c, F_c F_c^T + diag(psi_c)); its entropy has no closed form.

    The noise of a sample is (u, h, z), of 1 + K + D values: it is that of component floor(C Phi(u)) with the noise (h,
    z), as `FactorAnalysis` has it.

    Parameters
    ----------
    locs
        Means of the components, shape (C, D).
    factors
        F of each, shape (C, D, K), K <= D.
    diags
        psi of each, positive, shape (C, D).
    """

    @property
    def dim(self) -> int:
        return self.locs.shape[-1]

    @property
    def noise_dim(self) -> int:
        return 1 + self.factors.shape[-1] + self.dim

    @property
    def multimodal(self) -> bool:
        """True: the components need not be near each other."""
        return True

    def components(self) -> list[FactorAnalysis]:
        """Return the Gaussians that are mixed."""
        return [FactorAnalysis(*own) for own in zip(*self, strict=True)]

    def mean(self) -> Tensor:
        return self.locs.mean(-2)

    def variance(self) -> Tensor:
        within = self.factors.square().sum(-1) + self.diags
        return within.mean(-2) + self.locs.var(-2, correction=0)

    def covariance(self) -> Tensor:
        each = torch.stack([own.covariance() for own in self.components()])
        centred = self.locs - self.mean()
        return each.mean(0) + centred.mT @ centred / len(self.locs)

    def log_prob(self, theta: Tensor) -> Tensor:
        each = torch.stack([own.log_prob(theta) for own in self.components()])
        return each.logsumexp(0) - log(len(self.locs))

    def entropy(self) -> NoReturn:
        raise InputError("a mixture has no closed entropy: leave out metrics that need one")

    def sample(self, noise: Tensor) -> Tensor:
        component = torch.floor(torch.special.ndtr(noise[..., :1]) * len(self.locs))
        first, *others = (own.sample(noise[..., 1:]) for own in self.components())  # one by one, as they may be large
        for number, sample in enumerate(others, 1):
            first = torch.where(component >= number, sample, first)
        return first

    def _validate(self) -> None:
        count = len(self.locs)
        if self.locs.ndim != 2 or not count == len(self.factors) == len(self.diags):
            raise InputError(f"locs has shape {tuple(self.locs.shape)}: give (C, D), with C factors and C diags")
        for own in self.components():
            own.check()
