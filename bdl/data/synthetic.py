"""Data drawn from a known model, a new draw for every split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.data.dataset import Dataset, Task
from bdl.data.splits import Split

Array = NDArray[np.float64]
_DRAWS = 10
_COVARIANCE = np.array([[1, 0.5], [0.5, 1]])
"""Of the inputs."""
_PRIOR_PRECISION, _NOISE_PRECISION = 0.01, 0.1


class Draw(NamedTuple):
    """Inputs, targets and the parameters that they were drawn with."""

    x: Array
    y: Array
    theta: Array


def synthetic() -> Dataset:
    """Ten draws of a linear regression with two parameters and 1000 rows; split i is draw i.

    x ~ N(0, [[1, 0.5], [0.5, 1]]), theta ~ N(0, I / 0.01), y ~ N(theta . x, 1 / 0.1), without a bias
    (Brownlie 2022, sections 4.4.2 and 5.2.1). Draw i seeds PyTorch's generator with i and takes x, theta and the
    noise in this order, single precision. All rows of a draw train; none test.
    """
    return _joined("synthetic", "regression", [_linear(seed) for seed in range(_DRAWS)])


def synthetic_logistic() -> Dataset:
    """Ten draws of a logistic regression with two parameters and 3000 rows; split i is draw i.

    x ~ N(0, [[1, 0.5], [0.5, 1]]), theta ~ N(0, I / 0.01), P(y = 1) = sigmoid(theta . x), without a bias. Draw i has
    the seed i + 1: x and theta come as in `synthetic`, and NumPy's legacy generator gives the labels, so that the
    first draw is that of the VIFA paper (2023, appendix B.2). All rows of a draw train; none test.
    """
    return _joined("synthetic_logistic", "classification", [_logistic(seed) for seed in range(1, _DRAWS + 1)])


@dataclass(frozen=True)
class Cubic:
    """Thirty rows of y = x^3 + noise, with x uniform on [-4, 4] and noise N(0, 9), both in original units.

    The toy regression of the SLANG paper (2018, Figure 8), whose code draws x and then the noise by NumPy's legacy
    generator with seed 1. All rows train; none test.

    Parameters
    ----------
    variant
        ``"plain"``, or ``"outlier"``, whose last x is 8.
    """

    variant: Literal["plain", "outlier"] = "plain"

    def __call__(self) -> Dataset:
        """Draw the rows."""
        generator = np.random.RandomState(1)
        x, noise = generator.uniform(-4, 4, 30), generator.normal(0, 3, 30)
        if self.variant == "outlier":
            x[-1] = 8
        name = "cubic" + ("_outlier" if self.variant == "outlier" else "")
        whole = partial(_block, len(x))
        return Dataset(name, x[:, None], x**3 + noise, splits=1, published=whole, simulated=True)


def _linear(seed: int) -> Draw:
    x, theta, noise = _normals(seed, (1000, 2), (2,), (1000,))
    return _labelled(x, theta, lambda f: f + noise * _NOISE_PRECISION**-0.5)


def _logistic(seed: int) -> Draw:
    x, theta = _normals(seed, (3000, 2), (2,))
    labels = np.random.RandomState(seed).binomial
    return _labelled(x, theta, lambda f: labels(1, 1 / (1 + np.exp(-f))).astype(np.float64))


def _normals(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).double().numpy() for shape in shapes]


def _labelled(x: Array, theta: Array, targets: Callable[[Array], Array]) -> Draw:
    """Return standard normals their covariances, and targets to f = x theta."""
    x, theta = x @ np.linalg.cholesky(_COVARIANCE).T, theta * _PRIOR_PRECISION**-0.5
    return Draw(x, targets(x @ theta), theta)


def _joined(name: str, task: Task, draws: Sequence[Draw]) -> Dataset:
    """Stack draws with the same number of rows."""
    x, y, _ = (np.concatenate(parts) for parts in zip(*draws, strict=True))
    return Dataset(name, x, y, task, splits=len(draws), published=partial(_block, len(draws[0].y)), simulated=True)


def _block(rows: int, index: int) -> Split:
    return Split(np.arange(index * rows, (index + 1) * rows), np.arange(0))
