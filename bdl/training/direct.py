"""Fits by methods that yield posteriors themselves, and the data that such a method is given.

Reference posteriors are given the same data.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.errors import InputError
from bdl.methods.base import Direct, ExternalMethod
from bdl.methods.contract_check import returned_by
from bdl.methods.counters import StepCounters
from bdl.methods.guest import Guest
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior, check_posterior
from bdl.posteriors.predictive import (
    check_row_independence,
    is_predictive,
    is_stored_whole,
    query_predictive,
)
from bdl.rng import trial_keys
from bdl.runtime import one_thread
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import (
    EvaluationSchedule,
    Fitting,
    Progress,
    Snapshot,
    TrainingState,
    ignore_progress,
)
from bdl.training.trials import Pool, Trials, fit_scaling


class TrainingData(NamedTuple):
    """Rows as the model of a trial sees them, float64."""

    x: Tensor  # Inputs, (n, d)
    y: Tensor  # Targets, (n,)
    y_unit: float  # Unit of `y` in original target units
    y_origin: float  # Where `y` is zero, original target units

    @classmethod
    def of(cls, dataset: Dataset, training: Rows, rows: Rows | None = None) -> "TrainingData":
        """Standardise rows by the training rows, as far as the data set says.

        `rows` are the training rows themselves if left out.
        """
        scaling = fit_scaling(dataset, [training])
        scaled_rows = training if rows is None else rows
        x = (
            dataset.x[scaled_rows].reshape(len(scaled_rows), -1) - scaling.x_mean[0]
        ) / scaling.x_scale[0]
        y = (dataset.y[scaled_rows] - scaling.y_mean[0]) / scaling.y_scale[0]
        return cls(
            torch.from_numpy(x),
            torch.from_numpy(y),
            float(scaling.y_scale[0]),
            float(scaling.y_mean[0]),
        )

    def hyper(self, values: Mapping[str, float], problem: Problem) -> dict[str, Tensor]:
        """Convert hyper-parameters to the unit of `y`, float64.

        `InputError` if one becomes zero or infinite by that.
        """
        model_values = problem.likelihood.to_model_units(values, self.y_unit)
        for name, value in model_values.items():
            if 0 < abs(values[name]) < inf and not 0 < abs(value) < inf:
                raise InputError(
                    f"{name} {values[name]:g} is {value:g} for targets in units of "
                    f"{self.y_unit:g}, their standard deviation: state the target in another unit"
                )
        return {
            name: torch.tensor(value, dtype=torch.float64) for name, value in model_values.items()
        }


@dataclass(frozen=True, eq=False)
class DirectFitting(Fitting):
    """Fit every trial, one after the other, by a method that yields its posteriors.

    Each trial's seed is made of its identity. `rows_to_predict` are the rows that each trial is
    going to predict: where a method returns a function that cannot be stored, its predictions of
    these rows are stored instead.

    The state of a trial is its posterior, no trial diverges, and there is one snapshot for each
    trial. A fit that is interrupted starts anew: there is no checkpoint.
    """

    dataset: Dataset
    pool: Pool
    problem: Problem
    method: ExternalMethod
    trials: Trials
    rows_to_predict: Sequence[Rows] = ()

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = ignore_progress,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Yield each trial when it is finished.

        A trial whose method yields earlier posteriors is yielded with them as well, when an
        evaluation is due.
        """
        posteriors: dict[
            object, Posterior
        ] = {}  # replicates on the same rows have the same posterior
        for index, rows in enumerate(self.trials.rows):
            values = {name: float(value[index]) for name, value in self.trials.hyper.items()}
            key = (rows.tobytes(), *values.values()) if self.method.deterministic else index
            if key in posteriors:
                progress(1)
                yield self._snapshot(index, 0, posteriors[key], last=True)
                continue
            # None marks the end, so that each estimate is known to be the last, or not
            estimates: Iterator[tuple[int, Posterior] | None] = chain(
                self._fit_estimates(index, rows, values), [None]
            )
            for estimate, next_estimate in pairwise(estimates):
                assert estimate is not None, "None stands at the end"
                updates, posterior = estimate
                last = next_estimate is None
                if last:
                    posteriors[key] = posterior
                    progress(1)
                if last or (evaluations and evaluations.due(StepCounters(updates))):
                    yield self._snapshot(index, updates, posterior, last=last)
            if key not in posteriors:
                raise InputError(
                    f"method {type(self.method).__name__} showed no posterior: let fits yield one"
                )

    def _fit_estimates(
        self, index: int, rows: Rows, values: Mapping[str, float]
    ) -> Iterator[tuple[int, Posterior]]:
        """Yield the number of updates and the posterior, as often as the method does."""
        data = TrainingData.of(self.dataset, rows)
        with one_thread():
            # seeds libraries of any kind, which take 31 bits
            seed = int(trial_keys([self.trials.identities[index]], "fit")[0, 0]) & 0x7FFFFFFF
            hyper = data.hyper(values, self.problem)
            estimates = self.method.fits(self.problem, data.x, data.y, hyper, seed)
            try:
                for updates, posterior in estimates:
                    with returned_by(self.method, self._fit_function, posterior):
                        if not is_predictive(posterior):
                            check_posterior(posterior, self.problem.dim)
                        storable_posterior = self._storable_posterior(posterior, index, rows)
                    yield updates, storable_posterior
            finally:
                # closed now, so that what a method has begun ends before its errors are reported
                if isinstance(estimates, Generator):
                    estimates.close()

    @property
    def _fit_function(self) -> str:
        """Name of the function of the method that returns its posteriors."""
        return "fit" if isinstance(self.method, Direct | Guest) else "fits"

    def _storable_posterior(self, posterior: Any, index: int, training: Rows) -> Any:
        """Return the posterior, or its predictions if it is a function that cannot be stored.

        A posterior that predicts by itself predicts in any case, so that its errors are found.
        """
        if not is_predictive(posterior):
            return posterior
        rows_to_predict = self.rows_to_predict[index] if self.rows_to_predict else training[:0]
        row_numbers = torch.from_numpy(rows_to_predict)
        x = TrainingData.of(self.dataset, training, rows_to_predict).x
        answer = None
        if len(row_numbers):
            answer = query_predictive(
                posterior, x, row_numbers, self.problem.d_out, self.problem.classes
            )
            # after the predictions, whose random numbers it would change
            check_row_independence(posterior, x, self.problem.d_out, self.problem.classes)
        if is_stored_whole(posterior):
            return posterior
        if answer is None:
            raise InputError(
                f"method {type(self.method).__name__} leaves a function, of which only "
                "predictions of test rows can be kept, and there are none: let it return a "
                "NamedTuple of tensors with a __call__"
            )
        return answer._replace(rows=row_numbers)

    def _snapshot(self, index: int, updates: int, posterior: Posterior, last: bool) -> Snapshot:
        state = tree_map(lambda leaf: leaf.unsqueeze(0).to(self.pool.device), posterior)
        trained = TrainingState.start(state, self.problem, 1, self.pool)._replace(updates=updates)
        return trained.snapshot(StepCounters(updates), [index], last=last)
