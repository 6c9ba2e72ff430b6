"""A Gaussian over the last parameters of a vector; the others are known for certain."""

from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import NoDensity, check_shape, check_vector


class _Fields(NamedTuple):
    loc: Tensor
    precision_root: Tensor


class LastLayer(_Fields, NoDensity):
    """The last k of D parameters are normal, the others a point; it has no density over all parameters.

    A sample takes k normals, and adds R^-T noise to the last k parameters.

    Parameters
    ----------
    loc
        Mean, shape (D,).
    precision_root
        Lower Cholesky factor R of the precision R R^T of the last k parameters, shape (k, k).
    """

    _reason = "all but the last layer are points, which have no density: leave out metrics that need one"

    @property
    def noise_dim(self) -> int:
        return self.precision_root.shape[-1]

    def variance(self) -> Tensor:
        own = torch.cholesky_inverse(self.precision_root).diagonal()
        return torch.cat([torch.zeros_like(self.loc[: self.dim - self.noise_dim]), own])

    def covariance(self) -> Tensor:
        first = self.dim - self.noise_dim
        return torch.nn.functional.pad(torch.cholesky_inverse(self.precision_root), (first, 0, first, 0))

    def sample(self, noise: Tensor) -> Tensor:
        rows = noise.reshape(-1, self.noise_dim)  # of one matrix, which a solve for each sample would copy
        solved: Tensor = torch.linalg.solve_triangular(self.precision_root, rows, upper=False, left=False)
        shift = solved.reshape(noise.shape)
        rest = noise.new_zeros(*noise.shape[:-1], self.dim - self.noise_dim)
        return self.loc + torch.cat([rest, shift], dim=-1)

    def _validate(self) -> None:
        check_vector("loc", self.loc)
        check_shape("precision_root", self.precision_root, self.noise_dim, self.noise_dim)
        if self.noise_dim > self.dim or not bool((self.precision_root.diagonal() > 0).all()):
            raise InputError("precision_root must be a Cholesky factor of at most D rows")
