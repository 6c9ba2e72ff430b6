"""What a model must say about itself, a function of one flat parameter vector, and where the entries of that stand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn, Protocol, runtime_checkable

import torch
from torch import Tensor

from bdl.errors import InputError


class Model(Protocol):
    """What a model must say about itself.

    A frozen dataclass whose fields are its YAML settings.
    """

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
    """A model of dense layers, each with its weights (out x in, row-major) and then its bias, if any, in theta."""

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
        factors = [
            factor
            for n_in, n_out in pairwise(self.widths(d_in, d_out))
            for factor in (torch.full((n_out * n_in,), n_in**-0.5), torch.zeros(n_out * self.bias))
        ]
        return noise * torch.cat(factors).to(noise)

    def backpropagate(
        self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]
    ) -> Layers:
        """Return each layer's inputs (M, in) and errors (M, out), from the first layer on.

        `error` maps the outputs (M, d_out) to the derivative of each example's value by its own
        outputs; a layer's errors are the derivative by what the layer puts out, before any
        activation function.
        """
        ...


@runtime_checkable
class BufferedModel(Model, Protocol):
    """A model whose predictions need more than parameters: running statistics that training gathers."""

    def buffers(self, d_in: int, d_out: int) -> dict[str, Tensor]:
        """Return the statistics before training, by name.

        None of them if the model gathers none.
        """
        ...

    def predict(
        self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]
    ) -> Tensor:
        """Map parameters, inputs and gathered statistics to outputs, (M, d_out): no row depends on the others."""
        ...

    def track(
        self, theta: Tensor, x: Tensor, d_out: int, buffers: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
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


@dataclass(frozen=True)
class Layout:
    """What a prior, or a method, may ask about each parameter; computed when it is asked for."""

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
        """Inputs and outputs of the last layer, whose parameters are the last ones, and whether it has biases."""
        own: Callable[[int, int], tuple[int, int, bool]] | None = getattr(
            self.model, "last_layer", None
        )
        if own is not None:
            return own(self.d_in, self.d_out)
        return *self.widths[-2:], self.layered.bias  # type: ignore[return-value]

    @property
    def n_layers(self) -> int:
        """Number of dense layers."""
        return len(self.widths) - 1

    @property
    def n_units(self) -> int:
        """Number of inputs and hidden units.

        Of a model that is not dense throughout, of inputs of its last layer.
        """
        return (
            sum(self.widths[:-1]) if isinstance(self.model, LayeredModel) else self.last_layer[0]
        )

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
        parts, first = [], 0
        for n_in, n_out in pairwise(self.widths):
            parts.append(torch.arange(first, first + n_in).repeat(n_out))
            first += n_in
        return self._with_biases(parts, self.n_units)

    @property
    def n_entered(self) -> int:
        """Number of hidden units and outputs."""
        return sum(self.widths[1:])

    @property
    def entered(self) -> Tensor:
        """Unit that each weight enters, hidden units first; `n_entered` for a bias.

        Integers, (D,).
        """
        parts, first = [], 0
        for n_in, n_out in pairwise(self.widths):
            parts.append(torch.arange(first, first + n_out).repeat_interleave(n_in))
            first += n_out
        return self._with_biases(parts, self.n_entered)

    def _with_biases(self, weights: list[Tensor], value: int) -> Tensor:
        """Put a value for each layer's biases behind those of its weights."""
        outputs = [n_out * self.layered.bias for n_out in self.widths[1:]]
        return torch.cat(
            [
                p
                for part, n in zip(weights, outputs, strict=True)
                for p in (part, torch.full((n,), value))
            ]
        )

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
