"""The Gaussian whose covariance is a Kronecker product in each dense layer."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.posteriors.base import (
    GaussianPosterior,
    check_shape,
    check_tril,
    check_vector,
    inverse_tril,
)
from bdl.posteriors.independent import DiagonalGaussian


def to_blocks(rows: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Cut parameters (..., D) into a matrix for each layer, (..., out, in).

    Biases, if there are any, are its last column. `widths` counts the inputs, the units of each
    hidden layer and the outputs.
    """
    weight_counts = [n_out * n_in for n_in, n_out in pairwise(widths)]
    if rows.shape[-1] == sum(weight_counts):
        flat_weights = torch.split(rows, weight_counts, -1)
        return [
            _matrix(weights, n_out)
            for weights, n_out in zip(flat_weights, widths[1:], strict=True)
        ]
    sizes: list[int] = []
    for weight_count, n_out in zip(weight_counts, widths[1:], strict=True):
        sizes += [weight_count, n_out]
    segments = torch.split(rows, sizes, -1)  # weights and biases by turns
    return [
        torch.cat([_matrix(weights, bias.shape[-1]), bias.unsqueeze(-1)], -1)
        for weights, bias in zip(segments[::2], segments[1::2], strict=True)
    ]


def from_blocks(blocks: Sequence[Tensor], widths: Sequence[int]) -> Tensor:
    """Undo `to_blocks`."""
    segments: list[Tensor] = []
    for block, n_in in zip(blocks, widths[:-1], strict=False):
        weights, bias = torch.split(block, [n_in, block.shape[-1] - n_in], -1)
        segments += [weights.flatten(-2), bias.flatten(-2)]
    return torch.cat(segments, -1)


class KroneckerGaussian(
    NamedTuple(
        "Fields", [("loc", Tensor), ("inner", Tensor), ("outer", Tensor), ("widths", Tensor)]
    ),
    GaussianPosterior,
):
    """Independent layers, each matrix normal: W = M + S Z A^T with Z standard normal, (out, in).

    W are the weights of a layer, its bias their last column if it has one, so that the covariance
    of W, row by row, is the Kronecker product of S S^T and A A^T. Every verb but `covariance` and
    `trace_solve` costs what a few products of such matrices cost.

    `loc`, (D,), has layer by layer the weights (out x in, row-major), and then the bias; `inner`
    and `outer` A and S of every layer, lower triangular with positive diagonals, flattened and end
    to end. `widths` are the inputs, units of each hidden layer and outputs, (n_0, ..., n_L), as
    the SHAPE (0, n_0, ..., n_L) of a tensor without entries: shapes are known where values are
    not, under vmap say. There are biases if D says so.
    """

    @property
    def units(self) -> tuple[int, ...]:
        """Inputs, units of each hidden layer and outputs."""
        return tuple(self.widths.shape[1:])

    def variance(self) -> Tensor:
        return self._outer_products(
            [(A.square().sum(-1), S.square().sum(-1)) for A, S in self.roots()]
        )

    def covariance(self) -> Tensor:
        # zero between layers: S S^T E A A^T for each unit matrix E
        return self._apply(self._eye(), lambda E, A, S: S @ (S.mT @ E @ A) @ A.mT)

    def sample(self, noise: Tensor) -> Tensor:
        return self.loc + self._apply(noise, lambda Z, A, S: S @ (Z @ A.mT))

    def log_det(self) -> Tensor:
        # A Kronecker product has the determinant of each factor to the power of the other's size.
        terms = [
            len(A) * S.diagonal().log().sum() + len(S) * A.diagonal().log().sum()
            for A, S in self.roots()
        ]
        return 2 * torch.stack(terms).sum()

    def whiten(self, delta: Tensor) -> Tensor:
        return self._apply(
            delta, lambda Delta, A, S: inverse_tril(S) @ (Delta @ inverse_tril(A).mT)
        )

    def precision_diagonal(self) -> Tensor:
        # with R^-1 the inverse of a root, the diagonal of R^-T R^-1 has the sums over its columns
        inverses = [(inverse_tril(A), inverse_tril(S)) for A, S in self.roots()]
        return self._outer_products(
            [(A.square().sum(-2), S.square().sum(-2)) for A, S in inverses]
        )

    def trace_solve(self, p: GaussianPosterior) -> Tensor:
        """Return tr(S_p^{-1} S), a scalar.

        Unless p is a diagonal Gaussian it takes D x D numbers.
        """
        if isinstance(p, DiagonalGaussian):
            return self.variance() @ p.precision_diagonal()
        # unit vectors of noise give the columns of a square root of S
        return p.whiten(self.sample(self._eye()) - self.loc).square().sum()

    def roots(self) -> list[tuple[Tensor, Tensor]]:
        """Return A (in, in) and S (out, out) of each layer; a bias counts as an input."""
        sizes = self._sizes()
        inner = torch.split(self.inner, [n_in**2 for n_in, _ in sizes])
        outer = torch.split(self.outer, [n_out**2 for _, n_out in sizes])
        return [
            (_matrix(A, n_in), _matrix(S, n_out))
            for A, S, (n_in, n_out) in zip(inner, outer, sizes, strict=True)
        ]

    def _sizes(self) -> list[tuple[int, int]]:
        """Count inputs, a bias included, and outputs of each layer."""
        bias = self.dim != sum(n_in * n_out for n_in, n_out in pairwise(self.units))
        return [(n_in + bias, n_out) for n_in, n_out in pairwise(self.units)]

    def _apply(self, rows: Tensor, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """Apply a function of (block, A, S) to each layer, (..., D) -> (..., D)."""
        blocks = to_blocks(rows, self.units)
        return from_blocks(
            [function(W, *roots) for W, roots in zip(blocks, self.roots(), strict=True)],
            self.units,
        )

    def _outer_products(self, values: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Multiply values of inputs (in,) by values of outputs (out,): (D,)."""
        return from_blocks([s.unsqueeze(-1) * a for a, s in values], self.units)

    def _eye(self) -> Tensor:
        return torch.eye(self.dim, dtype=self.loc.dtype, device=self.loc.device)

    def check_shapes(self) -> None:
        check_vector("loc", self.loc)
        if self.widths.numel() or len(self.units) < 2:
            raise InputError(
                f"widths has shape {tuple(self.widths.shape)}: "
                "give it shape (0, inputs, ..., outputs)"
            )
        sizes = self._sizes()
        if self.dim != sum(n_in * n_out for n_in, n_out in sizes):
            raise InputError(
                f"loc has {self.dim} entries: layers of {self.units} units have another number"
            )
        check_shape("inner", self.inner, sum(n_in**2 for n_in, _ in sizes))
        check_shape("outer", self.outer, sum(n_out**2 for _, n_out in sizes))

    def check_values(self) -> None:
        for A, S in self.roots():
            check_tril("inner", A)
            check_tril("outer", S)


def _matrix(flat: Tensor, rows: int) -> Tensor:
    return flat.reshape(*flat.shape[:-1], rows, flat.shape[-1] // rows)
