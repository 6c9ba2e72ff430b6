"""A regression as scikit-learn has it: for its pipelines, cross-validation and searches."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.distributions import Distribution

from bdl.api.arrays import Component, fit
from bdl.api.checking import checked
from bdl.data.conversion import check_aligned, inputs, targets
from bdl.errors import InputError

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
        """Fit the posterior; `InputError` as `bdl.fit` raises it, and for wrong arrays scikit-learn's words in it."""
        with _refusing("X, y"):
            values, numbers = validate_data(self, X, y, y_numeric=True)
        _check(X, y)
        self.fitted_ = fit(
            self.method,
            self.model,
            self.likelihood,
            self._named(values),
            numbers,
            {"prior_precision": 1.0, "noise_precision": 1.0} if self.hyper is None else self.hyper,
            prior=self.prior,
            training=self.training,
            samples=self.samples,
            seed=self.seed,
        )
        return self

    @checked
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

    def _inputs(self, X: Any) -> Any:
        with _refusing("X"):
            values = validate_data(self, X, reset=False)
        _check(X)
        return self._named(values)

    def _named(self, values: Any) -> Any:
        """Return numbers under the names that scikit-learn has found, if there are any."""
        values = np.asarray(values, dtype=np.float64)
        if not hasattr(self, "feature_names_in_"):
            return values
        import pandas as pd  # imported already, with the frame that has the names

        return pd.DataFrame(values, columns=self.feature_names_in_)


class WrongArray(InputError, ValueError):
    """An array that is refused, as scikit-learn's tools expect the error."""


class WrongType(InputError, TypeError):
    """A type that is refused, as scikit-learn's tools expect the error."""


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Tell scikit-learn's errors, and those of the libraries it calls, in one line."""
    try:
        yield
    except Exception as error:
        text = " ".join(str(error).split())
        shown = text if len(text) <= 320 else f"{text[:150]} ... {text[-150:]}"  # arrays stand in the middle
        raise (WrongType if isinstance(error, TypeError) else WrongArray)(f"{what}: {shown}") from None


def _check(X: Any, y: Any = None) -> None:
    """Refuse what scikit-learn converts silently: text to numbers, and row labels in another order."""
    try:
        inputs(X, "X")
        if y is not None:
            targets(y, "y")
            check_aligned(X, y)
    except InputError as error:
        raise WrongArray(str(error)) from None
