"""Targets of a known sparse teacher, a new draw for every split: linear, or a network (Mata 2018, section 4.3).

The thesis counts how many of the learnt parameters are as small as the teacher's zeros. It prints neither the number of
rows of the linear problem nor seeds; what is chosen here are defaults.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from bdl.data.dataset import Dataset, Task
from bdl.data.splits import Split

Array = NDArray[np.float64]
Count = Annotated[int, Gt(0)]
_DRAWS = 5


@dataclass(frozen=True)
class SparseLinear:
    """y = x . w + noise with 1000 weights, of which 990 are zero and 10 uniform on [30, 60]; split i is draw i.

    Inputs are N(2, 4) and the noise N(0, 3), by variance. Draw i seeds NumPy's generator with i and takes places and
    values of the weights, inputs and noise in this order. 250 rows test.

    Parameters
    ----------
    rows
        Rows that train. The thesis does not print them; with 250 the least-norm weights are as large as the Gaussian
        posterior's that it describes, the largest 10 to 15.
    """

    rows: Count = 250

    def weights(self, index: int) -> Array:
        """Return the weights of a draw, (1000,)."""
        return self._draw(index)[0]

    def __call__(self) -> Dataset:
        """Draw the rows."""
        return joined("sparse_linear", self.rows, [self._draw(index)[1:] for index in range(_DRAWS)])

    def _draw(self, index: int) -> tuple[Array, Array, Array]:
        generator = np.random.default_rng(index)
        weights = np.zeros(1000)
        weights[generator.choice(1000, 10, replace=False)] = generator.uniform(30, 60, 10)
        x = generator.normal(2, 2, (self.rows + 250, 1000))
        return weights, x, x @ weights + generator.normal(0, 3**0.5, len(x))


@dataclass(frozen=True)
class SparseNetwork:
    """y = f(x) + noise with a teacher of which only one unit of each hidden layer does anything; split i is draw i.

    200 inputs N(0, 1), two hidden layers of 200 rectified units, one output. All weights are zero but those into the
    last unit of each hidden layer, uniform on [4, 6], and those of the output, uniform on [-0.1, 0.1]; no biases. Draw
    i seeds NumPy's generator with i and takes weights layer by layer, inputs and noise. 220 rows train and 220 test.

    Parameters
    ----------
    noise
        Variance of the noise.
    """

    noise: Annotated[float, Gt(0)] = 1.0

    def weights(self, index: int) -> tuple[Array, ...]:
        """Return the weights of a draw, layer by layer, (out, in)."""
        return self._draw(index)[0]

    def __call__(self) -> Dataset:
        """Draw the rows."""
        return joined("sparse_network", 220, [self._draw(index)[1:] for index in range(_DRAWS)])

    def _draw(self, index: int) -> tuple[tuple[Array, ...], Array, Array]:
        generator = np.random.default_rng(index)
        hidden = []
        for n_in, n_out in pairwise((200, 200, 200)):
            hidden.append(np.zeros((n_out, n_in)))
            hidden[-1][-1] = generator.uniform(4, 6, n_in)
        last = generator.uniform(-0.1, 0.1, (1, 200))
        x = f = generator.normal(size=(440, 200))
        for layer in hidden:
            f = np.maximum(f @ layer.T, 0)
        return (*hidden, last), x, (f @ last.T)[:, 0] + generator.normal(0, self.noise**0.5, len(x))


def joined(name: str, train: int, draws: list[tuple[Array, Array]], task: Task = "regression") -> Dataset:
    """Make a data set whose split i is draw i: the first `train` of its rows train, the others test.

    Parameters
    ----------
    name
        Of the data set.
    train
        Rows of a draw that train.
    draws
        Inputs and targets of each, of the same shape.
    task
        What is learnt.
    """
    x, y = (np.concatenate(parts) for parts in zip(*draws, strict=True))
    published = partial(_split, train, len(draws[0][1]))
    return Dataset(name, x, y, task, splits=len(draws), published=published, simulated=True)


def _split(train: int, rows: int, index: int) -> Split:
    order = np.arange(index * rows, (index + 1) * rows)
    return Split(order[:train], order[train:])
