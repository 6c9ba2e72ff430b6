"""Contracts of models, functions of one flat parameter vector, and the layout of that vector."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn, Protocol, runtime_checkable

import torch
from torch import Tensor

from bdl.errors import InputError


class Model(Protocol):
    """Contract of a model: a frozen dataclass whose fields are its YAML settings."""

    def dim(self, d_in: int, d_out: int) -> int:
        """Count the parameters, D."""
        ...

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        """Mark the biases: a boolean vector of shape (D,)."""
        ...

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        """Return parameters to start training from, (D,), made of standard-normal noise, (D,)."""
        ...

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        """Map parameters (D,) and inputs (M, d_in) to outputs (M, d_out), as in training."""
        ...


@dataclass(frozen=True)
class NoModel:
    """Placeholder, without parameters, in an entry whose method brings its own model."""

    def dim(self, d_in: int, d_out: int) -> int:
        return 0

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        return torch.zeros(0, dtype=torch.bool)

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        return noise

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> NoReturn:
        raise InputError(
            "the entry names no model: give it one, such as {name: mlp, hidden: [50]}"
        )


Layers = tuple[tuple[Tensor, Tensor], ...]


@runtime_checkable
class LayeredModel(Model, Protocol):
    """A model of dense layers.

    In theta each layer has its weights (out x in, row-major) and then its bias, if there is one.
    """

    @property
    def bias(self) -> bool:
        """Whether the layers have biases."""
        ...

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        """Count the inputs, the units of each hidden layer and the outputs."""
        return (d_in, d_out)

    def dim(self, d_in: int, d_out: int) -> int:
        return sum(
            n_out * (n_in + self.bias) for n_in, n_out in pairwise(self.widths(d_in, d_out))
        )

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        layers = pairwise(self.widths(d_in, d_out))
        return torch.cat(
            [torch.arange(n_out * (n_in + self.bias)) >= n_out * n_in for n_in, n_out in layers]
        )

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        """Start at weights noise / sqrt(inputs of their layer) and biases of 0: (D,) -> (D,)."""
        factors = list[Tensor]()
        for n_in, n_out in pairwise(self.widths(d_in, d_out)):
            factors.append(torch.full((n_out * n_in,), n_in**-0.5))
            factors.append(torch.zeros(n_out * self.bias))
        return noise * torch.cat(factors).to(noise)

    def backpropagate(
        self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]
    ) -> Layers:
        """Return each layer's inputs (M, in) and errors (M, out), from the first layer on.

        `error` maps the outputs (M, d_out) to the derivative of each example's value by its own
        outputs; a layer's errors are the derivative by the outputs of the layer before any
        activation function.
        """
        ...


@runtime_checkable
class BufferedModel(Model, Protocol):
    """A model whose predictions need running statistics, which training gathers."""

    def buffers(self, d_in: int, d_out: int) -> dict[str, Tensor]:
        """Return the statistics before training, by name; empty if the model gathers none."""
        ...

    def predict(
        self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]
    ) -> Tensor:
        """Map parameters, inputs and gathered statistics to outputs, (M, d_out), row by row."""
        ...

    def track(
        self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the statistics after one more minibatch of inputs, (M, d_in)."""
        ...

    def widest(self, d_in: int, d_out: int) -> int:
        """Count the outputs of the widest layer for one row."""
        ...


@runtime_checkable
class RecomputingModel(Model, Protocol):
    """A model whose predictions may need statistics of the training rows for each theta."""

    @property
    def recomputes(self) -> bool:
        """Whether predictions need these statistics."""
        ...

    def recompute_statistics(self, theta: Tensor, x: Tensor, d_out: int) -> dict[str, Tensor]:
        """Compute the statistics by name, from parameters and training inputs, (n, d_in)."""
        ...


@dataclass(frozen=True)
class Layout:
    """Layer and units of each parameter, for priors and methods; properties are not cached."""

    model: Model
    d_in: int
    d_out: int

    @property
    def dim(self) -> int:
        """Number of parameters, D."""
        return self.model.dim(self.d_in, self.d_out)

    @property
    def biases(self) -> Tensor:
        """Mask of the biases, bool, (D,)."""
        return self.model.bias_mask(self.d_in, self.d_out)

    @property
    def last_layer(self) -> tuple[int, int, bool]:
        """Inputs and outputs of the last layer, and whether it has biases.

        Its parameters are the last ones.
        """
        describe_last_layer: Callable[[int, int], tuple[int, int, bool]] | None = getattr(
            self.model, "last_layer", None
        )
        if describe_last_layer is not None:
            return describe_last_layer(self.d_in, self.d_out)
        n_in, n_out = self.widths[-2:]
        return n_in, n_out, self.layered.bias

    @property
    def n_layers(self) -> int:
        """Number of dense layers."""
        return len(self.widths) - 1

    @property
    def n_units(self) -> int:
        """Number of inputs and hidden units.

        For a model that is not dense throughout, the number of inputs of its last layer.
        """
        if not isinstance(self.model, LayeredModel):
            return self.last_layer[0]
        return sum(self.widths[:-1])

    @property
    def layers(self) -> Tensor:
        """Layer of each weight, counted from 0; `n_layers` for a bias. Integers, (D,)."""
        sizes = [n_in * n_out for n_in, n_out in pairwise(self.widths)]
        return self._with_biases(
            [torch.full((size,), layer) for layer, size in enumerate(sizes)], self.n_layers
        )

    @property
    def units(self) -> Tensor:
        """Unit that each weight leaves, inputs first; `n_units` for a bias, or for no unit.

        Integers, (D,).
        """
        if not isinstance(self.model, LayeredModel):
            n_in, n_out, bias = self.last_layer
            units, end = torch.full((self.dim,), n_in), self.dim - n_out * bias
            units[end - n_in * n_out : end] = torch.arange(n_in).repeat(n_out)
            return units
        layers, first_unit = list[Tensor](), 0
        for n_in, n_out in pairwise(self.widths):
            layers.append(torch.arange(first_unit, first_unit + n_in).repeat(n_out))
            first_unit += n_in
        return self._with_biases(layers, self.n_units)

    @property
    def n_target_units(self) -> int:
        """Number of hidden units and outputs."""
        return sum(self.widths[1:])

    @property
    def target_units(self) -> Tensor:
        """Unit that each weight enters, hidden units first; `n_target_units` for a bias.

        Integers, (D,).
        """
        layers, first_unit = list[Tensor](), 0
        for n_in, n_out in pairwise(self.widths):
            layers.append(torch.arange(first_unit, first_unit + n_out).repeat_interleave(n_in))
            first_unit += n_out
        return self._with_biases(layers, self.n_target_units)

    def _with_biases(self, weights: list[Tensor], value: int) -> Tensor:
        """Append `value` for each layer's biases to the values of its weights, and concatenate."""
        values = list[Tensor]()
        for layer_weights, n_out in zip(weights, self.widths[1:], strict=True):
            n_biases = n_out * self.layered.bias
            values += [layer_weights, torch.full((n_biases,), value)]
        return torch.cat(values)

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of inputs, of units of each hidden layer and of outputs."""
        return self.layered.widths(self.d_in, self.d_out)

    @property
    def layered(self) -> LayeredModel:
        """The model; `InputError` if it is not made of dense layers."""
        if not isinstance(self.model, LayeredModel):
            raise InputError(
                f"model {type(self.model).__name__} is not made of dense layers: use linear or mlp"
            )
        return self.model
