"""A fitted posterior with its problem."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Le, Lt
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily

from bdl.api.checking import checked
from bdl.data.conversion import in_order, inputs, numbers
from bdl.errors import InputError
from bdl.execution.scoring import evaluation, examples
from bdl.metrics.evaluation import Draws, Evaluation, Examples
from bdl.metrics.predictions import tensors_of
from bdl.models.problem import Problem
from bdl.plan.cell import Cell
from bdl.posteriors import Posterior
from bdl.posteriors.tensors import as_type

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted posterior with its problem.

    Parameters
    ----------
    cell
        What was fitted: an entry of a benchmark on a data set.
    split
        On the training rows of which split.
    posterior
        Over the flat parameter vector, D entries, of the model as it sees standardised data.
    buffers
        Running statistics of the model by name.
    hyper
        Hyper-parameters by name, in original units.
    """

    cell: Cell = field(repr=False)
    split: int
    posterior: Posterior = field(repr=False)
    buffers: Mapping[str, Tensor] = field(repr=False)
    hyper: Mapping[str, float]

    @property
    def problem(self) -> Problem:
        """Model, likelihood and prior.

        Raises
        ------
        InputError
            If the posterior is that of a stream, which has none.
        """
        return self.evaluation.model

    @cached_property
    def evaluation(self) -> Evaluation:
        """What metrics are functions of: ``bdl.metrics.METRICS.build("rmse", {})(fitted.evaluation)``."""
        return evaluation(self.cell, self.split, self.posterior, self.buffers, dict(self.hyper))

    @checked
    def sample(self, n: Annotated[int, Ge(1), Le(10**7)] = 1, seed: Annotated[int, Ge(0), Lt(2**63)] = 0) -> Array:
        """Draw parameter vectors, (n, D)."""
        generator = torch.Generator().manual_seed(seed)
        posterior = self._double()
        noise = torch.randn(n, posterior.noise_dim, generator=generator, dtype=torch.float64)
        return posterior.sample(noise).numpy()

    def log_density(self, theta: ArrayLike) -> Array:
        """Evaluate the posterior's log-density in nats, (..., D) -> (...).

        Raises
        ------
        InputError
            If the last axis has another length than D, or a value is not a finite number.
        """
        given = torch.from_numpy(np.array(numbers(theta, "theta")))
        if given.ndim == 0 or given.shape[-1] != self.posterior.dim:
            raise InputError(f"theta is {tuple(given.shape)}: give (..., {self.posterior.dim})")
        return self._double().log_prob(given).numpy()

    def predict(self, x: Any) -> Array:
        """Predict targets in original units, or classes, from the draws that its scores are made of.

        Parameters
        ----------
        x
            Inputs in original units, (n, d), or images as the data set has them. Columns of a frame are matched by name
            with those that were fitted.

        Returns
        -------
        ndarray
            The predictive mean of each row, or its most probable class; (n,).

        Raises
        ------
        InputError
            If the inputs have another shape or type, other columns, or are not finite, or there is no model.
        """
        predicted = self.evaluation.predict(self._examples(x), self._draws)
        if predicted.probabilities.shape[1]:
            return predicted.probabilities.argmax(1).cpu().double().numpy()
        return predicted.mean.cpu().numpy()

    def predict_distribution(self, x: Any) -> Distribution:
        """Return the predictive distribution of each row; arguments and errors as in `predict`.

        Returns
        -------
        torch.distributions.Distribution
            Over targets in original units or classes, batch shape (n,), float64: for numbers the mixture over posterior
            draws, with ``mean``, ``variance``, ``log_prob``, ``cdf`` and ``sample``; for classes a `Categorical` with
            ``probs``.
        """
        rows = self._examples(x)
        if not self.problem.likelihood.fits(0):
            return Categorical(probs=self.evaluation.predict(rows, self._draws).probabilities.cpu())
        f = self.evaluation.outputs(rows, self._draws)
        each = self.problem.likelihood.predictive(f.movedim(0, 1), tensors_of(self.hyper))
        return MixtureSameFamily(Categorical(probs=torch.ones(f.shape[1], len(f)).double()), each, validate_args=False)

    @property
    def _draws(self) -> Draws:
        return Draws(self.evaluation.samples, self.evaluation.key)

    def _double(self) -> Posterior:
        return as_type(self.posterior, torch.float64, torch.device("cpu"))

    def _examples(self, x: Any) -> Examples:
        """Standardise new inputs, which have no targets."""
        self.problem  # noqa: B018  # a stream has none, and says so
        data = self.cell.data
        given = inputs(in_order(x, data.columns, "x"), "x")
        if given.shape[1:] != data.x.shape[1:] or given.dtype != data.x.dtype:
            wanted = ("n", *map(str, data.x.shape[1:]))
            raise InputError(f"x is {given.dtype} of shape {given.shape}: give {data.x.dtype}, ({', '.join(wanted)})")
        return examples(self.cell, self.split, given, np.zeros(len(given)))
