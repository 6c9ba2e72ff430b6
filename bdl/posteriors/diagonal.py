"""The mean-field Gaussian."""

from typing import NamedTuple

from torch import Tensor

from bdl.posteriors.base import Gaussian, GaussianFamily, check_positive, check_shape, check_vector


class _Fields(NamedTuple):
    loc: Tensor
    var: Tensor


class DiagonalGaussian(_Fields, GaussianFamily):
    """N(loc, diag(var)): independent parameters.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    var
        Variances, positive, shape (D,).
    """

    def variance(self) -> Tensor:
        return self.var

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc + self.var.sqrt() * noise

    def log_det(self) -> Tensor:
        return self.var.log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        return delta / self.var.sqrt()

    def precision_diagonal(self) -> Tensor:
        return self.var.reciprocal()

    def trace_solve(self, other: Gaussian) -> Tensor:
        return self.var @ other.precision_diagonal()

    def _validate(self) -> None:
        check_vector("loc", self.loc)
        check_shape("var", self.var, self.dim)
        check_positive("var", self.var)
