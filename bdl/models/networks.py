"""Linear models, multilayer perceptrons and single units as functions of a flat parameter vector.

The vector holds, layer by layer, the weight matrix (out x in, row-major) and then the bias, so the
bias of a linear regression is the last entry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Gt, MinLen
from torch import Tensor, nn

from bdl.models.base import LayeredModel, Layers


class Activation(NamedTuple):
    """A function of each unit, and its derivative in terms of the function's value."""

    module: type[nn.Module]
    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


ACTIVATIONS = {
    "relu": Activation(nn.ReLU, torch.relu, lambda out: out > 0),
    "tanh": Activation(nn.Tanh, torch.tanh, lambda out: 1 - out.square()),
    "sigmoid": Activation(nn.Sigmoid, torch.sigmoid, lambda out: out * (1 - out)),
    "softplus": Activation(nn.Softplus, F.softplus, lambda out: -torch.expm1(-out)),
}
"""Activation functions by their names in benchmark files."""


def with_ones(inputs: Tensor, bias: bool) -> Tensor:
    """Append the input 1 of a bias, if there is one: (..., in) -> (..., in + 1)."""
    return torch.cat([inputs, torch.ones_like(inputs[..., :1])], -1) if bias else inputs


@dataclass(frozen=True)
class Mlp(LayeredModel):
    """Multilayer perceptron with a linear output layer.

    Parameters
    ----------
    hidden
        Units of each hidden layer, from the input upwards.
    activation
        Function of the hidden units.
    """

    hidden: Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)] = (50,)
    activation: Literal["relu", "tanh", "sigmoid", "softplus"] = "relu"

    bias = True

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        return (d_in, *self.hidden, d_out)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        return self._forward(theta, x, d_out)[-1]

    def backpropagate(
        self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]
    ) -> Layers:
        derivative = ACTIVATIONS[self.activation].derivative
        weights, inputs, f = self._forward(theta, x, d_out)
        errors = [error(f)]
        for weight, values in zip(reversed(weights[1:]), reversed(inputs[1:]), strict=True):
            errors.append(errors[-1] @ weight * derivative(values))
        return tuple(zip(inputs, reversed(errors), strict=True))

    def _forward(
        self, theta: Tensor, x: Tensor, d_out: int
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return weights and inputs of each layer, and the outputs."""
        widths = self.widths(x.shape[-1], d_out)
        sizes = list[int]()
        for n_in, n_out in pairwise(widths):
            sizes += [n_out * n_in, n_out]
        # `split` rather than slices: its derivative is one concatenation, not a sum of padded
        # vectors
        vectors = iter(torch.split(theta, sizes))
        weights, inputs = list[Tensor](), list[Tensor]()
        for layer, (n_in, n_out) in enumerate(pairwise(widths)):
            weights.append(next(vectors).view(n_out, n_in))
            inputs.append(x)
            x = x @ weights[-1].T + next(vectors)
            if layer < len(self.hidden):
                x = ACTIVATIONS[self.activation].function(x)
        return weights, inputs, x


@dataclass(frozen=True)
class LinearModel(LayeredModel):
    """Affine map, or linear map if `bias` is false.

    Parameters
    ----------
    bias
        Whether there is a bias.
    """

    bias: bool = True

    def design(self, x: Tensor) -> Tensor:
        """Return the matrix X of a single output X theta, (M, d_in + 1), or (M, d_in)."""
        return with_ones(x, self.bias)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        size = d_out * x.shape[-1]
        weight, bias = torch.split(theta, [size, theta.shape[-1] - size])
        output = x @ weight.view(d_out, -1).T
        return output + bias if self.bias else output

    def backpropagate(
        self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]
    ) -> Layers:
        return ((x, error(self(theta, x, d_out))),)


@dataclass(frozen=True)
class Unit(LayeredModel):
    """f(x . w) for each output, without a bias, as in the simulations of Mata (2018).

    Parameters
    ----------
    activation
        The function f.
    """

    activation: Literal["relu", "tanh", "sigmoid", "softplus"] = "tanh"

    bias = False
    _linear: ClassVar[LinearModel] = LinearModel(bias=False)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        return ACTIVATIONS[self.activation].function(self._linear(theta, x, d_out))

    def backpropagate(
        self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]
    ) -> Layers:
        f = self(theta, x, d_out)
        return ((x, error(f) * ACTIVATIONS[self.activation].derivative(f)),)
