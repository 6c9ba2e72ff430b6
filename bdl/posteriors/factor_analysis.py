"""The Gaussian with a factor-analysis covariance: low rank plus diagonal, never formed densely."""

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


class FactorAnalysis(NamedTuple):
    """N(loc, F F^T + diag(psi)), the law of theta = loc + F h + psi^{1/2} o z with standard-normal h and z.

    Every verb but `covariance` costs O(D K^2) or less, by the Woodbury identity with the K x K matrix
    I + F^T diag(psi)^{-1} F.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    factors
        F, shape (D, K), K <= D.
    diag
        psi, positive, shape (D,).

    References
    ----------
    Bishop (2006), Pattern Recognition and Machine Learning, section 12.2.4 (factor analysis) and
    equation C.7 (Woodbury).
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
        """Number of factors, K."""
        return self.factors.shape[-1]

    @property
    def noise_dim(self) -> int:
        """Standard-normal values per sample: K for h, then D for z."""
        return self.rank + self.dim

    def mean(self) -> Tensor:
        """Mean, shape (D,)."""
        return self.loc

    def variance(self) -> Tensor:
        """Marginal variances, shape (D,)."""
        return self.factors.square().sum(-1) + self.diag

    def covariance(self) -> Tensor:
        """Dense covariance F F^T + diag(psi), shape (D, D)."""
        return self.factors @ self.factors.mT + self.diag.diag_embed()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-density in nats at `theta`, shape (..., D) -> (...)."""
        return gaussian_log_prob(self, theta)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, a scalar."""
        return gaussian_entropy(self)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc + F h + psi^{1/2} o z with (h, z) = noise, shape (..., K + D) -> (..., D)."""
        h, z = torch.split(noise, [self.rank, self.dim], dim=-1)
        return self.loc + h @ self.factors.mT + self.diag.sqrt() * z

    def gain(self) -> Tensor:
        """S^{-1} F, shape (D, K): regresses the factors on theta, E[h | theta] = gain^T (theta - loc)."""
        return self.factors / self.diag.unsqueeze(-1) @ torch.cholesky_inverse(self._cholesky())

    def log_det(self) -> Tensor:
        """Log-determinant of S, a scalar: log |I + F^T diag(psi)^{-1} F| + sum log psi."""
        return 2 * self._cholesky().diagonal(dim1=-2, dim2=-1).log().sum() + self.diag.log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        """(m, psi^{-1/2} o (delta - F m)) with m = gain^T delta, shape (..., D) -> (..., K + D).

        The shortest noise is the ridge regression of delta on F, hence m is the posterior mean of h. A
        rounding error in m changes the squared norm only to second order.
        """
        m = delta @ self.gain()
        return torch.cat([m, (delta - m @ self.factors.mT) / self.diag.sqrt()], dim=-1)

    def precision_diagonal(self) -> Tensor:
        """Diagonal of S^{-1}, shape (D,): (1 - leverage) / psi with leverage_i = F_i . gain_i, below 1.

        Where psi_i is far below the other noise the leverage nears 1 and the difference loses as many
        digits as psi_i is below 1 / S^{-1}_ii; float64 bears nine decades of psi.
        """
        return (1 - (self.factors * self.gain()).sum(-1)) / self.diag

    def trace_solve(self, other: Gaussian) -> Tensor:
        """tr(S_other^{-1} S), a scalar."""
        return other.whiten(self.factors.mT).square().sum() + self.diag @ other.precision_diagonal()

    def check(self) -> "FactorAnalysis":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree, there are more factors than parameters, or psi is not positive and finite.
        """
        check_vector("loc", self.loc)
        if self.factors.ndim != 2 or len(self.factors) != self.dim:
            raise InputError(f"factors has shape {tuple(self.factors.shape)}: give it shape ({self.dim}, K)")
        if self.rank > self.dim:
            raise InputError(f"{self.rank} factors for {self.dim} parameters: use at most {self.dim} factors")
        check_shape("diag", self.diag, self.dim)
        check_positive("diag", self.diag)
        return self

    def _cholesky(self) -> Tensor:
        """Cholesky factor of I + F^T diag(psi)^{-1} F, shape (K, K).

        Unlike `cholesky`, `cholesky_ex` does not raise: under vmap a diverged posterior (NaN) then stays
        alone with its NaN instead of ending the whole batch.
        """
        eye = torch.eye(self.rank, dtype=self.factors.dtype, device=self.factors.device)
        inner = eye + self.factors.mT @ (self.factors / self.diag.unsqueeze(-1))
        factor: Tensor = torch.linalg.cholesky_ex(inner).L
        return factor
