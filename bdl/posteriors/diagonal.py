"""The mean-field Gaussian."""

from typing import NamedTuple

from torch import Tensor

from bdl.posteriors.base import (
    Gaussian,
    check_positive,
    check_shape,
    check_vector,
    gaussian_entropy,
    gaussian_log_prob,
)


class DiagonalGaussian(NamedTuple):
    """N(loc, diag(var)): independent parameters.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    var
        Variances, positive, shape (D,).
    """

    loc: Tensor
    var: Tensor

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
        return self.var

    def covariance(self) -> Tensor:
        """Dense covariance diag(var), shape (D, D)."""
        return self.var.diag_embed()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-density in nats at `theta`, shape (..., D) -> (...)."""
        return gaussian_log_prob(self, theta)

    def entropy(self) -> Tensor:
        """Differential entropy in nats, a scalar."""
        return gaussian_entropy(self)

    def sample(self, noise: Tensor) -> Tensor:
        """Draw loc + var^{1/2} o noise, shape (..., D) -> (..., D)."""
        return self.loc + self.var.sqrt() * noise

    def log_det(self) -> Tensor:
        """Log-determinant of S, a scalar: sum log var."""
        return self.var.log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        """var^{-1/2} o delta, shape (..., D) -> (..., D)."""
        return delta / self.var.sqrt()

    def precision_diagonal(self) -> Tensor:
        """Diagonal of S^{-1}, shape (D,)."""
        return self.var.reciprocal()

    def trace_solve(self, other: Gaussian) -> Tensor:
        """tr(S_other^{-1} S), a scalar."""
        return self.var @ other.precision_diagonal()

    def check(self) -> "DiagonalGaussian":
        """Return the posterior itself if its shapes and values are valid; not for use under vmap.

        Raises
        ------
        InputError
            If shapes disagree or a variance is not positive and finite.
        """
        check_vector("loc", self.loc)
        check_shape("var", self.var, self.dim)
        check_positive("var", self.var)
        return self
