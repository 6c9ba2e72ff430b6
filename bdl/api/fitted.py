"""A fitted posterior with its problem, and its draws for other programs."""

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import ArrayLike
from torch import Tensor
from torch.distributions import Categorical, Distribution

import bdl
from bdl.data.conversion import as_inputs, as_numbers, reorder_columns
from bdl.errors import InputError
from bdl.execution.scoring import make_evaluation, standardise_examples
from bdl.metrics.closed_form import has_closed_form, predict_exactly
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, as_tensors
from bdl.metrics.targets import (
    EqualMixture,
    Examples,
    build_target_distribution,
    central_interval,
)
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.plan.task import Task
from bdl.posteriors import Posterior
from bdl.posteriors.base import GaussianPosterior
from bdl.posteriors.predictive import is_predictive
from bdl.posteriors.tensors import as_type
from bdl.references.mcmc import import_optional
from bdl.spec.fields import validate_arguments
from bdl.types import Array

Count = Annotated[int, Ge(1), Le(10**6)]
Seed = Annotated[int, Ge(0), Lt(2**63)]


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """A fitted posterior with its problem.

    Parameters
    ----------
    cell
        The fitted task: an entry of a benchmark on a data set.
    split
        The split whose training rows it was fitted to.
    posterior
        Over the flat parameter vector, D entries, of the model as it sees standardised data.
    buffers
        Running statistics of the model by name.
    hyper
        Hyper-parameters by name, in original units.
    exact
        Whether predictions are exact where they can be, as those of `bdl.fit` and of estimators
        are. A fit of a benchmark predicts by the draws that its scores rest on.
    noise_precision
        Noise precision of predictions, in original units, where held-out rows have chosen it apart
        from that of the fit, which is in `hyper`; else None.

    Notes
    -----
    Printed are method, model and hyper-parameters, and of a linear model the setting for networks.
    """

    cell: Task
    split: int
    posterior: Posterior
    buffers: Mapping[str, Tensor]
    hyper: Mapping[str, float]
    exact: bool = False
    noise_precision: float | None = None

    def __repr__(self) -> str:
        settings, problem = self.cell.settings, self.evaluation.problem
        components = (settings.method, settings.model)
        names = [component.name for component in components if component is not None]
        values = [f"{name}={value:.4g}" for name, value in self.hyper.items()]
        if self.noise_precision is not None:
            values.append(f"noise_precision of predictions={self.noise_precision:.4g}")
        summary = f"Fitted({', '.join([*names, *values])})"
        if problem is not None and isinstance(problem.model, LinearModel):
            summary += '\nlinear; for a network: method="deep-ensemble", model="mlp"'
        return summary

    @property
    def problem(self) -> Problem:
        """Model, likelihood and prior.

        `InputError` for the posterior of a stream, which has none.
        """
        return self.evaluation.model

    @property
    def predictive_hyper(self) -> dict[str, float]:
        """Hyper-parameters of predictions: `hyper`, but for a `noise_precision` of their own."""
        if self.noise_precision is None:
            return dict(self.hyper)
        return {**self.hyper, "noise_precision": self.noise_precision}

    @cached_property
    def evaluation(self) -> Evaluation:
        """The argument of metrics, which are functions.

        For instance: ``bdl.metrics.METRICS.build("rmse", {})(fitted.evaluation)``.
        """
        evaluation = make_evaluation(
            self.cell, self.split, self.posterior, self.buffers, self.predictive_hyper
        )
        return replace(evaluation, fitted_hyper=self.hyper)

    @validate_arguments
    def sample(self, n: Annotated[int, Ge(1), Le(10**7)] = 1, seed: Seed = 0) -> Array:
        """Draw parameter vectors, (n, D)."""
        return sample_parameters(self.double(), n, seed).numpy()

    @validate_arguments
    def to_inferencedata(self, draws: Count = 1000, seed: Seed = 0) -> Any:
        """Convert to `arviz.InferenceData`, for plots and diagnostics of any method's draws.

        Parameters
        ----------
        draws
            Draws of the posterior; an ensemble, and what a sampler left, is taken as it is.
        seed
            Seed of the draws.

        Returns
        -------
        arviz.InferenceData
            One chain. Group ``posterior`` has ``theta``, (1, S, D); ``log_likelihood`` the
            log-density of each training row under each draw, nats, targets in original units;
            ``observed_data`` these targets.

        Raises
        ------
        InputError
            If the method left no distribution of parameters, or arviz is missing (``pip install
            'bdl-bench[mcmc]'``).
        """
        arviz = import_optional("arviz", "to_inferencedata")
        theta = draw_parameters(self, draws, seed)
        training = self.evaluation.trained
        outputs = self.evaluation.outputs(training, self.draws, vectors=theta)
        likelihood = build_target_distribution(
            self.problem, outputs, as_tensors(self.predictive_hyper)
        ).log_prob(training.y)
        return arviz.from_dict(
            posterior={"theta": theta.numpy()[None]},
            log_likelihood={"y": likelihood.numpy()[None]},
            observed_data={"y": training.y.numpy()},
            dims={"theta": ["parameter"], "y": ["row"]},
            attrs=describe_fit(self),
        )

    def log_density(self, theta: ArrayLike) -> Array:
        """Evaluate the posterior's log-density in nats, (..., D) -> (...).

        `InputError` if the last axis has another length than D, or a value is not a finite number.
        """
        posterior = self.double()
        vectors = torch.from_numpy(np.array(as_numbers(theta, "theta")))
        if vectors.ndim == 0 or vectors.shape[-1] != self.posterior.dim:
            raise InputError(f"theta is {tuple(vectors.shape)}: give (..., {self.posterior.dim})")
        return posterior.log_prob(vectors).numpy()

    def predict(self, x: Any) -> Array:
        """Predict targets in original units, or classes.

        Predictions are exact where `predict_distribution` is, and else an average over draws.

        Parameters
        ----------
        x
            Inputs in original units, (n, d), or images as the data set has them. Columns of a
            frame are matched by name with those that were fitted.

        Returns
        -------
        ndarray
            The predictive mean of each row, or its most probable class; (n,).

        Raises
        ------
        InputError
            If the inputs have another shape or type, other columns, or are not finite, or there is
            no model.
        """
        rows = self._examples(x)
        if self._has_closed_form:
            law = self._predict_exactly(rows)
            prediction = law.probs.argmax(1) if isinstance(law, Categorical) else law.mean
            return prediction.double().numpy()
        predicted = self.evaluation.predict(rows, self.draws)
        if predicted.probabilities.shape[1]:
            return predicted.probabilities.argmax(1).cpu().double().numpy()
        return predicted.mean.cpu().numpy()

    def predict_distribution(self, x: Any) -> Distribution:
        """Return the predictive distribution of each row; arguments and errors as in `predict`.

        That of an `exact` fit is exact for a Gaussian posterior of a linear model, or of a
        linearised one, with a Gaussian likelihood (closed form) or a Bernoulli one (quadrature),
        and does not depend on a seed. Any other is the mixture over posterior draws.

        Returns
        -------
        torch.distributions.Distribution
            Over targets in original units or classes, batch shape (n,), float64: for numbers a
            normal distribution or a mixture, with ``mean``, ``variance``, ``log_prob``, ``cdf``,
            ``icdf`` and ``sample``; for classes a `Categorical` with ``probs``.
        """
        rows = self._examples(x)
        if self._has_closed_form:
            return self._predict_exactly(rows)
        if not self.problem.likelihood.fits(0):
            # as logarithms, since PyTorch raises small probabilities to the precision of float64
            log_probabilities = self.evaluation.predict(rows, self.draws).probabilities.cpu().log()
            return Categorical(logits=log_probabilities, validate_args=False)
        return EqualMixture.of(self.evaluation.members(rows, self.draws))

    @validate_arguments
    def predict_interval(self, x: Any, level: Annotated[float, Gt(0), Lt(1)] = 0.9) -> Array:
        """Return the central interval of each row in original units.

        The other errors are those of `predict`.

        Parameters
        ----------
        x
            As in `predict`.
        level
            Probability within the interval; as much lies below as above.

        Returns
        -------
        ndarray
            Lower and upper ends, (n, 2).

        Raises
        ------
        InputError
            If the targets are labels.
        """
        distribution = self.predict_distribution(x)
        if isinstance(distribution, Categorical):
            raise InputError("labels have no intervals: use predict_distribution(x).probs")
        return torch.stack(central_interval(distribution, level), -1).numpy()

    @validate_arguments
    def save(self, path: str | Path) -> None:
        """Write it to a file that `bdl.load` reads: a pickle, data included.

        `InputError` if the model cannot be pickled.
        """
        write_pickle(self, path)

    @property
    def _has_closed_form(self) -> bool:
        return self.exact and has_closed_form(self.problem, self.posterior)

    def _predict_exactly(self, rows: Examples) -> Distribution:
        posterior = cast(GaussianPosterior, self.posterior)
        hyper = as_tensors(self.predictive_hyper)
        return predict_exactly(self.problem, posterior, rows, hyper, self.buffers)

    @property
    def draws(self) -> Draws:
        """The number and the key of the draws that its scores use."""
        return Draws(self.evaluation.samples, self.evaluation.key)

    def double(self) -> Posterior:
        """Return the posterior in float64 on the CPU.

        `InputError` if the method left none over parameters.
        """
        if is_predictive(self.posterior):
            raise InputError(
                "the method left predictions, and no distribution of parameters: use predict"
            )
        return as_type(self.posterior, torch.float64, torch.device("cpu"))

    def _examples(self, x: Any) -> Examples:
        """Standardise new inputs, which have no targets."""
        self.problem  # noqa: B018  # a stream has none, and says so
        data = self.cell.data
        x_values = as_inputs(reorder_columns(x, data.columns, "x"), "x")
        if x_values.shape[1:] != data.x.shape[1:] or x_values.dtype != data.x.dtype:
            expected_shape = ", ".join(["n", *map(str, data.x.shape[1:])])
            raise InputError(
                f"x is {x_values.dtype} of shape {x_values.shape}: "
                f"give {data.x.dtype}, ({expected_shape})"
            )
        return standardise_examples(self.cell, self.split, x_values, np.zeros(len(x_values)))


@validate_arguments
def load(path: str | Path) -> Fitted:
    """Read a fit that `Fitted.save` wrote.

    It is a pickle, which may run code: load files that you trust alone.

    `InputError` if there is no such file, or it holds something else.
    """
    return read_pickle(path, Fitted)


T = TypeVar("T")


def write_pickle(content: object, path: str | Path) -> None:
    """Pickle a fit or an estimator to a file.

    `InputError` if its model cannot be pickled.
    """
    try:
        pickled = pickle.dumps(content)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"save: {error}: define the model's class in a module, not in a function"
        ) from None
    except RuntimeError as error:  # as parametrised modules of PyTorch raise
        raise InputError(f"save: {error}: give the model as a factory, by its name") from None
    Path(path).write_bytes(pickled)


def read_pickle(path: str | Path, kind: type[T]) -> T:
    """Read a file that `save` of a class wrote; errors as in `load`."""
    try:
        content = pickle.loads(Path(path).read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:  # whatever damaged bytes make pickle raise
        raise InputError(
            f"{path} is not a saved fit, or one of another version ({error}): fit and save it"
        ) from None
    if not isinstance(content, kind):
        raise InputError(
            f"{path} has {type(content).__name__} in it: give a file that {kind.__name__}.save wrote"
        )
    return content


def draw_parameters(fitted: Fitted, draws: int, seed: int) -> Tensor:
    """Draw parameter vectors, (S, D), float64; a posterior of atoms is taken as it is."""
    posterior = fitted.double()
    atoms: Tensor | None = getattr(posterior, "atoms", None)
    return sample_parameters(posterior, draws, seed) if atoms is None else atoms


def sample_parameters(posterior: Posterior, draws: int, seed: int) -> Tensor:
    """Draw parameter vectors of a posterior in float64, (S, D)."""
    generator = torch.Generator().manual_seed(seed)
    return posterior.sample(
        torch.randn(draws, posterior.noise_dim, generator=generator, dtype=torch.float64)
    )


def describe_fit(fitted: Fitted) -> Mapping[str, Any]:
    """Describe a fit: the origin that is stored with its draws."""
    task = fitted.cell
    return {
        "benchmark": task.benchmark.name,
        "dataset": str(task.dataset),
        "entry": task.entry,
        "split": fitted.split,
        "hyper": json.dumps(
            {name: float(value) for name, value in fitted.predictive_hyper.items()}
        ),
        "versions": f"bdl-bench {bdl.__version__}, torch {torch.__version__}",
    }
