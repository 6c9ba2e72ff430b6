"""Random data of known parameters: sparse teachers, draws of a prior, and factor models.

The sparse teachers are those of Mata (2018, section 4.3), who counts how many of the learnt
parameters are as small as the teacher's zeros. The thesis prints neither the number of rows of the
linear problem nor seeds; those here are defaults.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from bdl.data.dataset import Dataset, Task
from bdl.data.splits import Split
from bdl.models.networks import LinearModel, Mlp
from bdl.posteriors import FactorAnalysis
from bdl.types import Array

Count = Annotated[int, Gt(0)]
_DRAWS = 5


@dataclass(frozen=True)
class SparseLinear:
    """y = x . w + noise with 1000 weights, of which 990 are zero and 10 uniform on [30, 60].

    Split i is draw i.

    Inputs are N(2, 4) and the noise N(0, 3), by variance. Draw i seeds NumPy's generator with i
    and takes places and values of the weights, inputs and noise in this order. 250 rows test.

    Parameters
    ----------
    rows
        Rows that train. The thesis does not print them; with 250 the least-norm weights are as
        large as the Gaussian posterior's that it describes: the largest are 11 to 17, there 10 to
        15.
    """

    rows: Count = 250

    def weights(self, index: int) -> Array:
        """Return the weights of a draw, (1000,)."""
        return self._draw(index)[0]

    def __call__(self) -> Dataset:
        return join_draws(
            "sparse_linear", self.rows, [self._draw(index)[1:] for index in range(_DRAWS)]
        )

    def _draw(self, index: int) -> tuple[Array, Array, Array]:
        generator = np.random.default_rng(index)
        weights = np.zeros(1000)
        weights[generator.choice(1000, 10, replace=False)] = generator.uniform(30, 60, 10)
        x = generator.normal(2, 2, (self.rows + 250, 1000))
        return weights, x, x @ weights + generator.normal(0, 3**0.5, len(x))


@dataclass(frozen=True)
class SparseNetwork:
    """y = f(x) + noise with a teacher of which only one unit of each hidden layer does anything.

    Split i is draw i.

    200 inputs N(0, 1), two hidden layers of 200 units, one output. All weights are zero but those
    into the last unit of each hidden layer, uniform on [4, 6], and those of the output, uniform on
    [-0.1, 0.1]; no biases. Draw i seeds NumPy's generator with i and takes weights layer by layer,
    inputs and noise. 220 rows train and 220 test.

    Parameters
    ----------
    noise
        Variance of the noise.
    activation
        The function of the hidden units. With ``"sigmoid"``, as the thesis writes it, a unit
        without weights is 1/2, so that the second layer saturates: f is the same for all inputs,
        and only the noise differs between rows.
    """

    noise: Annotated[float, Gt(0)] = 1.0
    activation: Literal["relu", "sigmoid"] = "relu"

    def weights(self, index: int) -> tuple[Array, ...]:
        """Return the weights of a draw, layer by layer, (out, in)."""
        return self._draw(index)[0]

    def __call__(self) -> Dataset:
        return join_draws(
            "sparse_network", 220, [self._draw(index)[1:] for index in range(_DRAWS)]
        )

    def _draw(self, index: int) -> tuple[tuple[Array, ...], Array, Array]:
        generator = np.random.default_rng(index)
        hidden = []
        for n_in, n_out in pairwise((200, 200, 200)):
            hidden.append(np.zeros((n_out, n_in)))
            hidden[-1][-1] = generator.uniform(4, 6, n_in)
        last = generator.uniform(-0.1, 0.1, (1, 200))
        x = f = generator.normal(size=(440, 200))
        for layer in hidden:
            f = f @ layer.T
            f = np.maximum(f, 0) if self.activation == "relu" else 1 / (1 + np.exp(-f))
        return (
            (*hidden, last),
            x,
            (f @ last.T)[:, 0] + generator.normal(0, self.noise**0.5, len(x)),
        )


def join_draws(
    name: str,
    train: int,
    draws: list[tuple[Array, Array]],
    task: Task = "regression",
    leading_test_rows: int = 0,
) -> Dataset:
    """Make a data set whose split i is draw i, a pair of inputs and targets.

    The first `train` rows of a draw train, the others test. Before that, the `leading_test_rows`
    first rows of each draw become its last.
    """
    x, y = (
        np.concatenate([np.roll(rows, -leading_test_rows, axis=0) for rows in rows_of_draws])
        for rows_of_draws in zip(*draws, strict=True)
    )
    published = partial(_split_of_draw, train, len(draws[0][1]))
    return Dataset(name, x, y, task, splits=len(draws), published=published, simulated=True)


def _split_of_draw(train: int, rows: int, index: int) -> Split:
    order = np.arange(index * rows, (index + 1) * rows)
    return Split(order[:train], order[train:])


_TEST_ROWS = 10


@dataclass(frozen=True)
class PriorDraws:
    """Targets of a linear model, or of a network of tanh units, whose parameters are random.

    Parameters are N(0, 1 / prior_precision). Numbers are N(f(x), 1 / noise_precision), and labels
    are 1 with probability sigmoid(f(x)). The inputs are standard normal, with one correlation of
    all pairs. Draw i, which is split i, seeds NumPy's generator with i and takes the parameters,
    and then row by row noise and inputs; ten rows test. A fit of the model that the data are from
    has the same biases, units and precisions, and ``standardise: none``.

    Parameters
    ----------
    task
        ``"regression"``, or ``"classification"`` with two classes.
    draws
        Number of draws.
    rows
        Rows of a draw that train.
    inputs
        Number of inputs.
    correlation
        Correlation of each pair of inputs.
    hidden
        Units of each hidden layer; none for a linear model.
    prior_precision, noise_precision
        Precision of all parameters, and of the targets where they are numbers.
    """

    task: Task = "regression"
    draws: Annotated[int, Gt(0)] = 300
    rows: Annotated[int, Gt(0)] = 100
    inputs: Annotated[int, Gt(0)] = 3
    correlation: Annotated[float, Ge(0), Lt(1)] = 0.9
    hidden: tuple[Annotated[int, Gt(0)], ...] = ()
    prior_precision: Annotated[float, Gt(0)] = 1.0
    noise_precision: Annotated[float, Gt(0)] = 1.0

    def __call__(self) -> Dataset:
        draws = [self._draw(index) for index in range(self.draws)]
        dataset = join_draws(
            "prior_draws",
            self.rows,
            [(x, y) for _, x, y in draws],
            self.task,
            leading_test_rows=_TEST_ROWS,
        )
        return replace(dataset, generating=np.stack([theta for theta, *_ in draws]))

    def _draw(self, index: int) -> tuple[Array, Array, Array]:
        """Return parameters, inputs and targets.

        The rows that test come first, so that more rows are the same ones.
        """
        model = Mlp(self.hidden, "tanh") if self.hidden else LinearModel()
        generator = np.random.default_rng(index)
        theta = generator.normal(0, self.prior_precision**-0.5, model.dim(self.inputs, 1))
        # in one call, row by row: a longer draw begins with the rows of a shorter one
        normals = generator.normal(size=(_TEST_ROWS + self.rows, self.inputs + 2))
        noise, shared, single = normals[:, 0], normals[:, 1:2], normals[:, 2:]
        x = (1 - self.correlation) ** 0.5 * single + self.correlation**0.5 * shared
        f = model(torch.from_numpy(theta), torch.from_numpy(x), 1).numpy()[:, 0]
        if self.task == "regression":
            return theta, x, f + noise * self.noise_precision**-0.5
        # a logistic variable is below f with probability sigmoid(f)
        level = torch.special.ndtr(torch.from_numpy(noise)).logit().numpy()
        return theta, x, (level < f).astype(np.float64)


def draw_factor_model(
    seed: int,
    dim: int,
    latent_dim: int,
    spectrum: tuple[float, float],
    scaling: Literal["rows", "columns"] = "rows",
) -> FactorAnalysis:
    """Draw a model N(c, F F^T + diag(psi)), float32, with K = `latent_dim` below D = `dim`.

    c is standard normal, V has the leading eigenvectors of M M^T with a standard-normal D x D
    matrix M, the s^2 are uniform on `spectrum`, and psi is uniform on (0, max s^2). PyTorch's
    generator draws c, M, s^2 and psi in this order.

    ``"rows"`` is F = diag(s) V with D values s, as the published code has it; ``"columns"`` is F =
    V diag(s) with K values, as the thesis's argument about conditioning suggests.
    """
    generator = torch.Generator().manual_seed(seed)
    loc = torch.randn(dim, generator=generator)
    square = torch.randn(dim, dim, generator=generator)
    leading = torch.linalg.eigh(square @ square.T).eigenvectors.flip(1)[:, :latent_dim]
    variances = torch.empty(dim if scaling == "rows" else latent_dim).uniform_(
        *spectrum, generator=generator
    )
    factors = (variances.sqrt() * leading.T).T if scaling == "rows" else variances.sqrt() * leading
    diag = torch.empty(dim).uniform_(0, float(variances.max()), generator=generator)
    return FactorAnalysis(loc, factors.contiguous(), diag)


def draw_observations(
    models: Sequence[FactorAnalysis], seed: int, count: int, block: int
) -> Iterator[Tensor]:
    """Draw theta = c + F h + psi^{1/2} o z from each of S models, as blocks (S, block, D).

    All models have the same h and z. The generator draws all h, (count, K), and then all z,
    (count, D). The published runs gave it the seed of the model, so that the first h repeat the
    normals of c and M; models that differ in their spectrum alone then have the same h and z. A
    `block` that is a multiple of 16 makes the values independent of it.
    """
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(count, models[0].rank, generator=generator)
    for begin in range(0, count, block):
        latent = h[begin : begin + block]
        z = torch.randn(len(latent), models[0].dim, generator=generator)
        yield torch.stack([model.sample(torch.cat([latent, z], 1)) for model in models])
