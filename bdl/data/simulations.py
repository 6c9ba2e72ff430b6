"""Simulated problems, a new draw for every split.

They are draws of known models, the problems of Mata (2018, section 4.1), and curves with gaps. A
draw of the thesis, or with gaps, seeds NumPy's generator with its number. One of the thesis takes
the teacher's weights, then row by row inputs and noise, the test rows first: draws of other sizes
have the same teacher, the same test rows and the same first rows. The thesis prints neither the
number of test rows nor seeds; those here are defaults.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Gt

from bdl.data.dataset import Dataset, Task
from bdl.data.teachers import join_draws
from bdl.types import Array

_DRAWS = 10
_TEST_ROWS = 1000
_COVARIANCE = np.array([[1, 0.5], [0.5, 1]])
"""Covariance of the two inputs of `synthetic` and `synthetic_logistic`."""
_PRIOR_PRECISION, _NOISE_PRECISION = 0.01, 0.1


def synthetic() -> Dataset:
    """Ten draws of a linear regression with two parameters and 1000 rows; split i is draw i.

    x ~ N(0, [[1, 0.5], [0.5, 1]]), theta ~ N(0, I / 0.01), y ~ N(theta . x, 1 / 0.1), without a
    bias (Brownlie 2022, sections 4.4.2 and 5.2.1). Draw i seeds PyTorch's generator with i and
    takes x, theta and the noise in this order, single precision. All rows of a draw train; none
    test.
    """
    draws = []
    for seed in range(_DRAWS):
        x, theta, noise = _draw_normals(seed, 1000)
        draws.append((x, x @ theta + noise * _NOISE_PRECISION**-0.5))
    return join_draws("synthetic", 1000, draws)


def synthetic_logistic() -> Dataset:
    """Ten draws of a logistic regression with two parameters and 3000 rows; split i is draw i.

    x ~ N(0, [[1, 0.5], [0.5, 1]]), theta ~ N(0, I / 0.01), P(y = 1) = sigmoid(theta . x), without
    a bias. Draw i has the seed i + 1: x and theta come as in `synthetic`, and NumPy's legacy
    generator gives the labels, so that the first draw is that of the VIFA paper (2023, appendix
    B.2). All rows of a draw train; none test.
    """
    draws = [draw_logistic_problem(seed)[:2] for seed in range(1, _DRAWS + 1)]
    return join_draws("synthetic_logistic", 3000, draws, "classification")


def draw_logistic_problem(seed: int) -> tuple[Array, Array, Array]:
    """Return inputs, labels and parameters of the draw of a seed."""
    x, theta, _ = _draw_normals(seed, 3000)
    # The legacy generator: its draws are those of the paper.
    labels = np.random.RandomState(seed).binomial(1, 1 / (1 + np.exp(-(x @ theta))))
    return x, labels.astype(np.float64), theta


def _draw_normals(seed: int, rows: int) -> tuple[Array, Array, Array]:
    generator = torch.Generator().manual_seed(seed)
    normals = (torch.randn(*shape, generator=generator) for shape in ((rows, 2), (2,), (rows,)))
    # Single precision, as the draws are defined: in double the same seed gives other numbers.
    x, theta, noise = (tensor.double().numpy() for tensor in normals)
    return x @ np.linalg.cholesky(_COVARIANCE).T, theta * _PRIOR_PRECISION**-0.5, noise


@dataclass(frozen=True)
class Cubic:
    """Thirty rows of y = x^3 + noise, with x uniform on [-4, 4] and noise N(0, 9).

    Both are in original units. This is the toy regression of the SLANG paper (2018, Figure 8),
    whose code draws x and then the noise by NumPy's legacy generator with seed 1. All rows train;
    none test.

    Parameters
    ----------
    variant
        ``"plain"``, or ``"outlier"``, whose last x is 8.
    """

    variant: Literal["plain", "outlier"] = "plain"

    def __call__(self) -> Dataset:
        # The generator, the seed and the order of the draws are those of the authors' code.
        generator = np.random.RandomState(1)
        x, noise = generator.uniform(-4, 4, 30), generator.normal(0, 3, 30)
        if self.variant == "outlier":
            x[-1] = 8
        name = "cubic" + ("_outlier" if self.variant == "outlier" else "")
        return join_draws(name, 30, [(x[:, None], x**3 + noise)])


class _SimulatedProblem:
    """Ten draws of a problem, each with its own generator, which makes 1000 test rows first."""

    _name: ClassVar[str]
    _task: ClassVar[Task] = "regression"
    rows: int

    def _draw(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """Return inputs and targets."""
        raise NotImplementedError

    def __call__(self) -> Dataset:
        draws = [self._draw(np.random.default_rng(index)) for index in range(_DRAWS)]
        return join_draws(self._name, self.rows, draws, self._task, leading_test_rows=_TEST_ROWS)


@dataclass(frozen=True)
class UnitTeacher(_SimulatedProblem):
    """y = f(x . w) + noise with 100 weights N(0, 1/25), inputs N(2, 4), by variance.

    1000 rows test.

    Parameters
    ----------
    rows
        Rows that train.
    activation
        The function f: ``"identity"`` or ``"tanh"``.
    snr
        Signal-to-noise ratio: the variance of f(x . w) over the draw's rows, over that of the
        noise; null for noise of variance 3.
    """

    rows: Annotated[int, Gt(0)] = 1000
    activation: Literal["identity", "tanh"] = "identity"
    snr: Annotated[float, Gt(0)] | None = None

    _name = "teacher_unit"

    def _draw(self, generator: np.random.Generator) -> tuple[Array, Array]:
        weights = generator.normal(0, 0.2, 100)
        # Inputs and noise in one call, row by row: with more rows the first ones stay the same.
        normals = generator.normal(size=(_TEST_ROWS + self.rows, 101))
        x = 2 + 2 * normals[:, :100]
        f = x @ weights if self.activation == "identity" else np.tanh(x @ weights)
        variance = 3.0 if self.snr is None else f.var() / self.snr
        return x, f + normals[:, 100] * variance**0.5


@dataclass(frozen=True)
class NetworkTeacher(_SimulatedProblem):
    """y = f(x) + N(0, 1) with a network of 200 sigmoid units.

    All weights and 200 inputs are N(0, 1), and there are no biases. 220 rows train, as the thesis
    draws, and 1000 test.
    """

    _name = "teacher_network"
    rows = 220

    def _draw(self, generator: np.random.Generator) -> tuple[Array, Array]:
        hidden, last = generator.normal(size=(200, 200)), generator.normal(size=200)
        normals = generator.normal(size=(_TEST_ROWS + self.rows, 201))
        x = normals[:, :200]
        return x, last @ (1 / (1 + np.exp(-hidden @ x.T))) + normals[:, 200]


@dataclass(frozen=True)
class Waves(_SimulatedProblem):
    """y = x + 0.3 sin(2 pi (x + e)) + 0.3 sin(4 pi (x + e)) + e, the same e in all places.

    200 rows train, with x uniform on [0, 0.5], and 1000 test, uniform on [-0.5, 1]; the thesis
    prints neither.

    Parameters
    ----------
    variance
        Of e ~ N(0, variance). The thesis prints N(0, 0.02), where its other problems have
        variances; with 0.0004, the square, the curve looks like the printed one.
    """

    variance: Annotated[float, Gt(0)] = 0.02

    _name = "waves"
    rows = 200

    def _draw(self, generator: np.random.Generator) -> tuple[Array, Array]:
        x = np.concatenate(
            [generator.uniform(-0.5, 1, _TEST_ROWS), generator.uniform(0, 0.5, self.rows)]
        )
        e = generator.normal(0, self.variance**0.5, len(x))
        slow_wave = 0.3 * np.sin(2 * np.pi * (x + e))
        fast_wave = 0.3 * np.sin(4 * np.pi * (x + e))
        return x[:, None], x + slow_wave + fast_wave + e


@dataclass(frozen=True)
class OverlappingClasses(_SimulatedProblem):
    """Two equally frequent classes on one input, uniform on [0, 0.6] and on [0.4, 1].

    On [0.4, 0.6] the labels are random. 200 rows train and 1000 test.
    """

    _name, _task = "overlapping_classes", "classification"
    rows = 200

    def _draw(self, generator: np.random.Generator) -> tuple[Array, Array]:
        labels = generator.integers(0, 2, _TEST_ROWS + self.rows).astype(np.float64)
        return (0.4 * labels + generator.uniform(0, 0.6, len(labels)))[:, None], labels


def gap_curve() -> Dataset:
    """Forty rows of y = sin(3 x) + N(0, 0.1^2), half of x uniform on [-2, -0.7], half on [0.7, 2].

    101 test rows are evenly spaced on [-3, 3]: among the training rows, in the gap and beyond
    them.
    """
    draws = []
    for index in range(_DRAWS):
        generator = np.random.default_rng(index)
        x = np.concatenate(
            [
                generator.uniform(-2, -0.7, 20),
                generator.uniform(0.7, 2, 20),
                np.linspace(-3, 3, 101),
            ]
        )
        draws.append((x[:, None], np.sin(3 * x) + 0.1 * generator.standard_normal(len(x))))
    return join_draws("gap_curve", 40, draws)


def two_moons() -> Dataset:
    """Two half circles by scikit-learn's `make_moons` with noise 0.2; 100 rows train, 200 test."""
    from sklearn.datasets import make_moons

    draws = [make_moons(300, noise=0.2, random_state=index) for index in range(_DRAWS)]
    return join_draws(
        "two_moons", 100, [(x, y.astype(np.float64)) for x, y in draws], "classification"
    )
