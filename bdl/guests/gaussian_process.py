"""An exact Gaussian process of scikit-learn."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from torch import Tensor

from bdl.methods.guest import Guest, Train
from bdl.posteriors.predictive import MeanVariance, Predictive


@dataclass(frozen=True)
class GaussianProcess(Guest):
    """`sklearn.gaussian_process` with s^2 exp(-sum_j (x_j - x'_j)^2 / (2 l_j^2)) and noise.

    The marginal likelihood chooses s, l_1 to l_d and the noise. Rasmussen and Williams (2006),
    equations 2.30 and 5.1. The work grows with the cube of the training rows.

    Parameters
    ----------
    restarts
        Further starts of the search for s, l_1 to l_d and the noise, drawn at random; the best is
        kept.
    """

    restarts: Annotated[int, Ge(0)] = 1

    self_tuned = True
    needs_numbers = True

    def fit(self, train: Train, hyper: Mapping[str, float], seed: int) -> Predictive:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        # standardised rows are at a squared distance of about 2 d, so that their correlation at
        # the start is about exp(-1), whatever the number of inputs
        lengths = np.full(train.x.shape[1], np.sqrt(train.x.shape[1]))
        smooth = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(lengths, (1e-2, 1e4))
        kernel = smooth + WhiteKernel(0.1, (1e-6, 1e1))
        model = GaussianProcessRegressor(
            kernel, n_restarts_optimizer=self.restarts, random_state=seed
        )
        with warnings.catch_warnings():
            # a length stays at its bound where the column has no information
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(train.x, train.y)

        def predict(x: Tensor) -> MeanVariance:
            mean, deviation = model.predict(x.numpy(), return_std=True)
            return MeanVariance(mean, deviation**2)

        return predict
