"""Linear models and multilayer perceptrons as functions of a flat parameter vector.

The vector holds, layer by layer, the weight matrix (out x in, row-major) and then the bias, so the bias of
a linear regression is the last entry.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Protocol, runtime_checkable

import torch
from annotated_types import Gt, MinLen
from torch import Tensor


class Model(Protocol):
    """What a model must say about itself; a frozen dataclass whose fields are its YAML settings."""

    def dim(self, d_in: int, d_out: int) -> int:
        """Count the parameters, D."""
        ...

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        """Mark the biases: a boolean vector of shape (D,)."""
        ...

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        """Map parameters (D,) and inputs (M, d_in) to outputs (M, d_out)."""
        ...


Layers = tuple[tuple[Tensor, Tensor], ...]


@runtime_checkable
class LayeredModel(Model, Protocol):
    """A model of dense layers, each with its weights (out x in, row-major) and then its bias, if any, in theta."""

    @property
    def bias(self) -> bool:
        """Whether the layers have biases."""
        ...

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        """Count the inputs, the units of each hidden layer and the outputs."""
        ...

    def backpropagate(self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]) -> Layers:
        """Give each layer's inputs (M, in) and errors (M, out), from the first layer on.

        `error` maps the outputs (M, d_out) to the derivative of each example's value by its own outputs; a
        layer's errors are the derivative by what the layer puts out, before any activation function.
        """
        ...


@dataclass(frozen=True)
class Mlp:
    """Multilayer perceptron with ReLU hidden layers and a linear output layer.

    Parameters
    ----------
    hidden
        Units of each hidden layer, from the input upwards.
    """

    hidden: Annotated[tuple[Annotated[int, Gt(0)], ...], MinLen(1)] = (50,)

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        """Count the inputs, the units of each hidden layer and the outputs."""
        return (d_in, *self.hidden, d_out)

    def dim(self, d_in: int, d_out: int) -> int:
        """Count the parameters: sum over layers of out * (in + 1)."""
        return sum(n_out * (n_in + 1) for n_in, n_out in pairwise(self.widths(d_in, d_out)))

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        """Mark the biases: a boolean vector of shape (D,)."""
        layers = [
            torch.arange(n_out * (n_in + 1)) >= n_out * n_in for n_in, n_out in pairwise(self.widths(d_in, d_out))
        ]
        return torch.cat(layers)

    @property
    def bias(self) -> bool:
        """Whether the layers have biases: they do."""
        return True

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        """Map parameters (D,) and inputs (M, d_in) to outputs (M, d_out)."""
        return self._forward(theta, x, d_out)[1][-1]

    def backpropagate(self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]) -> Layers:
        """Give each layer's inputs and errors; see `LayeredModel`."""
        weights, (*inputs, f) = self._forward(theta, x, d_out)
        errors = [error(f)]
        for weight, active in zip(reversed(weights[1:]), reversed(inputs[1:]), strict=True):
            errors.append(errors[-1] @ weight * (active > 0))
        return tuple(zip(inputs, reversed(errors), strict=True))

    def _forward(self, theta: Tensor, x: Tensor, d_out: int) -> tuple[list[Tensor], list[Tensor]]:
        """Give each layer's weights, and each layer's inputs followed by the outputs."""
        widths = self.widths(x.shape[-1], d_out)
        # `split` rather than slices: its derivative is one concatenation, not a sum of padded vectors
        sizes = [size for n_in, n_out in pairwise(widths) for size in (n_out * n_in, n_out)]
        parts = iter(torch.split(theta, sizes))
        weights, values = [], [x]
        for layer, (n_in, n_out) in enumerate(pairwise(widths)):
            weights.append(next(parts).view(n_out, n_in))
            x = x @ weights[-1].T + next(parts)
            x = torch.relu(x) if layer < len(self.hidden) else x
            values.append(x)
        return weights, values


@dataclass(frozen=True)
class Linear:
    """Affine map, or linear map if `bias` is false.

    Parameters
    ----------
    bias
        Whether there is a bias.
    """

    bias: bool = True

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        """Count the inputs and the outputs."""
        return (d_in, d_out)

    def dim(self, d_in: int, d_out: int) -> int:
        """Count the parameters: d_out * (d_in + 1), or d_out * d_in without a bias."""
        return d_out * (d_in + self.bias)

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        """Mark the biases: a boolean vector of shape (D,)."""
        return torch.arange(self.dim(d_in, d_out)) >= d_out * d_in

    def design(self, x: Tensor) -> Tensor:
        """Give the matrix X of a single output X theta: inputs (M, d_in) -> (M, d_in + 1), or (M, d_in)."""
        return torch.cat([x, torch.ones_like(x[:, : int(self.bias)])], dim=1)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        """Map parameters (D,) and inputs (M, d_in) to outputs (M, d_out)."""
        size = d_out * x.shape[-1]
        weight, bias = torch.split(theta, [size, theta.shape[-1] - size])
        output = x @ weight.view(d_out, -1).T
        return output + bias if self.bias else output

    def backpropagate(self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]) -> Layers:
        """Give the layer's inputs and errors; see `LayeredModel`."""
        return ((x, error(self(theta, x, d_out))),)
