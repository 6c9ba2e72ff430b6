"""The Gaussian with a low-rank plus diagonal precision, never formed densely."""

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


class LowRankPrecision(NamedTuple):
    """N(loc, P^{-1}) with P = U U^T + diag(d).

    With W = diag(d)^{-1/2} U and the Cholesky factor R R^T = I + W^T W, of size L x L, a square root of the
    covariance and its inverse are

        A = diag(d)^{-1/2} (I - W R^{-T} (I + R)^{-1} W^T),    A^{-1} = (I + W (I + R^T)^{-1} W^T) diag(d)^{1/2}.

    Every verb but `covariance` costs O(D L^2) or less.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    factors
        U, shape (D, L), L <= D; columns may be zero.
    diag
        d, positive, shape (D,).

    Notes
    -----
    Mishkin et al. (2018), SLANG, appendix A.2, sample with another such root, which divides by the Cholesky
    factor of U^T diag(d)^{-1} U and so needs U of full rank; their print has I + V^T V for I + A^T A.
    """

    loc: Tensor
    factors: Tensor
    diag: Tensor

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.loc.shape[-1]

    @property
    def rank(self) -> int:
        """Columns of U, L."""
        return self.factors.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: D."""
        return self.dim

    def mean(self) -> Tensor:
        """Mean, shape (D,)."""
        return self.loc

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,): (1 - leverage) / d with leverage_i = |R^{-1} W_i|^2, below 1.

        Where d_i is far below the precision P_ii given the others, the difference loses as many digits;
        float64 bears nine decades of d.
        """
        return (1 - self._leverage_root().square().sum(-1)) / self.diag

    def covariance(self) -> Tensor:
        """Dense covariance, shape (D, D): diag(d)^{-1} - Q Q^T with Q = diag(d)^{-1/2} W R^{-T}."""
        root = self._leverage_root() * self.diag.rsqrt().unsqueeze(-1)
        return self.diag.reciprocal().diag_embed() - root @ root.mT

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-density in nats at `theta`, shape (..., D) -> (...)."""
        return gaussian_log_prob(self, theta)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, a scalar."""
        return gaussian_entropy(self)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc + A noise, shape (..., D) -> (..., D)."""
        return self.loc + self._shrink(noise, self._core()) * self.diag.rsqrt()

    def solve(self, vector: Tensor) -> Tensor:
        """P^{-1} vector, shape (..., D) -> (..., D), as A A^T vector.

        Woodbury's formula takes a difference that leaves 1 / (1 + |W|^2) of a component along W; each of the
        two roots leaves the square root of that, which costs half as many digits.
        """
        core, scale = self._core(), self.diag.rsqrt()
        inner = self._shrink(vector * scale, core.mT)
        return self._shrink(inner, core) * scale

    def log_det(self) -> Tensor:
        """Log-determinant of the covariance, a scalar: -2 sum log diag(R) - sum log d."""
        return -2 * self._cholesky().diagonal(dim1=-2, dim2=-1).log().sum() - self.diag.log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        """A^{-1} delta, shape (..., D) -> (..., D)."""
        plus = _plus_identity(self._cholesky())
        inner: Tensor = torch.linalg.solve_triangular(plus, self._scaled().mT, upper=False)
        return delta * self.diag.sqrt() + delta @ self.factors @ inner

    def precision_diagonal(self) -> Tensor:
        """Diagonal of P, shape (D,)."""
        return self.factors.square().sum(-1) + self.diag

    def trace_solve(self, other: Gaussian) -> Tensor:
        """tr(S_other^{-1} P^{-1}), a scalar: the difference of what diag(d)^{-1} gives and what U takes away."""
        root = self._leverage_root() * self.diag.rsqrt().unsqueeze(-1)
        return (other.precision_diagonal() / self.diag).sum() - other.whiten(root.mT).square().sum()

    def check(self) -> "LowRankPrecision":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, L exceeds D, or d is not positive and finite.
        """
        check_vector("loc", self.loc)
        if self.factors.ndim != 2 or len(self.factors) != self.dim:
            raise InputError(f"factors has shape {tuple(self.factors.shape)}: give it shape ({self.dim}, L)")
        if self.rank > self.dim:
            raise InputError(f"{self.rank} factors for {self.dim} parameters: use at most {self.dim} factors")
        check_shape("diag", self.diag, self.dim)
        check_positive("diag", self.diag)
        return self

    def _shrink(self, rows: Tensor, core: Tensor) -> Tensor:
        """(I - W core W^T) applied to each row, shape (..., D) -> (..., D)."""
        scaled = self._scaled()
        return rows - rows @ scaled @ core.mT @ scaled.mT

    def _core(self) -> Tensor:
        """R^{-T} (I + R)^{-1}, shape (L, L)."""
        root = self._cholesky()
        eye = torch.eye(self.rank, dtype=root.dtype, device=root.device)
        inner = torch.linalg.solve_triangular(root + eye, eye, upper=False)
        core: Tensor = torch.linalg.solve_triangular(root.mT, inner, upper=True)
        return core

    def _scaled(self) -> Tensor:
        """W, shape (D, L)."""
        return self.factors * self.diag.rsqrt().unsqueeze(-1)

    def _cholesky(self) -> Tensor:
        """R, shape (L, L); unlike `cholesky`, `cholesky_ex` gives NaN where a diverged posterior has none."""
        scaled = self._scaled()
        factor: Tensor = torch.linalg.cholesky_ex(_plus_identity(scaled.mT @ scaled)).L
        return factor

    def _leverage_root(self) -> Tensor:
        """W R^{-T}, shape (D, L): the covariance is d^{-1/2} (I - its square) d^{-1/2}."""
        root: Tensor = torch.linalg.solve_triangular(self._cholesky().mT, self._scaled(), upper=True, left=False)
        return root


def _plus_identity(matrix: Tensor) -> Tensor:
    return matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
