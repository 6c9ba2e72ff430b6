"""Fits by methods that yield posteriors themselves, and the data that they and reference posteriors see."""

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
from bdl.methods.base import ExternalMethod
from bdl.methods.counters import StepCounters
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import ask, is_predictive, is_stored_whole
from bdl.rng import trial_keys
from bdl.runtime import one_thread
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import (
    EvaluationSchedule,
    Fitting,
    Progress,
    Snapshot,
    TrainingState,
    silent,
)
from bdl.training.trials import Pool, Trials, fitted_scaling


class TrainingData(NamedTuple):
    """Rows as the model of a trial sees them, float64."""

    x: Tensor  # Inputs, (n, d)
    y: Tensor  # Targets, (n,)
    y_unit: float  # Unit of `y` in original target units
    y_origin: float  # Where `y` is zero, original target units

    @classmethod
    def of(cls, dataset: Dataset, training: Rows, rows: Rows | None = None) -> "TrainingData":
        """Standardise the training rows, or others, by the training rows, as far as the data set says."""
        scaling, chosen = fitted_scaling(dataset, [training]), training if rows is None else rows
        x = (dataset.x[chosen].reshape(len(chosen), -1) - scaling.x_mean[0]) / scaling.x_scale[0]
        y = (dataset.y[chosen] - scaling.y_mean[0]) / scaling.y_scale[0]
        return cls(
            torch.from_numpy(x),
            torch.from_numpy(y),
            float(scaling.y_scale[0]),
            float(scaling.y_mean[0]),
        )

    def hyper(self, values: Mapping[str, float], problem: Problem) -> dict[str, Tensor]:
        """Convert hyper-parameters to the unit of `y`, float64.

        `InputError` if one leaves its range by that.
        """
        own = problem.likelihood.to_model_units(values, self.y_unit)
        for name, value in own.items():
            if 0 < abs(values[name]) < inf and not 0 < abs(value) < inf:
                raise InputError(
                    f"{name} {values[name]:g} is {value:g} for targets in units of {self.y_unit:g}, their standard "
                    "deviation: state the target in another unit"
                )
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in own.items()}


@dataclass(frozen=True, eq=False)
class DirectFitting(Fitting):
    """Fit every trial, one after the other, by a method that yields its posteriors.

    Each trial's seed is made of its identity. `asked` are the rows that each trial is going to
    predict: where a method leaves a function that cannot be stored, its answer there is kept in
    its place.

    The state of a trial is its posterior, nothing diverges, and there is one snapshot a trial. A
    fit that is cut off begins again: there is no checkpoint.
    """

    dataset: Dataset
    pool: Pool
    problem: Problem
    method: ExternalMethod
    trials: Trials
    asked: Sequence[Rows] = ()

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Yield each trial as it is done, and where it yields a posterior before that and an evaluation is due."""
        counted = (
            0 if self.method.limit is None else 1
        )  # other fits take no time that a bar would show
        made: dict[object, Posterior] = {}  # replicates on the same rows have the same posterior
        for index, rows in enumerate(self.trials.rows):
            values = {name: float(value[index]) for name, value in self.trials.hyper.items()}
            key = (rows.tobytes(), *values.values()) if self.method.deterministic else index
            if key in made:
                progress(counted)
                yield self._snapshot(index, 0, made[key], last=True)
                continue
            shown: Iterator[tuple[int, Posterior] | None] = chain(
                self._shown(index, rows, values), [None]
            )
            for found, later in pairwise(shown):
                assert found is not None, "None stands at the end"
                updates, posterior = found
                if later is None:
                    made[key] = posterior
                    progress(counted)
                if later is None or (evaluations and evaluations.due(StepCounters(updates))):
                    yield self._snapshot(index, updates, posterior, last=later is None)
            if key not in made:
                raise InputError(
                    f"method {type(self.method).__name__} showed no posterior: let fits yield one"
                )

    def _shown(
        self, index: int, rows: Rows, values: Mapping[str, float]
    ) -> Iterator[tuple[int, Posterior]]:
        """Yield the updates made and the posterior, as often as the method does."""
        data = TrainingData.of(self.dataset, rows)
        with one_thread():
            # of random numbers that are not ours: 31 bits, which libraries of any kind take
            seed = int(trial_keys([self.trials.identities[index]], "fit")[0, 0]) & 0x7FFFFFFF
            found = self.method.fits(
                self.problem, data.x, data.y, data.hyper(values, self.problem), seed
            )
            try:
                for updates, posterior in found:
                    yield updates, self._kept(posterior, index, rows)
            finally:
                if isinstance(
                    found, Generator
                ):  # now, so that what a method has begun ends before its errors are told
                    found.close()

    def _kept(self, posterior: Any, index: int, training: Rows) -> Any:
        """Return what is kept of a fit.

        What predicts by itself is asked in any case, so that its slips are found.
        """
        if not is_predictive(posterior):
            return posterior
        wanted = self.asked[index] if self.asked else training[:0]
        x, rows = TrainingData.of(self.dataset, training, wanted).x, torch.from_numpy(wanted)
        answer = (
            ask(posterior, x, rows, self.problem.d_out, self.problem.classes)
            if len(rows)
            else None
        )
        if is_stored_whole(posterior):
            return posterior
        if answer is None:
            raise InputError(
                f"method {type(self.method).__name__} leaves a function, of which only predictions of test rows can be "
                "kept, and there are none: let it return a NamedTuple of tensors with a __call__"
            )
        return answer._replace(rows=rows)

    def _snapshot(self, index: int, updates: int, posterior: Posterior, last: bool) -> Snapshot:
        state = tree_map(lambda leaf: leaf.unsqueeze(0).to(self.pool.device), posterior)
        fitted = TrainingState.start(state, self.problem, 1, self.pool)._replace(updates=updates)
        return fitted.snapshot(StepCounters(updates), [index], last=last)
