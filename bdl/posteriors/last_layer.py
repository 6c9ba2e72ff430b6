"""A Gaussian over the last parameters of a vector; the others are known for certain."""

from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import check_shape, check_vector


class LastLayer(NamedTuple):
    """The last k of D parameters are normal, the others a point.

    It has no density over all parameters; `log_prob` and `entropy` say so.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    precision_root
        Lower Cholesky factor R of the precision R R^T of the last k parameters, shape (k, k).
    """

    loc: Tensor
    precision_root: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: one a parameter of the last layer, k."""
        return self.precision_root.shape[-1]

    def mean(self) -> Tensor:
        """Mean, shape (D,)."""
        return self.loc

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,): zero but for the last k."""
        own = torch.cholesky_inverse(self.precision_root).diagonal()
        return torch.cat([torch.zeros_like(self.loc[: self.dim - self.noise_dim]), own])

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D): zero but for the last k rows and columns."""
        first = self.dim - self.noise_dim
        return torch.nn.functional.pad(torch.cholesky_inverse(self.precision_root), (first, 0, first, 0))

    def log_prob(self, theta: Tensor) -> NoReturn:
        """Raise `InputError`: it has no density."""
        raise InputError("all but the last layer are points, which have no density: leave out metrics that need one")

    def entropy(self) -> NoReturn:
        """Raise `InputError`: it has no density."""
        self.log_prob(self.loc)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc + R^-T noise in the last k parameters, shape (..., k) -> (..., D)."""
        shift = torch.linalg.solve_triangular(self.precision_root.mT, noise.unsqueeze(-1), upper=True).squeeze(-1)
        rest = noise.new_zeros(*noise.shape[:-1], self.dim - self.noise_dim)
        return self.loc + torch.cat([rest, shift], dim=-1)

    def check(self) -> "LastLayer":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, or the precision is not positive definite.
        """
        check_vector("loc", self.loc)
        check_shape("precision_root", self.precision_root, self.noise_dim, self.noise_dim)
        if self.noise_dim > self.dim or not bool((self.precision_root.diagonal() > 0).all()):
            raise InputError("precision_root must be a Cholesky factor of at most D rows")
        return self
