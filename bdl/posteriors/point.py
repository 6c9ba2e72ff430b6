"""One parameter vector, known for certain: what a point estimate leaves behind."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.posteriors.base import NoDensity, check_finite, check_vector


class _Fields(NamedTuple):
    loc: Tensor


class Point(_Fields, NoDensity):
    """All probability at one vector; it has no density over the parameters. A sample takes no normals.

    Parameters
    ----------
    loc
        The vector, finite, shape (D,).
    """

    _reason = "a point estimate has no density: leave out metrics that need one, or use another method"

    @property
    def noise_dim(self) -> int:
        return 0

    @property
    def atoms(self) -> Tensor:
        """All vectors that it gives, each as probable as the others, shape (1, D)."""
        return self.loc.unsqueeze(0)

    def variance(self) -> Tensor:
        return torch.zeros_like(self.loc)

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc.expand(*noise.shape[:-1], -1)

    def _validate(self) -> None:
        check_vector("loc", self.loc)
        check_finite("loc", self.loc)
