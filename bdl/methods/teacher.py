"""The true weights, where a data set has a known teacher: nothing is learnt.

In a table they stand next to those that methods learn, as the "true weights" of Tables 4.4 and 4.5
of the thesis on noisy optimisers (Mata 2018).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from bdl.data.teachers import SparseLinear, SparseNetwork
from bdl.errors import InputError
from bdl.methods.base import Direct
from bdl.models.base import LayeredModel
from bdl.models.problem import Hyper, Problem
from bdl.posteriors import Point
from bdl.posteriors.kronecker import from_blocks
from bdl.types import Array

TEACHERS: dict[str, Callable[[], SparseLinear | SparseNetwork]] = {
    "sparse_linear": SparseLinear,
    "sparse_network": SparseNetwork,
    "sparse_network_sigmoid": partial(SparseNetwork, activation="sigmoid"),
}
_SAME = 1e-9
"""Largest difference of targets, in standard deviations, that rounding may leave between a draw
and its rows.
"""


@dataclass(frozen=True)
class Teacher(Direct):
    """Settings of the look-up of the weights.

    Parameters
    ----------
    data
        The data set that the rows are a draw of.
    """

    data: Literal["sparse_linear", "sparse_network", "sparse_network_sigmoid"] = "sparse_linear"

    deterministic: ClassVar[bool] = True

    def check(self, problem: Problem) -> None:
        layers = self._layers(0)
        widths = (layers[0].shape[1], *(len(layer) for layer in layers))
        model = problem.model
        if (
            not isinstance(model, LayeredModel)
            or model.widths(problem.d_in, problem.d_out) != widths
        ):
            layers_text = "-".join(map(str, widths))
            raise InputError(
                f"the teacher of {self.data} has the layers {layers_text}: "
                "give a linear or mlp model of them"
            )

    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper, seed: int = 0) -> Point:
        """Return the weights, in the scale in which the model sees inputs and targets.

        `InputError` if the training rows are not those of a draw.
        """
        data = TEACHERS[self.data]()()
        for index in range(data.splits or 0):
            rows = data.split(index).train
            raw_x, raw_y = (torch.from_numpy(array[rows]).to(x) for array in (data.x, data.y))
            if len(rows) == len(y) and (_standard(raw_y) - _standard(y)).abs().max() < _SAME:
                return Point(self._to_parameters(index, problem, (raw_x, raw_y), (x, y)))
        raise InputError(
            f"teacher: the training rows are no draw of {self.data}; "
            "use it on that data set, uncut"
        )

    def _layers(self, index: int) -> list[Array]:
        """Return the weights of a draw, layer by layer, (out, in)."""
        weights = TEACHERS[self.data]().weights(index)
        return [weights[None]] if isinstance(weights, np.ndarray) else list(weights)

    def _to_parameters(
        self,
        index: int,
        problem: Problem,
        raw: tuple[Tensor, Tensor],
        scaled: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Rescale a draw's weights to the inputs and targets that the model sees.

        Raw inputs are a x + b of those, and raw targets c y + d.
        """
        (a, b), (c, d) = (_affine(*pair) for pair in zip(raw, scaled, strict=True))
        layers = [torch.from_numpy(layer).to(a) for layer in self._layers(index)]
        biases = [torch.zeros_like(layer[:, 0]) for layer in layers]
        layers[0], biases[0] = layers[0] * a, layers[0] @ b
        layers[-1], biases[-1] = layers[-1] / c, (biases[-1] - d) / c
        model = problem.model
        assert isinstance(model, LayeredModel), "checked"
        blocks = layers
        if model.bias:
            blocks = [
                torch.cat([layer, bias.unsqueeze(1)], 1)
                for layer, bias in zip(layers, biases, strict=True)
            ]
        return from_blocks(blocks, model.widths(problem.d_in, problem.d_out))


def _affine(raw: Tensor, scaled: Tensor) -> tuple[Tensor, Tensor]:
    """Return factors and offsets of raw = factor * scaled + offset, column by column."""
    factor = raw.std(0) / scaled.std(0)
    return factor, raw.mean(0) - factor * scaled.mean(0)


def _standard(y: Tensor) -> Tensor:
    return (y - y.mean()) / y.std()
