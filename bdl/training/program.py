"""A program: the data, model, method and schedule that a group of trials shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.methods.base import ExternalMethod, Method, MinibatchMethod
from bdl.models.problem import Problem
from bdl.posteriors.base import Posterior
from bdl.training.direct import DirectFitting
from bdl.training.engine import MinibatchFitting
from bdl.training.fitting import Fitting
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch
from bdl.training.trials import Pool, Trials


@dataclass(frozen=True, eq=False)
class Program:
    """What is trained, and on what.

    Parameters
    ----------
    dataset, pool
        The data in original units, and on the device.
    problem, method, schedule
        What is trained and for how long; no schedule for a method without minibatches.
    samples
        Posterior samples of a prediction, S.
    """

    dataset: Dataset
    pool: Pool
    problem: Problem
    method: Method
    schedule: Schedule | None
    samples: int = 100

    def trials(
        self,
        identities: Sequence[Sequence[object]],
        rows: Sequence[Rows],
        hyper: Sequence[Mapping[str, float]],
    ) -> Trials:
        """Describe trials; one element of each sequence a trial."""
        return Trials.make(self.dataset, self.pool, identities, rows, hyper)

    def fitting(
        self,
        trials: Trials,
        *,
        compile: bool = False,
        slot_batch: SlotBatch | None = None,
        asked: Sequence[Rows] = (),
    ) -> Fitting:
        """Describe how they are fitted.

        Compilation and slot batches concern minibatches alone, and the rows that trials predict direct fits alone.
        """
        shared = self.dataset, self.pool, self.problem
        if isinstance(self.method, ExternalMethod):
            return DirectFitting(*shared, self.method, trials, asked)
        assert isinstance(self.method, MinibatchMethod), "streams have a fitting of their own"
        assert self.schedule is not None, "minibatches need a schedule"
        return MinibatchFitting(*shared, self.method, self.schedule, trials, compile, slot_batch)

    def posterior(self, state: Any) -> Posterior:
        """Return the posterior of one trial's state; that of a direct fit is its state."""
        posterior: Posterior = self.method.posterior(state) if isinstance(self.method, MinibatchMethod) else state
        return posterior
