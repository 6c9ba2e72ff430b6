"""The matrix of all gradients of log p(y_i | x_i, theta), known by the products that methods need.

A layer's weights have the gradient (error) (input)^T, an outer product, for each example (Goodfellow 2015). For models
of dense layers the n x D matrix G of all gradients is therefore never formed: its products cost the same, its
Gram matrix G G^T only O(n^2) per unit instead of per weight, and the memory is that of the activations.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor

from bdl.models.base import Layers


class ExampleGradients(Protocol):
    """A matrix G, (n, D), with G^T G = sum of g g^T over all gradients g, known by what it does.

    Its rows are the gradients, or stand for several each where those are multiples of one vector.
    """

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        ...

    def total(self) -> Tensor:
        """Sum of the gradients, (D,)."""
        ...

    def outer(self) -> Tensor:
        """G^T G, (D, D)."""
        ...

    def gram(self) -> Tensor:
        """G G^T, (n, n)."""
        ...

    def times(self, columns: Tensor) -> Tensor:
        """G V for V of shape (D, L): (n, L)."""
        ...

    def combine(self, weights: Tensor) -> Tensor:
        """G^T W for W of shape (n, L): (D, L)."""
        ...

    def squares(self) -> Tensor:
        """Sum of the squared gradients, (D,): the diagonal of G^T G."""
        ...


@dataclass(frozen=True)
class DenseGradients:
    """G as a matrix.

    Parameters
    ----------
    matrix
        Shape (n, D).
    summed
        Sum of the gradients, (D,), where a row stands for several; None if the rows are the gradients.
    """

    matrix: Tensor
    summed: Tensor | None = None

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        return len(self.matrix)

    def total(self) -> Tensor:
        """Sum of the gradients, (D,)."""
        return self.matrix.sum(0) if self.summed is None else self.summed

    def outer(self) -> Tensor:
        """G^T G, (D, D)."""
        return self.matrix.T @ self.matrix

    def gram(self) -> Tensor:
        """G G^T, (n, n)."""
        return self.matrix @ self.matrix.T

    def times(self, columns: Tensor) -> Tensor:
        """G V for V of shape (D, L): (n, L)."""
        return self.matrix @ columns

    def combine(self, weights: Tensor) -> Tensor:
        """G^T W for W of shape (n, L): (D, L)."""
        return self.matrix.T @ weights

    def squares(self) -> Tensor:
        """Sum of the squared gradients, (D,): the diagonal of G^T G."""
        return self.matrix.square().sum(0)


@dataclass(frozen=True)
class OuterGradients:
    """G as the inputs and errors of dense layers.

    Its rows are those of the first sample's M examples, then of the second's. What they have of a layer's inputs is
    summed up first where samples share them, as they do those of the first layer: S times less work.

    Parameters
    ----------
    layers
        Inputs (T, M, in), with a last column of ones where the layers have biases, and errors (S, M, out) of S samples;
        T is 1 where they share the inputs, else S.
    bias
        Whether they have.
    """

    layers: Layers
    bias: bool

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        return self.layers[0][1][..., 0].numel()

    def total(self) -> Tensor:
        """Sum of the gradients, (D,)."""
        return torch.cat([self._flat(_sums(errors, inputs)) for inputs, errors in self.layers])

    def outer(self) -> Tensor:
        """G^T G, (D, D)."""
        blocks = [errors.unsqueeze(-1) * inputs.unsqueeze(-2) for inputs, errors in self.layers]
        matrix = torch.cat([self._flat(block.flatten(0, 1)) for block in blocks], dim=-1)
        return matrix.T @ matrix

    def gram(self) -> Tensor:
        """G G^T, (n, n)."""
        products = ([_gram(values) for values in layer] for layer in self.layers)
        return _total(inputs * errors for inputs, errors in products).view(self.rows, self.rows)

    def times(self, columns: Tensor) -> Tensor:
        """G V for V of shape (D, L): (n, L)."""
        sizes = [inputs.shape[-1] * errors.shape[-1] for inputs, errors in self.layers]
        parts = torch.split(columns.T, sizes, dim=1)
        products = []
        for part, (inputs, errors) in zip(parts, self.layers, strict=True):
            outputs = inputs.flatten(0, 1) @ self._blocks(part, errors.shape[-1]).mT
            products.append((outputs.reshape(-1, *inputs.shape[:2], errors.shape[-1]) * errors).sum(-1))
        return _total(products).flatten(1).T

    def combine(self, weights: Tensor) -> Tensor:
        """G^T W for W of shape (n, L): (D, L)."""
        shares = weights.T.reshape(-1, *self.layers[0][1].shape[:2], 1)
        return torch.cat([self._flat(_sums(shares * errors, inputs)) for inputs, errors in self.layers], dim=-1).T

    def squares(self) -> Tensor:
        """Sum of the squared gradients, (D,): the diagonal of G^T G."""
        blocks = [_sums(errors.square(), inputs.square()) for inputs, errors in self.layers]
        return torch.cat([self._flat(block) for block in blocks])

    def _flat(self, block: Tensor) -> Tensor:
        """Order a layer's entries, (..., out, in), as they are in theta."""
        if not self.bias:
            return block.flatten(-2)
        return torch.cat([block[..., :-1].flatten(-2), block[..., -1]], dim=-1)

    def _blocks(self, rows: Tensor, n_out: int) -> Tensor:
        """Undo `_flat`: (L, out * in) -> (L, out, in)."""
        if not self.bias:
            return rows.reshape(len(rows), n_out, -1)
        weights, bias = rows[:, :-n_out], rows[:, -n_out:]
        return torch.cat([weights.reshape(len(rows), n_out, -1), bias.unsqueeze(-1)], dim=-1)


def _sums(errors: Tensor, inputs: Tensor) -> Tensor:
    """Add up (error) (input)^T over samples and examples: errors (..., S, M, out) -> (..., out, in)."""
    if len(inputs) == 1:
        errors = errors.sum(-3, keepdim=True)
    return errors.flatten(-3, -2).mT @ inputs.flatten(0, 1)


def _gram(values: Tensor) -> Tensor:
    """Multiply all with all, (T, M, k) -> (T, M, T, M)."""
    rows = values.flatten(0, 1)
    return (rows @ rows.T).view(*values.shape[:2], *values.shape[:2])


def _total(terms: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, terms)
