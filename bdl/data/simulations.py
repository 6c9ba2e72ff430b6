"""Simulated problems of the thesis on noisy optimisers (Mata 2018, section 4.1), a new draw for every split.

A draw seeds NumPy's generator with its number and takes the teacher's weights, then row by row inputs and noise, the
test rows first: draws of other sizes have the same teacher, the same test rows and the same first rows. The thesis
prints neither numbers of test rows nor seeds; what is chosen here are defaults.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt

from bdl.data.dataset import Dataset, Task
from bdl.data.teachers import Array, joined

_DRAWS, _TESTED = 10, 1000


@dataclass(frozen=True)
class UnitTeacher:
    """y = f(x . w) + noise with 100 weights N(0, 1/25), inputs N(2, 4), by variance; 1000 rows test.

    Parameters
    ----------
    rows
        Rows that train.
    activation
        The function f: ``"identity"`` or ``"tanh"``.
    snr
        Signal-to-noise ratio: the variance of f(x . w) over the draw's rows, over that of the noise; null for noise of
        variance 3.
    """

    rows: Annotated[int, Gt(0)] = 1000
    activation: Literal["identity", "tanh"] = "identity"
    snr: Annotated[float, Gt(0)] | None = None

    def __call__(self) -> Dataset:
        """Draw the rows."""
        return _joined("teacher_unit", self.rows, [self._draw(index) for index in range(_DRAWS)])

    def _draw(self, index: int) -> tuple[Array, Array]:
        generator = np.random.default_rng(index)
        weights = generator.normal(0, 0.2, 100)
        drawn = generator.normal(size=(_TESTED + self.rows, 101))
        x = 2 + 2 * drawn[:, :100]
        f = x @ weights if self.activation == "identity" else np.tanh(x @ weights)
        variance = 3.0 if self.snr is None else f.var() / self.snr
        return x, f + drawn[:, 100] * variance**0.5


@dataclass(frozen=True)
class NetworkTeacher:
    """y = f(x) + N(0, 1) with a network of 200 sigmoid units, all weights and 200 inputs N(0, 1), no biases.

    220 rows train, as the thesis draws, and 1000 test.
    """

    def __call__(self) -> Dataset:
        """Draw the rows."""
        return _joined("teacher_network", 220, [self._draw(index) for index in range(_DRAWS)])

    def _draw(self, index: int) -> tuple[Array, Array]:
        generator = np.random.default_rng(index)
        hidden, last = generator.normal(size=(200, 200)), generator.normal(size=200)
        drawn = generator.normal(size=(_TESTED + 220, 201))
        x = drawn[:, :200]
        return x, last @ (1 / (1 + np.exp(-hidden @ x.T))) + drawn[:, 200]


@dataclass(frozen=True)
class Waves:
    """y = x + 0.3 sin(2 pi (x + e)) + 0.3 sin(4 pi (x + e)) + e, the same e in all places.

    200 rows train, with x uniform on [0, 0.5], and 1000 test, uniform on [-0.5, 1]; the thesis prints neither.

    Parameters
    ----------
    variance
        Of e ~ N(0, variance). The thesis prints N(0, 0.02), where its other problems have variances; with 0.0004, the
        square, the curve looks like the printed one.
    """

    variance: Annotated[float, Gt(0)] = 0.02

    def __call__(self) -> Dataset:
        """Draw the rows."""
        return _joined("waves", 200, [self._draw(index) for index in range(_DRAWS)])

    def _draw(self, index: int) -> tuple[Array, Array]:
        generator = np.random.default_rng(index)
        x = np.concatenate([generator.uniform(-0.5, 1, _TESTED), generator.uniform(0, 0.5, 200)])
        e = generator.normal(0, self.variance**0.5, len(x))
        return x[:, None], x + 0.3 * np.sin(2 * np.pi * (x + e)) + 0.3 * np.sin(4 * np.pi * (x + e)) + e


@dataclass(frozen=True)
class OverlappingClasses:
    """Two classes alike in size on one input, uniform on [0, 0.6] and on [0.4, 1]: nothing tells them apart between.

    200 rows train and 1000 test.
    """

    def __call__(self) -> Dataset:
        """Draw the rows."""
        draws = [self._draw(index) for index in range(_DRAWS)]
        return _joined("overlapping_classes", 200, draws, "classification")

    def _draw(self, index: int) -> tuple[Array, Array]:
        generator = np.random.default_rng(index)
        labels = generator.integers(0, 2, _TESTED + 200).astype(np.float64)
        return (0.4 * labels + generator.uniform(0, 0.6, len(labels)))[:, None], labels


def _joined(name: str, train: int, draws: list[tuple[Array, Array]], task: Task = "regression") -> Dataset:
    """Put the test rows, which are drawn first, behind those that train."""
    rolled = [(np.roll(x, -_TESTED, axis=0), np.roll(y, -_TESTED)) for x, y in draws]
    return joined(name, train, rolled, task)
