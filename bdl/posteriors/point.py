"""One parameter vector, known for certain: what a point estimate leaves behind."""

from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import check_vector


class Point(NamedTuple):
    """All probability at one vector.

    It has no density over the parameters; `log_prob` and `entropy` say so.

    Parameters
    ----------
    loc
        The vector, shape (D,).
    """

    loc: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: none."""
        return 0

    @property
    def atoms(self) -> Tensor:
        """All vectors that it gives, each as probable as the others, shape (1, D)."""
        return self.loc.unsqueeze(0)

    def mean(self) -> Tensor:
        """Return the vector, shape (D,)."""
        return self.loc

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,): zero."""
        return torch.zeros_like(self.loc)

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D): zero."""
        return self.variance().diag_embed()

    def log_prob(self, theta: Tensor) -> NoReturn:
        """Raise `InputError`: it has no density."""
        raise InputError("a point estimate has no density: leave out metrics that need one, or use another method")

    def entropy(self) -> NoReturn:
        """Raise `InputError`: it has no density."""
        self.log_prob(self.loc)

    def sample(self, noise: Tensor) -> Tensor:
        """Return the vector, shape (..., 0) -> (..., D)."""
        return self.loc.expand(*noise.shape[:-1], -1)

    def check(self) -> "Point":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If it is no vector, or an entry is not finite.
        """
        check_vector("loc", self.loc)
        if not bool(torch.isfinite(self.loc).all()):
            raise InputError("loc has values that are not finite: leave out what diverged")
        return self
