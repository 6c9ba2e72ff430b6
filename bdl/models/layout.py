"""Where the entries of a flat parameter vector stand in a model."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.models.base import LayeredModel, Model


@dataclass(frozen=True)
class Layout:
    """What a prior, or a method, may ask about each parameter; computed when it is asked for.

    Parameters
    ----------
    model
        The model.
    d_in, d_out
        Numbers of inputs and outputs.
    """

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
        own: Callable[[int, int], tuple[int, int, bool]] | None = getattr(self.model, "last_layer", None)
        if own is not None:
            return own(self.d_in, self.d_out)
        return *self._widths()[-2:], self._layered().bias  # type: ignore[return-value]

    @property
    def n_layers(self) -> int:
        """Number of dense layers."""
        return len(self._widths()) - 1

    @property
    def n_units(self) -> int:
        """Number of inputs and hidden units; of a model that is not dense throughout, of inputs of its last layer."""
        return sum(self._widths()[:-1]) if isinstance(self.model, LayeredModel) else self.last_layer[0]

    @property
    def layers(self) -> Tensor:
        """Layer of each weight, counted from 0; `n_layers` for a bias. Integers, (D,)."""
        sizes = [n_in * n_out for n_in, n_out in pairwise(self._widths())]
        return self._with_biases([torch.full((size,), layer) for layer, size in enumerate(sizes)], self.n_layers)

    @property
    def units(self) -> Tensor:
        """Unit that each weight leaves, inputs first; `n_units` for a bias, or for no unit. Integers, (D,)."""
        if not isinstance(self.model, LayeredModel):
            n_in, n_out, bias = self.last_layer
            units, end = torch.full((self.dim,), n_in), self.dim - n_out * bias
            units[end - n_in * n_out : end] = torch.arange(n_in).repeat(n_out)
            return units
        parts, first = [], 0
        for n_in, n_out in pairwise(self._widths()):
            parts.append(torch.arange(first, first + n_in).repeat(n_out))
            first += n_in
        return self._with_biases(parts, self.n_units)

    @property
    def n_entered(self) -> int:
        """Number of hidden units and outputs."""
        return sum(self._widths()[1:])

    @property
    def entered(self) -> Tensor:
        """Unit that each weight enters, hidden units first; `n_entered` for a bias. Integers, (D,)."""
        parts, first = [], 0
        for n_in, n_out in pairwise(self._widths()):
            parts.append(torch.arange(first, first + n_out).repeat_interleave(n_in))
            first += n_out
        return self._with_biases(parts, self.n_entered)

    def _with_biases(self, weights: list[Tensor], value: int) -> Tensor:
        """Put a value for each layer's biases behind those of its weights."""
        outputs = [n_out * self._layered().bias for n_out in self._widths()[1:]]
        return torch.cat([p for part, n in zip(weights, outputs, strict=True) for p in (part, torch.full((n,), value))])

    def _widths(self) -> tuple[int, ...]:
        return self._layered().widths(self.d_in, self.d_out)

    def _layered(self) -> LayeredModel:
        if not isinstance(self.model, LayeredModel):
            raise InputError(f"model {type(self.model).__name__} is not made of dense layers: use linear or mlp")
        return self.model
