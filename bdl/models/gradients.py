"""Gradients and curvature of log p(y_i | x_i, theta) by example, and products of their matrix.

A layer's weights have the gradient (error) (input)^T, an outer product, for each example
(Goodfellow 2015). For models of dense layers the n x D matrix G of all gradients is therefore
never formed: its products cost the same, its Gram matrix G G^T only O(n^2) per unit instead of per
weight, and the memory is that of the activations.
"""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.base import LayeredModel, Layers
from bdl.models.networks import LinearModel, with_ones
from bdl.models.problem import Batch, Hyper, Problem


@dataclass(frozen=True)
class DenseGradients:
    """A matrix G, (n, D), with G^T G = sum of g g^T over all gradients g.

    Its rows are the gradients, or stand for several each where those are multiples of one vector;
    `summed` is the sum of the gradients, (D,), then.
    """

    matrix: Tensor
    summed: Tensor | None = None

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        return len(self.matrix)

    def total(self) -> Tensor:
        """Sum the gradients, (D,)."""
        return self.matrix.sum(0) if self.summed is None else self.summed

    def outer(self) -> Tensor:
        """Compute G^T G, (D, D)."""
        return self.matrix.T @ self.matrix

    def gram(self) -> Tensor:
        """Compute G G^T, (n, n)."""
        return self.matrix @ self.matrix.T

    def times(self, columns: Tensor) -> Tensor:
        """Compute G V for V of shape (D, L): (n, L)."""
        return self.matrix @ columns

    def combine(self, weights: Tensor) -> Tensor:
        """Compute G^T W for W of shape (n, L): (D, L)."""
        return self.matrix.T @ weights

    def squares(self) -> Tensor:
        """Sum the squared gradients, (D,): the diagonal of G^T G."""
        return self.matrix.square().sum(0)


@dataclass(frozen=True)
class OuterGradients:
    """G as the inputs and errors of dense layers.

    Inputs are (T, M, in), with a last column of ones if the layers have a `bias`, and errors (S,
    M, out) of S samples; T is 1 where samples share the inputs, as in the first layer, else S.
    Rows are those of the first sample's M examples, then of the second's. Where samples share the
    inputs, their errors are summed first: S times less work.
    """

    layers: Layers
    bias: bool

    @property
    def rows(self) -> int:
        """Number of rows, n = S M."""
        return self.layers[0][1][..., 0].numel()

    def total(self) -> Tensor:
        """Sum the gradients, (D,)."""
        return torch.cat(
            [self._flat(_sum_outer_products(errors, inputs)) for inputs, errors in self.layers]
        )

    def outer(self) -> Tensor:
        """Compute G^T G, (D, D)."""
        blocks = [errors.unsqueeze(-1) * inputs.unsqueeze(-2) for inputs, errors in self.layers]
        matrix = torch.cat([self._flat(block.flatten(0, 1)) for block in blocks], dim=-1)
        return matrix.T @ matrix

    def gram(self) -> Tensor:
        """Compute G G^T, (n, n)."""
        # <e a^T, e' a'^T> = <e, e'> <a, a'>: no outer product is formed
        products = [_gram_matrix(inputs) * _gram_matrix(errors) for inputs, errors in self.layers]
        return reduce(torch.add, products).view(self.rows, self.rows)

    def times(self, columns: Tensor) -> Tensor:
        """Compute G V for V of shape (D, L): (n, L)."""
        sizes = [inputs.shape[-1] * errors.shape[-1] for inputs, errors in self.layers]
        columns_of_layers = torch.split(columns.T, sizes, dim=1)
        products = []
        for layer_columns, (inputs, errors) in zip(columns_of_layers, self.layers, strict=True):
            n_out = errors.shape[-1]
            outputs = inputs.flatten(0, 1) @ self._blocks(layer_columns, n_out).mT
            products.append((outputs.reshape(-1, *inputs.shape[:2], n_out) * errors).sum(-1))
        return reduce(torch.add, products).flatten(1).T

    def combine(self, weights: Tensor) -> Tensor:
        """Compute G^T W for W of shape (n, L): (D, L)."""
        shares = weights.T.reshape(-1, *self.layers[0][1].shape[:2], 1)
        return torch.cat(
            [
                self._flat(_sum_outer_products(shares * errors, inputs))
                for inputs, errors in self.layers
            ],
            dim=-1,
        ).T

    def squares(self) -> Tensor:
        """Sum the squared gradients, (D,)."""
        # The squared entries of (error) (input)^T are an outer product too, of the squares.
        blocks = [
            _sum_outer_products(errors.square(), inputs.square()) for inputs, errors in self.layers
        ]
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


ExampleGradients = DenseGradients | OuterGradients


def _sum_outer_products(errors: Tensor, inputs: Tensor) -> Tensor:
    """Sum (error) (input)^T over samples and examples: (..., S, M, out) -> (..., out, in)."""
    # Shared inputs: sum_s e_s a^T = (sum_s e_s) a^T, one product in place of S.
    if len(inputs) == 1:
        errors = errors.sum(-3, keepdim=True)
    return errors.flatten(-3, -2).mT @ inputs.flatten(0, 1)


def _gram_matrix(values: Tensor) -> Tensor:
    """Compute the inner products of all rows, (T, M, k) -> (T, M, T, M)."""
    rows = values.flatten(0, 1)
    return (rows @ rows.T).view(*values.shape[:2], *values.shape[:2])


def gradient_matrix(problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
    """Differentiate each example's log-likelihood, for any model, (M, D).

    The unit is nats per unit of each parameter. `InputError` if the model normalises by statistics
    of the minibatch: an example has no gradient of its own then.
    """
    if problem.buffers() or problem.recomputes:
        raise InputError(
            "under batch normalisation no example has a gradient of its own: "
            "use layer normalisation"
        )

    def log_likelihood_of_example(theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        example = batch._replace(x=x.unsqueeze(0), y=y.unsqueeze(0))
        return problem.log_likelihoods(theta, example, hyper).squeeze(0)

    gradient = torch.func.grad(log_likelihood_of_example)
    return torch.func.vmap(gradient, (None, 0, 0))(theta, batch.x, batch.y)


def example_gradients(
    problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper
) -> ExampleGradients:
    """Differentiate each example's log-likelihood at S parameter vectors (S, D): S M gradients.

    They are outer products if the model is a `LayeredModel`, those of the first parameter vector
    first, and otherwise a matrix; of one layer with one output, whose gradients e_si x_i share
    their inputs, the M rows (sum_s e_si^2)^1/2 x_i.
    """
    model = problem.model
    if is_single_output_layer(problem):
        inputs, f = _layer_outputs(problem, theta, batch)
        errors = _output_errors(problem, f, batch, hyper)
        return _sum_over_samples(inputs, errors, errors.square())
    if not isinstance(model, LayeredModel):

        def matrix_of_sample(theta: Tensor) -> Tensor:
            return gradient_matrix(problem, theta, batch, hyper)

        return DenseGradients(torch.func.vmap(matrix_of_sample)(theta).flatten(0, 1))

    def layers_of_sample(theta: Tensor) -> Layers:
        return problem.layers(theta, batch, hyper)

    (inputs, errors), *deeper_layers = torch.func.vmap(layers_of_sample)(theta)
    # every sample has the same inputs of the first layer, the minibatch
    layers = [(inputs[:1], errors), *deeper_layers]
    return OuterGradients(
        tuple((with_ones(inputs, model.bias), errors) for inputs, errors in layers), model.bias
    )


def example_hessians(
    problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper
) -> ExampleGradients:
    """Differentiate each example's log-likelihood twice at S parameter vectors (S, D).

    The model has to be as in `is_single_output_layer`. The result has the sum of the gradients as
    `total`, and G^T G = minus the sum of the Hessians, M rows, if the curvature of the likelihood
    in the output is its Fisher information, as it is for all shipped likelihoods of one output.
    """
    if not is_single_output_layer(problem):
        raise InputError(
            "Hessians of single examples need a linear model with one output: use curvature fisher"
        )
    inputs, f = _layer_outputs(problem, theta, batch)
    roots = problem.likelihood.root_fisher(f.reshape(-1, 1), hyper, batch.y_unit)
    return _sum_over_samples(
        inputs, _output_errors(problem, f, batch, hyper), roots.reshape(f.shape).square()
    )


def is_single_output_layer(problem: Problem) -> bool:
    """Return whether the model is one linear layer with one output.

    All gradients of an example are then multiples of its input.
    """
    return isinstance(problem.model, LinearModel) and problem.d_out == 1


def _layer_outputs(problem: Problem, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the inputs of a single layer with one output, (M, D), and its outputs, (S, M).

    Outputs are one product of matrices.
    """
    model = problem.model
    assert isinstance(model, LayeredModel), "one layer"
    inputs = with_ones(batch.x, model.bias)
    return inputs, theta @ inputs.T


def _output_errors(problem: Problem, f: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
    """Differentiate log p(y_i | f_si) by f_si: (S, M) -> (S, M)."""

    def value(f: Tensor) -> Tensor:
        y = batch.y.expand(f.shape).flatten()
        return problem.likelihood.log_prob(f.reshape(-1, 1), y, hyper, batch.y_unit).sum()

    return torch.func.grad(value)(f)


def _sum_over_samples(inputs: Tensor, errors: Tensor, weights: Tensor) -> DenseGradients:
    """Sum gradients over samples: inputs (M, D), errors and weights (S, M)."""
    # sum_s w_si x_i x_i^T is one outer product, of (sum_s w_si)^1/2 x_i; so M rows do for S M.
    return DenseGradients(weights.sum(0).sqrt().unsqueeze(1) * inputs, errors.sum(0) @ inputs)
