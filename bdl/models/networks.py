"""Linear models, multilayer perceptrons and single units as functions of a flat parameter vector.

The vector holds, layer by layer, the weight matrix (out x in, row-major) and then the bias, so the bias of
a linear regression is the last entry.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from annotated_types import Gt, MinLen
from torch import Tensor, nn

from bdl.models.base import Layers


class Activation(NamedTuple):
    """A function of each unit and its derivative."""

    module: type[nn.Module]
    function: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]
    """In terms of what the function gave, or of what it was given."""
    of_output: bool = True
    """Which of both the derivative reads: with the first, nothing else needs to be kept for it."""


def _gelu_derivative(x: Tensor) -> Tensor:
    below: Tensor = torch.special.ndtr(x)
    return below + x * (-0.5 * x.square()).exp() / math.sqrt(2 * math.pi)


def _silu_derivative(x: Tensor) -> Tensor:
    gate = torch.sigmoid(x)
    return gate * (1 + x * (1 - gate))


ACTIVATIONS = {
    "relu": Activation(nn.ReLU, torch.relu, lambda out: out > 0),
    "tanh": Activation(nn.Tanh, torch.tanh, lambda out: 1 - out.square()),
    "sigmoid": Activation(nn.Sigmoid, torch.sigmoid, lambda out: out * (1 - out)),
    "softplus": Activation(nn.Softplus, F.softplus, lambda out: -torch.expm1(-out)),
    "gelu": Activation(nn.GELU, F.gelu, _gelu_derivative, of_output=False),
    "silu": Activation(nn.SiLU, F.silu, _silu_derivative, of_output=False),
}
"""By the name that a benchmark file gives."""


def with_ones(inputs: Tensor, bias: bool) -> Tensor:
    """Append the input 1 of a bias, if there is one: (..., in) -> (..., in + 1)."""
    return torch.cat([inputs, torch.ones_like(inputs[..., :1])], -1) if bias else inputs


class _Dense:
    """What models of dense layers share."""

    bias: bool

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        return (d_in, d_out)

    def dim(self, d_in: int, d_out: int) -> int:
        return sum(n_out * (n_in + self.bias) for n_in, n_out in pairwise(self.widths(d_in, d_out)))

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        layers = pairwise(self.widths(d_in, d_out))
        return torch.cat([torch.arange(n_out * (n_in + self.bias)) >= n_out * n_in for n_in, n_out in layers])

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        """Start at weights noise / sqrt(inputs of their layer) and biases of 0: (D,) -> (D,)."""
        factors = [
            factor
            for n_in, n_out in pairwise(self.widths(d_in, d_out))
            for factor in (torch.full((n_out * n_in,), n_in**-0.5), torch.zeros(n_out * self.bias))
        ]
        return noise * torch.cat(factors).to(noise)


@dataclass(frozen=True)
class Mlp(_Dense):
    """Multilayer perceptron with a linear output layer.

    Parameters
    ----------
    hidden
        Units of each hidden layer, from the input upwards.
    activation
        Function of the hidden units; gelu is the exact one, x Phi(x).
    """

    hidden: Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)] = (50,)
    activation: Literal["relu", "tanh", "sigmoid", "softplus", "gelu", "silu"] = "relu"

    bias = True

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        return (d_in, *self.hidden, d_out)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        return self._forward(theta, x, d_out)[-1]

    def backpropagate(self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]) -> Layers:
        derivative = ACTIVATIONS[self.activation].derivative
        weights, inputs, kept, f = self._forward(theta, x, d_out)
        errors = [error(f)]
        for weight, values in zip(reversed(weights[1:]), reversed(kept), strict=True):
            errors.append(errors[-1] @ weight * derivative(values))
        return tuple(zip(inputs, reversed(errors), strict=True))

    def _forward(self, theta: Tensor, x: Tensor, d_out: int) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
        """Return weights and inputs of each layer, what derivatives of hidden units read, and the outputs."""
        activation = ACTIVATIONS[self.activation]
        widths = self.widths(x.shape[-1], d_out)
        # `split` rather than slices: its derivative is one concatenation, not a sum of padded vectors
        sizes = [size for n_in, n_out in pairwise(widths) for size in (n_out * n_in, n_out)]
        parts = iter(torch.split(theta, sizes))
        weights, inputs, kept = list[Tensor](), list[Tensor](), list[Tensor]()
        for layer, (n_in, n_out) in enumerate(pairwise(widths)):
            weights.append(next(parts).view(n_out, n_in))
            inputs.append(x)
            x = before = x @ weights[-1].T + next(parts)
            if layer < len(self.hidden):
                x = activation.function(before)
                kept.append(x if activation.of_output else before)
        return weights, inputs, kept, x


@dataclass(frozen=True)
class Linear(_Dense):
    """Affine map, or linear map if `bias` is false.

    Parameters
    ----------
    bias
        Whether there is a bias.
    """

    bias: bool = True

    def design(self, x: Tensor) -> Tensor:
        """Return the matrix X of a single output X theta: inputs (M, d_in) -> (M, d_in + 1), or (M, d_in)."""
        return with_ones(x, self.bias)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        size = d_out * x.shape[-1]
        weight, bias = torch.split(theta, [size, theta.shape[-1] - size])
        output = x @ weight.view(d_out, -1).T
        return output + bias if self.bias else output

    def backpropagate(self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]) -> Layers:
        return ((x, error(self(theta, x, d_out))),)


@dataclass(frozen=True)
class Unit(_Dense):
    """f(x . w) for each output, without a bias, as the simulations of Mata (2018) have it.

    Parameters
    ----------
    activation
        The function f.
    """

    activation: Literal["relu", "tanh", "sigmoid", "softplus", "gelu", "silu"] = "tanh"

    bias = False
    _linear: ClassVar[Linear] = Linear(bias=False)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        return ACTIVATIONS[self.activation].function(self._linear(theta, x, d_out))

    def backpropagate(self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]) -> Layers:
        activation, before = ACTIVATIONS[self.activation], self._linear(theta, x, d_out)
        f = activation.function(before)
        return ((x, error(f) * activation.derivative(f if activation.of_output else before)),)
