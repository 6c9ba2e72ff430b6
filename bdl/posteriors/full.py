"""The Gaussian with an unrestricted covariance."""

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


class FullGaussian(NamedTuple):
    """N(loc, L L^T).

    Parameters
    ----------
    loc
        Mean, shape (D,).
    scale_tril
        L, lower triangular with a positive diagonal, shape (D, D).
    """

    loc: Tensor
    scale_tril: Tensor

    @classmethod
    def from_covariance(cls, loc: Tensor, covariance: Tensor) -> "FullGaussian":
        """Build from a dense covariance; not for use under vmap.

        Parameters
        ----------
        loc
            Mean, shape (D,).
        covariance
            Symmetric positive definite, shape (D, D).

        Raises
        ------
        InputError
            If shapes disagree, or the matrix is not positive definite or not symmetric (to the root of its
            precision).
        """
        check_vector("loc", loc)
        check_shape("covariance", covariance, len(loc), len(loc))
        tolerance = torch.finfo(covariance.dtype).eps ** 0.5 * covariance.abs().max()
        if bool((covariance - covariance.mT).abs().max() > tolerance):
            raise InputError("covariance is not symmetric: give (C + C^T) / 2")
        scale_tril, info = torch.linalg.cholesky_ex(covariance)
        if bool(info):
            raise InputError("covariance is not positive definite: add a small multiple of the identity")
        return cls(loc, scale_tril)

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
        """Marginal variances, shape (D,)."""
        return self.scale_tril.square().sum(-1)

    def covariance(self) -> Tensor:
        """Dense covariance L L^T, shape (D, D)."""
        return self.scale_tril @ self.scale_tril.mT

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-density in nats at `theta`, shape (..., D) -> (...)."""
        return gaussian_log_prob(self, theta)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, a scalar."""
        return gaussian_entropy(self)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc + L noise, shape (..., D) -> (..., D)."""
        return self.loc + noise @ self.scale_tril.mT

    def log_det(self) -> Tensor:
        """Log-determinant of S, a scalar: 2 sum log diag(L)."""
        return 2 * self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        """L^{-1} delta, shape (..., D) -> (..., D)."""
        rows = delta.reshape(-1, self.dim)
        solved: Tensor = torch.linalg.solve_triangular(self.scale_tril.mT, rows, upper=True, left=False)
        return solved.reshape(delta.shape)

    def precision_diagonal(self) -> Tensor:
        """Diagonal of S^{-1}, shape (D,): squared norms of the columns of L^{-1}."""
        eye = torch.eye(self.dim, dtype=self.scale_tril.dtype, device=self.scale_tril.device)
        return self.whiten(eye).square().sum(-1)

    def trace_solve(self, other: Gaussian) -> Tensor:
        """tr(S_other^{-1} S), a scalar."""
        return other.whiten(self.scale_tril.mT).square().sum()

    def check(self) -> "FullGaussian":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, or L is not lower triangular with a positive diagonal.
        """
        check_vector("loc", self.loc)
        check_shape("scale_tril", self.scale_tril, self.dim, self.dim)
        check_positive("the diagonal of scale_tril", self.scale_tril.diagonal())
        if bool(self.scale_tril.triu(1).any()):
            raise InputError("scale_tril is not lower triangular: pass its .tril()")
        return self
