"""Fits by methods without minibatches, and the data that they and reference posteriors see."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.errors import InputError
from bdl.methods.base import DirectMethod, ExternalMethod
from bdl.methods.counters import StepCounters
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior
from bdl.rng import trial_keys
from bdl.runtime import one_thread
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import EvaluationSchedule, Progress, Snapshot, silent
from bdl.training.states import stacked_buffers
from bdl.training.trials import Trials, fitted_scaling

if TYPE_CHECKING:
    from bdl.training.program import Program


class TrainingData(NamedTuple):
    """Rows as the model of a trial sees them, float64."""

    x: Tensor
    """Inputs, (n, d)."""
    y: Tensor
    """Targets, (n,)."""
    y_unit: float
    """Unit of `y` in original target units."""
    y_origin: float
    """Where `y` is zero, original target units."""

    @classmethod
    def of(cls, dataset: Dataset, training: Rows, rows: Rows | None = None) -> "TrainingData":
        """Standardise the training rows, or others, by the training rows, as far as the data set says."""
        scaling, chosen = fitted_scaling(dataset, [training]), training if rows is None else rows
        x = (dataset.x[chosen].reshape(len(chosen), -1) - scaling.x_mean[0]) / scaling.x_scale[0]
        y = (dataset.y[chosen] - scaling.y_mean[0]) / scaling.y_scale[0]
        return cls(torch.from_numpy(x), torch.from_numpy(y), float(scaling.y_scale[0]), float(scaling.y_mean[0]))

    def hyper(self, values: Mapping[str, float], problem: Problem) -> dict[str, Tensor]:
        """Convert hyper-parameters to the unit of `y`, float64.

        Raises
        ------
        InputError
            If one leaves the range of float64 by that.
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
class DirectFitting:
    """Fit every trial, one after the other, by a direct or an external method.

    Parameters
    ----------
    program
        What is fitted, and to what.
    trials
        Rows, hyper-parameters and identities; each trial's seed is made of its identity.

    Notes
    -----
    The state of a trial is its posterior, nothing diverges, and there is one snapshot a trial. A fit that is cut off
    begins again: there is no checkpoint.
    """

    program: "Program"
    trials: Trials

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Yield each trial as it is done, and where it shows itself before that and a look is due."""
        made: dict[object, Posterior] = {}  # replicates on the same rows have the same posterior
        for index, rows in enumerate(self.trials.rows):
            values = {name: float(value[index]) for name, value in self.trials.hyper.items()}
            key = (rows.tobytes(), *values.values()) if getattr(self.program.method, "deterministic", False) else index
            if key in made:
                yield self._snapshot(index, 0, made[key], last=True)
                continue
            shown: Iterator[tuple[int, Posterior] | None] = chain(self._shown(index, rows, values), [None])
            for found, later in pairwise(shown):
                assert found is not None, "None stands at the end"
                updates, posterior = found
                if later is None:
                    made[key] = posterior
                if later is None or (evaluations and evaluations.due(_clock(updates))):
                    yield self._snapshot(index, updates, posterior, last=later is None)
            if key not in made:
                raise InputError(f"method {type(self.program.method).__name__} showed no posterior: let fits yield one")

    def posterior(self, snapshot: Snapshot, position: int) -> Posterior:
        """Return the posterior of the trial at a position of the snapshot's `index`."""
        posterior: Posterior = tree_map(lambda leaf: leaf[position], snapshot.state)
        return posterior

    def _shown(self, index: int, rows: Rows, values: Mapping[str, float]) -> Iterator[tuple[int, Posterior]]:
        """Return the updates made and the posterior, as often as the method does."""
        data, problem = TrainingData.of(self.program.dataset, rows), self.program.problem
        seed = seed_of(self.trials, index)
        given = problem, data.x, data.y, data.hyper(values, problem), seed
        with one_thread():
            if hasattr(self.program.method, "fits"):
                yield from cast(ExternalMethod, self.program.method).fits(*given)
            else:
                yield 0, cast(DirectMethod, self.program.method).fit(*given)

    def _snapshot(self, index: int, updates: int, posterior: Posterior, last: bool) -> Snapshot:
        pool = self.program.pool
        state = tree_map(lambda leaf: leaf.unsqueeze(0).to(pool.device), posterior)
        count = torch.tensor([updates], device=pool.device)
        buffers = stacked_buffers(self.program.problem, 1, pool)
        return Snapshot(_clock(updates), (index,), state, buffers, torch.zeros_like(count), count, last)


def seed_of(trials: Trials, index: int) -> int:
    """Return the seed of a trial for random numbers that are not ours, 31 bits that libraries of any kind take."""
    return int(trial_keys([trials.identities[index]], "fit")[0, 0]) & 0x7FFFFFFF


def _clock(updates: int) -> StepCounters:
    return StepCounters(updates, 0, True, 0.0)
