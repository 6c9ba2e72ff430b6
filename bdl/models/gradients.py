"""Gradients of log p(y_i | x_i, theta), one an example, and the products of them that methods need.

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

from bdl.errors import InputError
from bdl.models.base import LayeredModel, Layers
from bdl.models.problem import Batch, Hyper, Problem


class ExampleGradients(Protocol):
    """The matrix G of gradients, (n, D), known by what it does."""

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
        """Sum over examples of the squared gradients, (D,)."""
        ...


@dataclass(frozen=True)
class DenseGradients:
    """G as a matrix.

    Parameters
    ----------
    matrix
        Shape (n, D).
    """

    matrix: Tensor

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
        """Sum over examples of the squared gradients, (D,)."""
        return self.matrix.square().sum(0)


@dataclass(frozen=True)
class OuterGradients:
    """G as the inputs and errors of dense layers.

    Parameters
    ----------
    layers
        Inputs (n, in), with a last column of ones where the layers have biases, and errors (n, out).
    bias
        Whether they have.
    """

    layers: Layers
    bias: bool

    def gram(self) -> Tensor:
        """G G^T, (n, n)."""
        return _total((inputs @ inputs.T) * (errors @ errors.T) for inputs, errors in self.layers)

    def times(self, columns: Tensor) -> Tensor:
        """G V for V of shape (D, L): (n, L)."""
        sizes = [inputs.shape[1] * errors.shape[1] for inputs, errors in self.layers]
        parts = torch.split(columns.T, sizes, dim=1)
        return _total(
            ((errors @ self._blocks(part, errors.shape[1])) * inputs).sum(-1).T
            for part, (inputs, errors) in zip(parts, self.layers, strict=True)
        )

    def combine(self, weights: Tensor) -> Tensor:
        """G^T W for W of shape (n, L): (D, L)."""
        blocks = [(weights.T.unsqueeze(-1) * errors).mT @ inputs for inputs, errors in self.layers]
        return torch.cat([self._flat(block) for block in blocks], dim=-1).T

    def squares(self) -> Tensor:
        """Sum over examples of the squared gradients, (D,)."""
        blocks = [errors.square().T @ inputs.square() for inputs, errors in self.layers]
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


def _total(terms: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, terms)


def gradient_matrix(problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
    """Differentiate each example's log-likelihood, for any model.

    Parameters
    ----------
    problem
        Model and likelihood.
    theta
        Parameters, (D,).
    batch, hyper
        As in `Problem.log_likelihoods`.

    Returns
    -------
    Tensor
        Shape (M, D), nats per unit of each parameter.

    Raises
    ------
    InputError
        If the model normalises by statistics of the minibatch: an example has no gradient of its own then.
    """
    if problem.buffers():
        raise InputError("under batch normalisation no example has a gradient of its own: use layer normalisation")

    def one(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        alone = batch._replace(x=x.unsqueeze(0), y=y.unsqueeze(0))
        return problem.log_likelihoods(theta, alone, hyper).squeeze(0)

    rows: Tensor = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(theta, batch.x, batch.y)
    return rows


def example_gradients(problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper) -> ExampleGradients:
    """Differentiate each example's log-likelihood at several parameter vectors.

    Parameters
    ----------
    problem
        Model and likelihood.
    theta
        Parameter vectors, (S, D); all see the whole minibatch.
    batch, hyper
        As in `Problem.log_likelihoods`.

    Returns
    -------
    ExampleGradients
        The n = S M gradients, those of the first parameter vector first. They are outer products if the model is
        a `LayeredModel`, and otherwise a matrix.
    """
    model = problem.model
    if not isinstance(model, LayeredModel):
        matrix = torch.func.vmap(lambda one: gradient_matrix(problem, one, batch, hyper))(theta)
        return DenseGradients(matrix.flatten(0, 1))
    stacked = torch.func.vmap(lambda one: problem.layers(one, batch, hyper))(theta)
    return OuterGradients(tuple((_rows(inputs, model.bias), _rows(errors)) for inputs, errors in stacked), model.bias)


def _rows(values: Tensor, ones: bool = False) -> Tensor:
    """Put the examples of all samples below one another, (S, M, k) -> (S M, k), and maybe append a column of ones."""
    rows = values.flatten(0, 1)
    return torch.cat([rows, torch.ones_like(rows[:, :1])], dim=1) if ones else rows
