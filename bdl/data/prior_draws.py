"""Data of which every draw has parameters from the prior: what calibration by simulation fits and ranks."""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Lt
from numpy.typing import NDArray

from bdl.data.dataset import Dataset, Task
from bdl.data.teachers import joined
from bdl.models.networks import Linear, Mlp

Array = NDArray[np.float64]
_TESTED = 10


@dataclass(frozen=True)
class PriorDraws:
    """Targets of a linear model, or of a network of tanh units, with parameters N(0, 1 / prior_precision).

    Numbers are N(f(x), 1 / noise_precision), and labels are 1 with probability sigmoid(f(x)). The inputs are standard
    normal, with one correlation of all pairs. Draw i, which is split i, seeds NumPy's generator with i and takes the
    parameters, and then row by row noise and inputs; ten rows test. A fit of the model that the data are from has the
    same biases, units and precisions, and ``standardise: none``.

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
        Of each pair of inputs.
    hidden
        Units of each hidden layer; none for a linear model.
    prior_precision, noise_precision
        Of all parameters, and of the targets where they are numbers.
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
        """Draw the rows."""
        drawn = [self._draw(index) for index in range(self.draws)]
        rolled = [(np.roll(x, -_TESTED, axis=0), np.roll(y, -_TESTED)) for _, x, y in drawn]
        return replace(
            joined("prior_draws", self.rows, rolled, self.task), generating=np.stack([theta for theta, *_ in drawn])
        )

    def _draw(self, index: int) -> tuple[Array, Array, Array]:
        """Return parameters, inputs and targets; the rows that test come first, so that more rows are the same ones."""
        model = Mlp(self.hidden, "tanh") if self.hidden else Linear()
        generator = np.random.default_rng(index)
        theta = generator.normal(0, self.prior_precision**-0.5, model.dim(self.inputs, 1))
        drawn = generator.normal(size=(_TESTED + self.rows, self.inputs + 2))
        x = (1 - self.correlation) ** 0.5 * drawn[:, 2:] + self.correlation**0.5 * drawn[:, 1:2]
        f = model(torch.from_numpy(theta), torch.from_numpy(x), 1).numpy()[:, 0]
        if self.task == "regression":
            return theta, x, f + drawn[:, 0] * self.noise_precision**-0.5
        # a logistic variable is below f with probability sigmoid(f)
        level = torch.special.ndtr(torch.from_numpy(drawn[:, 0])).logit().numpy()
        return theta, x, (level < f).astype(np.float64)
