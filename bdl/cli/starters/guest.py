"""A method of another library, or any code that trains by itself, to start from. It runs as it is.

Name it in a benchmark file by the path of this file, without a model, since it has its own:

    method: {name: guest.py:MyGuest, neighbours: 10}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge
from sklearn.neighbors import KNeighborsRegressor
from torch import Tensor

from bdl.methods.guest import Guest, Train
from bdl.posteriors.predictive import MeanVariance, Predictive


@dataclass(frozen=True)
class MyGuest(Guest):
    """The mean of the nearest training rows, with the variance of what it leaves.

    Parameters
    ----------
    neighbours
        Training rows whose targets are averaged.
    """

    # A setting is a field with a type and a default; a benchmark file sets it after the name.
    neighbours: Annotated[int, Ge(1)] = 5

    self_tuned = True  # prior and noise are its own, so that the benchmark gives none
    needs_numbers = True  # of regressions alone

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Predictive:
        """Return a function of inputs, (m, d), which gives the predictive distribution.

        `train.x`, (n, d), and `train.y`, (n,), are arrays in standardised units. `hyper` has the
        hyper-parameters that the property `hyper` names, here none.
        """
        half = len(train.x) // 2  # the variance is of rows that were not averaged
        known = KNeighborsRegressor(min(self.neighbours, half)).fit(train.x[:half], train.y[:half])
        variance = ((known.predict(train.x[half:]) - train.y[half:]) ** 2).mean()
        everything = KNeighborsRegressor(min(self.neighbours, len(train.x)))
        everything.fit(train.x, train.y)

        def predict(x: Tensor) -> MeanVariance:
            mean = everything.predict(x.numpy())
            return MeanVariance(mean, 0 * mean + variance)

        return predict
