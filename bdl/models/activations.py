"""Activation functions of hidden units, and their derivatives."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Activation(NamedTuple):
    """A function of each unit and its derivative."""

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
    "relu": Activation(torch.relu, lambda out: out > 0),
    "tanh": Activation(torch.tanh, lambda out: 1 - out.square()),
    "sigmoid": Activation(torch.sigmoid, lambda out: out * (1 - out)),
    "softplus": Activation(F.softplus, lambda out: -torch.expm1(-out)),
    "gelu": Activation(F.gelu, _gelu_derivative, of_output=False),
    "silu": Activation(F.silu, _silu_derivative, of_output=False),
}
"""By the name that a benchmark file gives."""
