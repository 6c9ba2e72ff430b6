"""Gradients and curvature of log p(y_i | x_i, theta), example by example, at samples of the parameters."""

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.base import LayeredModel
from bdl.models.problem import Batch, Hyper, Problem
from bdl.models.products import DenseGradients, ExampleGradients, OuterGradients


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
    if problem.buffers() or problem.recomputes:
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
        The S M gradients. They are outer products if the model is a `LayeredModel`, those of the first parameter vector
        first, and otherwise a matrix; of one layer with one output, whose gradients e_si x_i share their inputs, the M
        rows (sum_s e_si^2)^1/2 x_i.
    """
    model = problem.model
    if one_output(problem):
        inputs, f = _outputs(problem, theta, batch)
        errors = _errors(problem, f, batch, hyper)
        return _shared(inputs, errors, errors.square())
    if not isinstance(model, LayeredModel):
        matrix = torch.func.vmap(lambda one: gradient_matrix(problem, one, batch, hyper))(theta)
        return DenseGradients(matrix.flatten(0, 1))
    (inputs, errors), *others = torch.func.vmap(lambda one: problem.layers(one, batch, hyper))(theta)
    layers = [(inputs[:1], errors), *others]  # the minibatch itself enters the first layer, at every sample
    return OuterGradients(tuple((_with_ones(inputs, model.bias), errors) for inputs, errors in layers), model.bias)


def example_hessians(problem: Problem, theta: Tensor, batch: Batch, hyper: Hyper) -> ExampleGradients:
    """Differentiate each example's log-likelihood once and twice at several parameter vectors.

    Parameters
    ----------
    problem, theta, batch, hyper
        As in `example_gradients`; of one layer with one output, and a likelihood whose curvature in that output is its
        Fisher information: all that are here.

    Returns
    -------
    ExampleGradients
        With the sum of the gradients as `total`, and G^T G = minus the sum of the Hessians, M rows.

    Raises
    ------
    InputError
        If the model has several layers or outputs.
    """
    if not one_output(problem):
        raise InputError("Hessians of single examples need a linear model with one output: use curvature fisher")
    inputs, f = _outputs(problem, theta, batch)
    roots = problem.likelihood.root_fisher(f.reshape(-1, 1), hyper, batch.y_unit)
    return _shared(inputs, _errors(problem, f, batch, hyper), roots.reshape(f.shape).square())


def one_output(problem: Problem) -> bool:
    """Return whether the model is one layer with one output: all gradients of an example are multiples of it."""
    model = problem.model
    return (
        isinstance(model, LayeredModel) and len(model.widths(problem.d_in, problem.d_out)) == 2 and problem.d_out == 1
    )


def _outputs(problem: Problem, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the inputs of one layer with one output, (M, D), and its outputs, (S, M), as one product of matrices."""
    model = problem.model
    assert isinstance(model, LayeredModel), "one layer"
    inputs = _with_ones(batch.x, model.bias)
    return inputs, theta @ inputs.T


def _errors(problem: Problem, f: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
    """Differentiate log p(y_i | f_si) by f_si: (S, M) -> (S, M)."""

    def value(f: Tensor) -> Tensor:
        y = batch.y.expand(f.shape).flatten()
        return problem.likelihood.log_prob(f.reshape(-1, 1), y, hyper, batch.y_unit).sum()

    errors: Tensor = torch.func.grad(value)(f)
    return errors


def _shared(inputs: Tensor, errors: Tensor, weights: Tensor) -> DenseGradients:
    """Add up over samples what they have of each example: inputs (M, D), errors and weights (S, M)."""
    return DenseGradients(weights.sum(0).sqrt().unsqueeze(1) * inputs, errors.sum(0) @ inputs)


def _with_ones(values: Tensor, ones: bool) -> Tensor:
    return torch.cat([values, torch.ones_like(values[..., :1])], dim=-1) if ones else values
