"""A single unit: a linear map without a bias, and a function of what it gives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from bdl.models.activations import ACTIVATIONS
from bdl.models.base import Layers
from bdl.models.networks import Linear


@dataclass(frozen=True)
class Unit:
    """f(x . w) for each output, without a bias, as the simulations of Mata (2018) have it.

    Parameters
    ----------
    activation
        The function f.
    """

    activation: Literal["relu", "tanh", "sigmoid", "softplus", "gelu", "silu"] = "tanh"

    _linear: ClassVar[Linear] = Linear(bias=False)

    @property
    def bias(self) -> bool:
        """Whether there is a bias: there is none."""
        return False

    def widths(self, d_in: int, d_out: int) -> tuple[int, ...]:
        """Count the inputs and the outputs."""
        return (d_in, d_out)

    def dim(self, d_in: int, d_out: int) -> int:
        """Count the parameters: d_out * d_in."""
        return d_out * d_in

    def bias_mask(self, d_in: int, d_out: int) -> Tensor:
        """Mark no parameter: a boolean vector of shape (D,)."""
        return self._linear.bias_mask(d_in, d_out)

    def initial(self, noise: Tensor, d_in: int, d_out: int) -> Tensor:
        """Start at weights noise / sqrt(d_in): (D,) -> (D,)."""
        return self._linear.initial(noise, d_in, d_out)

    def __call__(self, theta: Tensor, x: Tensor, d_out: int) -> Tensor:
        """Map parameters (D,) and inputs (M, d_in) to outputs (M, d_out)."""
        return ACTIVATIONS[self.activation].function(self._linear(theta, x, d_out))

    def backpropagate(self, theta: Tensor, x: Tensor, d_out: int, error: Callable[[Tensor], Tensor]) -> Layers:
        """Return the layer's inputs and errors; see `LayeredModel`."""
        activation, before = ACTIVATIONS[self.activation], self._linear(theta, x, d_out)
        f = activation.function(before)
        return ((x, error(f) * activation.derivative(f if activation.of_output else before)),)
