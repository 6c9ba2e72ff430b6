"""Estimators of this package and of others as functions from training rows to predictions."""

from collections.abc import Callable
from functools import partial
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import bdl

Array = NDArray[np.float64]

LEVEL = 0.9
"""Probability of the central intervals."""
_TAIL = (1 - LEVEL) / 2
OUR_METHODS: dict[str, dict[str, Any]] = {
    "linear": {},
    "vifa": {"method": "vifa", "model": "mlp"},
    "laplace": {
        "method": {"name": "laplace", "curvature": "ggn", "linearised": True},
        "model": "mlp",
    },
    "ensemble": {"method": "deep-ensemble", "model": "mlp"},
}
"""Settings of `bdl.Regressor`; everything else is automatic."""


class Predictions(NamedTuple):
    """Predictions of n rows."""

    mean: Array
    low: Array
    high: Array
    log_density: Array | None
    """Of the targets, nats; None where a method has no density."""


Estimator = Callable[[Array, Array, Array, Array, int], Predictions]
"""Training inputs and targets, inputs and targets of the test rows, a seed."""


def predict_with_ours(
    settings: dict[str, Any], x: Array, y: Array, test_x: Array, test_y: Array, seed: int
) -> Predictions:
    """Fit `bdl.Regressor` and predict."""
    model = bdl.Regressor(**settings, random_state=seed).fit(x, y)
    low, high = model.predict_interval(test_x, level=LEVEL).T
    densities = model.predict_distribution(test_x).log_prob(torch.from_numpy(test_y)).numpy()
    return Predictions(model.predict(test_x), low, high, densities)


def predict_with_bayesian_ridge(
    x: Array, y: Array, test_x: Array, test_y: Array, seed: int
) -> Predictions:
    """Fit scikit-learn's Bayesian ridge regression and predict."""
    from sklearn.linear_model import BayesianRidge

    model = BayesianRidge().fit(x, y)
    mean, deviation = model.predict(test_x, return_std=True)
    return _predict_normal(mean, deviation, test_y)


def predict_with_gaussian_process(
    x: Array, y: Array, test_x: Array, test_y: Array, seed: int
) -> Predictions:
    """Fit scikit-learn's Gaussian process, with a length for each input, and predict."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    lengths = RBF(np.full(x.shape[1], sqrt(x.shape[1])), (1e-2, 1e4))
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * lengths + WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel, random_state=seed).fit(x, y)
    mean, deviation = model.predict(test_x, return_std=True)
    return _predict_normal(mean, deviation, test_y)


def predict_with_ngboost(
    x: Array, y: Array, test_x: Array, test_y: Array, seed: int
) -> Predictions:
    """Fit natural gradient boosting with its defaults and predict."""
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False).fit(x, y)
    normal = model.pred_dist(test_x)
    return _predict_normal(normal.loc, normal.scale, test_y)


def predict_with_quantiles(
    x: Array, y: Array, test_x: Array, test_y: Array, seed: int
) -> Predictions:
    """Fit gradient-boosted trees to the mean and to both ends of the intervals, and predict."""
    from sklearn.ensemble import GradientBoostingRegressor

    mean = GradientBoostingRegressor(random_state=seed).fit(x, y).predict(test_x)
    low, high = (
        GradientBoostingRegressor(loss="quantile", alpha=alpha, random_state=seed)
        .fit(x, y)
        .predict(test_x)
        for alpha in (_TAIL, 1 - _TAIL)
    )
    return Predictions(mean, low, high, None)


def _predict_normal(mean: Array, deviation: Array, test_y: Array) -> Predictions:
    width = NormalDist().inv_cdf(1 - _TAIL) * deviation
    log_density = -0.5 * (((test_y - mean) / deviation) ** 2 + np.log(2 * np.pi * deviation**2))
    return Predictions(mean, mean - width, mean + width, log_density)


ESTIMATORS: dict[str, Estimator] = {
    **{name: partial(predict_with_ours, settings) for name, settings in OUR_METHODS.items()},
    "ridge": predict_with_bayesian_ridge,
    "gp": predict_with_gaussian_process,
    "ngboost": predict_with_ngboost,
    "quantiles": predict_with_quantiles,
}
"""Estimators of this package, then the peers."""
