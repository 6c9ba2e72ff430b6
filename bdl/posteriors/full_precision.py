"""The Gaussian with an unrestricted precision, known by its Cholesky factor."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import (
    Gaussian,
    check_positive,
    check_shape,
    check_vector,
    gaussian_entropy,
    gaussian_log_prob,
)


class FullPrecision(NamedTuple):
    """N(loc, P^{-1}) with P = R R^T.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    precision_tril
        R, lower triangular with a positive diagonal, shape (D, D).
    """

    loc: Tensor
    precision_tril: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: D."""
        return self.dim

    def mean(self) -> Tensor:
        """Mean, shape (D,)."""
        return self.loc

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,): squared norms of the columns of R^{-1}."""
        return self._inverse().square().sum(-2)

    def covariance(self) -> Tensor:
        """Dense covariance R^{-T} R^{-1}, shape (D, D)."""
        inverse = self._inverse()
        return inverse.mT @ inverse

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-density in nats at `theta`, shape (..., D) -> (...)."""
        return gaussian_log_prob(self, theta)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, a scalar."""
        return gaussian_entropy(self)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc + R^{-T} noise, shape (..., D) -> (..., D)."""
        rows = noise.reshape(-1, self.dim)
        solved: Tensor = torch.linalg.solve_triangular(self.precision_tril, rows, upper=False, left=False)
        return self.loc + solved.reshape(noise.shape)

    def solve(self, vector: Tensor) -> Tensor:
        """P^{-1} vector, shape (D,) -> (D,)."""
        inner = torch.linalg.solve_triangular(self.precision_tril, vector.unsqueeze(-1), upper=False)
        column: Tensor = torch.linalg.solve_triangular(self.precision_tril.mT, inner, upper=True)
        return column.squeeze(-1)

    def log_det(self) -> Tensor:
        """Log-determinant of the covariance, a scalar: -2 sum log diag(R)."""
        return -2 * self.precision_tril.diagonal(dim1=-2, dim2=-1).log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        """R^T delta, shape (..., D) -> (..., D)."""
        return delta @ self.precision_tril

    def precision_diagonal(self) -> Tensor:
        """Diagonal of P, shape (D,)."""
        return self.precision_tril.square().sum(-1)

    def trace_solve(self, other: Gaussian) -> Tensor:
        """tr(S_other^{-1} P^{-1}), a scalar: R^{-1} has the rows of a root of the covariance."""
        return other.whiten(self._inverse()).square().sum()

    def check(self) -> "FullPrecision":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, or R is not lower triangular with a positive diagonal.
        """
        check_vector("loc", self.loc)
        check_shape("precision_tril", self.precision_tril, self.dim, self.dim)
        check_positive("the diagonal of precision_tril", self.precision_tril.diagonal())
        if bool(self.precision_tril.triu(1).any()):
            raise InputError("precision_tril is not lower triangular: pass its .tril()")
        return self

    def _inverse(self) -> Tensor:
        """R^{-1}, shape (D, D)."""
        eye = torch.eye(self.dim, dtype=self.precision_tril.dtype, device=self.precision_tril.device)
        inverse: Tensor = torch.linalg.solve_triangular(self.precision_tril, eye, upper=False)
        return inverse
