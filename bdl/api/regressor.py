"""A regression as scikit-learn has it: for its pipelines, cross-validation and searches."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.distributions import Distribution

from bdl.api.arrays import Component, fit

Array = NDArray[np.float64]


class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A Bayesian regression; by default the linear model in closed form.

    Parameters
    ----------
    method, model, likelihood, hyper, prior, training, samples, seed
        As `bdl.fit` takes them; `hyper` is by default ``{"prior_precision": 1, "noise_precision": 1}``.

    Attributes
    ----------
    fitted_
        What `bdl.fit` gave.
    """

    def __init__(
        self,
        method: Component = "conjugate",
        model: Component = "linear",
        likelihood: Component = "gaussian",
        hyper: Mapping[str, float] | None = None,
        prior: Component = "gaussian",
        training: Mapping[str, Any] | None = None,
        samples: int = 100,
        seed: int = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.likelihood = likelihood
        self.hyper = hyper
        self.prior = prior
        self.training = training
        self.samples = samples
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the posterior; `InputError` as `bdl.fit` raises it, scikit-learn's own errors for wrong arrays."""
        X, y = validate_data(self, X, y, y_numeric=True)
        self.fitted_ = fit(
            self.method,
            self.model,
            self.likelihood,
            np.asarray(X, dtype=np.float64),
            y,
            {"prior_precision": 1.0, "noise_precision": 1.0} if self.hyper is None else self.hyper,
            prior=self.prior,
            training=self.training,
            samples=self.samples,
            seed=self.seed,
        )
        return self

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the predictive mean of each row, (n,), and if wanted its standard deviation, noise included."""
        check_is_fitted(self)
        if not return_std:
            return self.fitted_.predict(self._inputs(X))
        found = self.predict_distribution(X)
        return found.mean.numpy(), found.variance.sqrt().numpy()

    def predict_distribution(self, X: Any) -> Distribution:
        """Return the predictive distribution of each row, as `bdl.api.Fitted.predict_distribution`."""
        check_is_fitted(self)
        return self.fitted_.predict_distribution(self._inputs(X))

    def _inputs(self, X: Any) -> Array:
        return np.asarray(validate_data(self, X, reset=False), dtype=np.float64)
