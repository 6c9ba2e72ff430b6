"""Gaussians known by a dense Cholesky factor: over all parameters, or those of the last layer."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import (
    GaussianPosterior,
    NoDensity,
    check_positive,
    check_shape,
    check_tril,
    check_vector,
    inverse_tril,
)


def cholesky_or_nan(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factors of matrices (..., D, D), all NaN where there is none.

    A matrix that rounding has made indefinite has a factor of finite nonsense otherwise. It is no
    error, so that under vmap one trial that failed does not end the others.
    """
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return torch.where(failed[..., None, None] == 0, factor, torch.nan)


class _Factored(GaussianPosterior):
    """Verbs of N(loc, L L^T) with a field `scale_tril`, L."""

    loc: Tensor
    scale_tril: Tensor

    def variance(self) -> Tensor:
        return self.scale_tril.square().sum(-1)

    def covariance(self) -> Tensor:
        return self.scale_tril @ self.scale_tril.mT

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc + noise @ self.scale_tril.mT

    def log_det(self) -> Tensor:
        return 2 * self.scale_tril.diagonal(dim1=-2, dim2=-1).log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        # one solve with all rows as right-hand sides: one for each would copy the factor
        rows = delta.reshape(-1, self.dim)
        solved: Tensor = torch.linalg.solve_triangular(
            self.scale_tril.mT, rows, upper=True, left=False
        )
        return solved.reshape(delta.shape)

    def precision_diagonal(self) -> Tensor:
        eye = torch.eye(self.dim, dtype=self.scale_tril.dtype, device=self.scale_tril.device)
        return self.whiten(eye).square().sum(-1)  # squared norms of the columns of L^{-1}

    def trace_solve(self, p: GaussianPosterior) -> Tensor:
        return p.whiten(self.scale_tril.mT).square().sum()

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        check_shape("scale_tril", self.scale_tril, self.dim, self.dim)

    def check_values(self) -> None:
        check_tril("scale_tril", self.scale_tril)


class FullGaussian(NamedTuple("Fields", [("loc", Tensor), ("scale_tril", Tensor)]), _Factored):
    """N(loc, L L^T), (D,), with a Cholesky factor `scale_tril`, L, (D, D).

    It is lower triangular with a positive diagonal.
    """

    @classmethod
    def from_covariance(cls, loc: Tensor, covariance: Tensor) -> "FullGaussian":
        """Build from a mean (D,) and a dense covariance (D, D); not for use under vmap.

        `InputError` if shapes disagree, or the matrix is not positive definite or not symmetric
        (to the root of its precision).
        """
        check_vector("loc", loc)
        check_shape("covariance", covariance, len(loc), len(loc))
        tolerance = torch.finfo(covariance.dtype).eps ** 0.5 * covariance.abs().max()
        if bool((covariance - covariance.mT).abs().max() > tolerance):
            raise InputError("covariance is not symmetric: give (C + C^T) / 2")
        scale_tril, info = torch.linalg.cholesky_ex(covariance)
        if bool(info):
            raise InputError(
                "covariance is not positive definite: add a small multiple of the identity"
            )
        return cls(loc, scale_tril)


class Linearised(FullGaussian):
    """A `FullGaussian` with predictions by the linearised model, f(loc) + J (theta - loc).

    J is the derivative of the model's outputs at loc, which makes them Gaussian (Immer, Korzepa
    and Bauer 2021).
    """

    linearised = True


class Traced(
    NamedTuple(
        "Fields", [("loc", Tensor), ("scale_tril", Tensor), ("start", Tensor), ("path", Tensor)]
    ),
    _Factored,
):
    """A `FullGaussian` that keeps the parameter vectors whose mean and covariance it has.

    `start` is the vector before the first of them, (D,), and `path` the first T of them, (T, D);
    those that are still to come are equal to `loc`.
    """

    def check_shapes(self) -> None:
        super().check_shapes()
        check_shape("start", self.start, self.dim)
        check_shape("path", self.path, len(self.path), self.dim)


class FullPrecision(
    NamedTuple("Fields", [("loc", Tensor), ("precision_tril", Tensor)]), GaussianPosterior
):
    """N(loc, P^{-1}), (D,), with P = R R^T and a Cholesky factor `precision_tril`, R, (D, D).

    It is lower triangular with a positive diagonal.
    """

    def variance(self) -> Tensor:
        return inverse_tril(self.precision_tril).square().sum(-2)

    def covariance(self) -> Tensor:
        inverse = inverse_tril(self.precision_tril)
        return inverse.mT @ inverse

    def sample(self, noise: Tensor) -> Tensor:
        rows = noise.reshape(-1, self.dim)
        solved: Tensor = torch.linalg.solve_triangular(
            self.precision_tril, rows, upper=False, left=False
        )
        return self.loc + solved.reshape(noise.shape)

    def solve(self, vector: Tensor) -> Tensor:
        """Return P^{-1} vector, shape (D,) -> (D,)."""
        inner = torch.linalg.solve_triangular(
            self.precision_tril, vector.unsqueeze(-1), upper=False
        )
        column: Tensor = torch.linalg.solve_triangular(self.precision_tril.mT, inner, upper=True)
        return column.squeeze(-1)

    def log_det(self) -> Tensor:
        return -2 * self.precision_tril.diagonal(dim1=-2, dim2=-1).log().sum()

    def whiten(self, delta: Tensor) -> Tensor:
        return delta @ self.precision_tril

    def precision_diagonal(self) -> Tensor:
        return self.precision_tril.square().sum(-1)

    def trace_solve(self, p: GaussianPosterior) -> Tensor:
        rows = inverse_tril(self.precision_tril)  # of a root of the covariance
        return p.whiten(rows).square().sum()

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        check_shape("precision_tril", self.precision_tril, self.dim, self.dim)

    def check_values(self) -> None:
        check_tril("precision_tril", self.precision_tril)


class LastLayer(NamedTuple("Fields", [("loc", Tensor), ("precision_root", Tensor)]), NoDensity):
    """The last k of D parameters are normal, the others a point.

    It has no density over all parameters.

    Their precision is R R^T, R being a lower Cholesky factor, (k, k). A sample takes k normals,
    and adds R^-T noise to the last k parameters.
    """

    _reason = (
        "all but the last layer are points, which have no density: leave out metrics that need one"
    )

    @property
    def noise_dim(self) -> int:
        return self.precision_root.shape[-1]

    def variance(self) -> Tensor:
        last_layer = torch.cholesky_inverse(self.precision_root).diagonal()
        return torch.cat([torch.zeros_like(self.loc[: self.dim - self.noise_dim]), last_layer])

    def covariance(self) -> Tensor:
        first = self.dim - self.noise_dim
        return torch.nn.functional.pad(
            torch.cholesky_inverse(self.precision_root), (first, 0, first, 0)
        )

    def sample(self, noise: Tensor) -> Tensor:
        # one matrix of all samples: a solve for each sample would copy the root
        rows = noise.reshape(-1, self.noise_dim)
        solved: Tensor = torch.linalg.solve_triangular(
            self.precision_root, rows, upper=False, left=False
        )
        shift = solved.reshape(noise.shape)
        no_shift = noise.new_zeros(*noise.shape[:-1], self.dim - self.noise_dim)
        return self.loc + torch.cat([no_shift, shift], dim=-1)

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        check_shape("precision_root", self.precision_root, self.noise_dim, self.noise_dim)
        if self.noise_dim > self.dim:
            raise InputError("precision_root must be a Cholesky factor of at most D rows")

    def check_values(self) -> None:
        check_positive("the diagonal of precision_root", self.precision_root.diagonal())
