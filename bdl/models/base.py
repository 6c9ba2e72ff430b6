"""What a model must say about itself: a function of one flat parameter vector, and more if it can."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol, runtime_checkable

import torch
from torch import Tensor

from bdl.errors import InputError


class Model(Protocol):
    """What a model must say about itself; a frozen dataclass whose fields are its YAML settings."""

    def dim(self, d_in: int, d_out: int) -> int:
        """Count the parameters, D."""
        ...

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        """Mark the biases: a boolean vector of shape (D,)."""
        ...

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        """Return the parameters that training may start from, (D,), made of standard-normal noise, (D,)."""
        ...

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        """Map parameters (D,) and inputs (M, d_in) to outputs (M, d_out), as in training."""
        ...


@dataclass(frozen=True)
class NoModel:
    """The place of a model in an entry whose method brings its own; without parameters."""

    def dim(self, d_in: int, d_out: int) -> int:
        """Count no parameters."""
        return 0

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        """Mark no biases."""
        return torch.zeros(0, dtype=torch.bool)

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        """Return no parameters."""
        return noise

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> NoReturn:
        """Raise `InputError`."""
        raise InputError("the entry names no model: give it one, such as {name: mlp, hidden: [50]}")


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
        """Return each layer's inputs (M, in) and errors (M, out), from the first layer on.

        `error` maps the outputs (M, d_out) to the derivative of each example's value by its own outputs; a
        layer's errors are the derivative by what the layer puts out, before any activation function.
        """
        ...


@runtime_checkable
class BufferedModel(Model, Protocol):
    """A model whose predictions need more than parameters: running statistics that training gathers."""

    def buffers(self, d_in: int, d_out: int) -> dict[str, Tensor]:
        """Return the statistics before training, by name; none of them if the model gathers none."""
        ...

    def predict(self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]) -> Tensor:
        """Map parameters, inputs and gathered statistics to outputs, (M, d_out): no row depends on the others."""
        ...

    def track(self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the statistics after one more minibatch of inputs, (M, d_in)."""
        ...

    def widest(self, d_in: int, d_out: int) -> int:
        """Count the values that the widest layer puts out for one row."""
        ...


@runtime_checkable
class RecomputingModel(Model, Protocol):
    """A model whose predictions may need statistics of the training rows under the parameters themselves."""

    @property
    def recomputes(self) -> bool:
        """Whether they do."""
        ...

    def recomputed(self, theta: Tensor, x: Tensor, d_out: int) -> dict[str, Tensor]:
        """Return the statistics by name, from parameters and training inputs, (n, d_in)."""
        ...
