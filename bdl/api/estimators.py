"""A regression and a classification as scikit-learn has them.

They work in its pipelines, cross-validation and searches.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isnan
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import nn
from torch.distributions import Distribution

from bdl.api.arrays import Component, build_component, fit, hyper_names
from bdl.api.fitted import read_pickle, write_pickle
from bdl.data.conversion import (
    as_inputs,
    as_targets,
    check_row_labels,
    column_names,
    quote_names,
)
from bdl.errors import InputError
from bdl.spec.components import LikelihoodComponent
from bdl.spec.fields import validate_arguments
from bdl.types import Array


class _Estimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Parameters of both, with the defaults of a regression, and the checks of their inputs."""

    _column_names: tuple[str, ...] = ()
    """Of the frame that was fitted; none for other inputs."""

    def __init__(
        self,
        method: Component = "conjugate",
        model: Component | nn.Module = "linear",
        likelihood: Component = "gaussian",
        hyper: Mapping[str, Any] | Literal["auto"] = "auto",
        prior: Component = "gaussian",
        training: Mapping[str, Any] | None = None,
        samples: int = 100,
        prior_precision: float | None = None,
        noise_precision: float | None = None,
        learning_rate: float | None = None,
        random_state: int | RandomState | None = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.likelihood = likelihood
        self.hyper = hyper
        self.prior = prior
        self.training = training
        self.samples = samples
        self.prior_precision = prior_precision
        self.noise_precision = noise_precision
        self.learning_rate = learning_rate
        self.random_state = random_state

    @validate_arguments
    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to a file that `load` reads: a pickle, data included.

        `InputError` if the model cannot be pickled.
        """
        check_is_fitted(self)
        write_pickle(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an estimator that `save` wrote.

        It is a pickle, which may run code: load files that you trust alone. Errors as in
        `bdl.load`.
        """
        return read_pickle(path, cls)

    def _fit(self, likelihood: Component, values: Any, y: Any) -> None:
        with _raising_refusals("random_state"):
            seed = self.random_state
            if not isinstance(seed, Integral):  # NumPy has integers of its own
                seed = int(check_random_state(seed).randint(2**31 - 1))
        self.fitted_ = fit(
            self.method,
            self.model,
            likelihood,
            self._with_feature_names(values),
            y,
            self._hyper(likelihood),
            prior=self.prior,
            training=self.training,
            samples=self.samples,
            seed=seed,
        )

    def _hyper(self, likelihood: Component) -> Any:
        """Lay the parameters that are hyper-parameters over `hyper`."""
        names = ("prior_precision", "noise_precision", "learning_rate")
        explicit_hyper = {}
        for name in names:
            value = getattr(self, name)
            if value is not None:
                explicit_hyper[name] = value
        if isinstance(self.hyper, Mapping):
            return {**self.hyper, **explicit_hyper}
        if not explicit_hyper or not isinstance(self.hyper, str) or self.hyper != "auto":
            return self.hyper
        automatic_names = hyper_names(self.method, likelihood, self.prior)
        return dict.fromkeys(automatic_names, "auto") | explicit_hyper

    def _inputs(self, X: Any) -> Any:
        check_is_fitted(self)
        with _raising_refusals("X", X):
            values = validate_data(self, X, reset=False)
        _check_arrays(X)
        # scikit-learn compares names that are text, and warns if only one side has any
        names = column_names(X)
        if {*names} & {*self._column_names} and names != self._column_names:
            raise WrongArray(
                f"X has the columns {quote_names(names)}: give those that were fitted, "
                f"{quote_names(self._column_names)}, in their order"
            )
        return self._with_feature_names(values)

    def _with_feature_names(self, values: Any) -> Any:
        """Return numbers, as a frame if scikit-learn has recorded the names of the columns."""
        values = np.asarray(values, dtype=np.float64)
        if not hasattr(self, "feature_names_in_"):
            return values
        import pandas as pd  # imported already, with the frame that has the names

        return pd.DataFrame(values, columns=self.feature_names_in_)


class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A Bayesian regression, linear by default.

    The default is the linear model in closed form, with the precisions of highest evidence. It
    finds no curves and no interactions of inputs: for those fit networks, as in
    ``Regressor("deep-ensemble", "mlp")``, whose settings are chosen on held-out rows.

    Parameters
    ----------
    method, model, likelihood, hyper, prior, training, samples
        As `bdl.fit` takes them.
    prior_precision, noise_precision, learning_rate
        Hyper-parameters, laid over `hyper`, so that scikit-learn's searches find them; None for
        what `hyper` says.
    random_state
        Seed of every random number; None draws one at each fit.

    Attributes
    ----------
    fitted_
        The `bdl.api.Fitted` that `bdl.fit` returned.
    """

    def fit(self, X: Any, y: Any, **unknown: Any) -> Self:
        """Fit the posterior.

        `InputError` as `bdl.fit` raises it, and for wrong arrays scikit-learn's words in it.
        """
        _check_unknown(unknown)
        likelihood = build_component(LikelihoodComponent, self.likelihood)
        if likelihood is not None and not likelihood.fits(0):
            raise WrongArray(
                f"likelihood: {self.likelihood!r} describes labels: use bdl.Classifier"
            )
        with _raising_refusals("X, y", X, y):
            values, target_values = validate_data(self, X, y, y_numeric=True)
        _check_arrays(X, y)
        self._column_names = column_names(X)
        self._fit(self.likelihood, values, target_values)
        return self

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...

    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...

    @validate_arguments
    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the predictive mean of each row, (n,).

        With `return_std`, return its standard deviation, noise included, as well.
        """
        rows = self._inputs(X)
        if not return_std:
            return self.fitted_.predict(rows)
        distribution = self.fitted_.predict_distribution(rows)
        return distribution.mean.numpy(), distribution.variance.sqrt().numpy()

    def predict_distribution(self, X: Any) -> Distribution:
        """Return the predictive distribution of each row.

        As `bdl.api.Fitted.predict_distribution`.
        """
        rows = self._inputs(X)
        return self.fitted_.predict_distribution(rows)

    def predict_interval(self, X: Any, level: float = 0.9) -> Array:
        """Return the central interval of each row, as `bdl.api.Fitted.predict_interval`."""
        rows = self._inputs(X)
        return self.fitted_.predict_interval(rows, level=level)


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A Bayesian classification, linear by default.

    The default is Laplace's method for the linear model, with the best prior precision. For
    curved borders of classes fit networks, as in ``Classifier("deep-ensemble", "mlp")``.

    Parameters
    ----------
    method, model, hyper, prior, training, samples
        As `bdl.fit` takes them.
    prior_precision, noise_precision, learning_rate, random_state
        As `Regressor` takes them.
    likelihood
        As `bdl.fit` takes it; by default Bernoulli for two classes, and categorical for more.

    Attributes
    ----------
    fitted_
        The `bdl.api.Fitted` that `bdl.fit` returned; its classes are 0 to C - 1.
    classes_
        The labels, in order, (C,).
    """

    def __init__(
        self,
        method: Component = "laplace",
        model: Component | nn.Module = "linear",
        likelihood: Component = "auto",
        hyper: Mapping[str, Any] | Literal["auto"] = "auto",
        prior: Component = "gaussian",
        training: Mapping[str, Any] | None = None,
        samples: int = 100,
        prior_precision: float | None = None,
        noise_precision: float | None = None,
        learning_rate: float | None = None,
        random_state: int | RandomState | None = 0,
    ) -> None:
        super().__init__(
            *(method, model, likelihood, hyper, prior, training, samples),
            *(prior_precision, noise_precision, learning_rate, random_state),
        )

    def fit(self, X: Any, y: Any, **unknown: Any) -> Self:
        """Fit the posterior to labels, which may be texts; errors as in `Regressor.fit`."""
        _check_unknown(unknown)
        is_auto = isinstance(self.likelihood, str) and self.likelihood == "auto"
        likelihood = None if is_auto else build_component(LikelihoodComponent, self.likelihood)
        if likelihood is not None and likelihood.fits(0):
            raise WrongArray(
                f"likelihood: {self.likelihood!r} describes numbers: use bdl.Regressor"
            )
        check_labels(y)
        with _raising_refusals("X, y", X):
            values, labels = validate_data(self, X, column_or_1d(y, warn=True))
            check_classification_targets(labels)
        _check_arrays(X)
        check_row_labels(X, y)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise WrongArray("y has one class: give two classes or more")
        self._column_names = column_names(X)
        default_likelihood = "bernoulli" if len(self.classes_) == 2 else "categorical"
        self._fit(default_likelihood if is_auto else self.likelihood, values, codes)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row, (n,)."""
        best = self.predict_proba(X).argmax(1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class, (n, C), in the order of `classes_`."""
        rows = self._inputs(X)
        distribution: Any = self.fitted_.predict_distribution(rows)
        return np.asarray(distribution.probs)


class WrongArray(InputError, ValueError):
    """An array that is refused, as scikit-learn's tools expect the error."""


class WrongType(InputError, TypeError):
    """A type that is refused, as scikit-learn's tools expect the error."""


@contextmanager
def _raising_refusals(argument: str, X: Any = None, y: Any = None) -> Iterator[None]:
    """Raise the errors of scikit-learn, and of the libraries that it calls, as one line.

    Of a frame, `X`, the line names the column that is at fault.
    """
    try:
        yield
    except Exception as error:
        if column_names(X):
            _check_arrays(X, y)
        text = " ".join(str(error).split())
        if len(text) > 320:
            text = f"{text[:150]} ... {text[-150:]}"  # an array in the middle is left out
        refusal = WrongType if isinstance(error, TypeError) else WrongArray
        raise refusal(f"{argument}: {text}") from None


def _check_unknown(unknown: Mapping[str, Any]) -> None:
    """Refuse arguments of `fit`.

    Constructors leave this to Python: scikit-learn's checks want none that refuses, and every
    estimator with a parameter `class_weight` to heed it.
    """
    for name in ("sample_weight", "class_weight"):
        if name in unknown:
            raise WrongType(
                f"{name}: the methods count every row once: leave it out, or repeat rows"
            )
    if unknown:
        raise WrongType(f"fit: unknown argument '{next(iter(unknown))}'; allowed: X, y")


def check_labels(y: Any) -> None:
    """Refuse labels that are hidden, None, NaN or NaT: none is a class."""
    if np.ma.is_masked(y):
        raise WrongArray("y has masked values: drop those rows")
    if isinstance(y, str) or not isinstance(y, Iterable) or getattr(y, "ndim", 1) == 0:
        return  # scikit-learn refuses it
    for row, label in enumerate(y):
        if label is None or type(label).__name__ in ("NAType", "NaTType") or _is_nan(label):
            raise WrongArray(
                f"y has gaps ({label}), the first in row {row}, from 0: drop those rows"
            )


def _is_nan(label: Any) -> bool:
    """Return whether a label is a number or a time that is none."""
    if isinstance(label, np.datetime64 | np.timedelta64):
        return bool(np.isnat(label))
    return isinstance(label, float) and isnan(label)


def _check_arrays(X: Any, y: Any = None) -> None:
    """Refuse what scikit-learn converts silently.

    It makes numbers of text, and ignores row labels in another order.
    """
    try:
        as_inputs(X, "X")
        if y is not None:
            as_targets(y, "y")
            check_row_labels(X, y)
    except InputError as error:
        raise WrongArray(str(error)) from None
