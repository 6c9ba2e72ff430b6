"""A program: the data, model, method and schedule that a group of trials shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from bdl.data import Dataset
from bdl.data.splits import Rows
from bdl.methods.base import ExternalMethod, Method, MinibatchMethod
from bdl.metrics.predictions import VALUES_AT_ONCE, Draws, Predictions, predict
from bdl.metrics.targets import Examples
from bdl.models.problem import Hyper, Problem
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys
from bdl.training.direct import DirectFitting
from bdl.training.engine import MinibatchFitting
from bdl.training.fitting import Fitting, Snapshot
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch
from bdl.training.trials import Pool, Trials, View


@dataclass(frozen=True, eq=False)
class Program:
    """What is trained, on what, and for how long.

    A prediction takes S = `samples` posterior samples.

    The data are there in original units, and as a pool on the device. Without minibatches there is
    no schedule.
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

        Compilation and slot batches concern minibatches alone, and the rows that trials predict
        direct fits alone.
        """
        shared = self.dataset, self.pool, self.problem
        if isinstance(self.method, ExternalMethod):
            return DirectFitting(*shared, self.method, trials, asked)
        assert isinstance(self.method, MinibatchMethod), "streams have a fitting of their own"
        assert self.schedule is not None, "minibatches need a schedule"
        return MinibatchFitting(*shared, self.method, self.schedule, trials, compile, slot_batch)

    def predict(
        self, trials: Trials, end: Snapshot, index: Sequence[int], rows: Rows
    ) -> Predictions:
        """Predict rows of the data set, (n,), that some trials share: stacked over these, on the device of the pool.

        `end` has all trials in the end, and `index` the positions of those that predict, which
        were trained on the same rows. Each draws its posterior samples from its stream "predict".
        """
        pool, problem, chosen = self.pool, self.problem, trials.take(index)
        device = pool.device
        where = torch.as_tensor(index, device=device)
        states = as_type(tree_map(lambda leaf: leaf[where], end.state), torch.float32)
        statistics = {name: value[where] for name, value in end.buffers.items()}
        scale = as_type(chosen.view, torch.float32)._replace(
            y_origin=chosen.view.y_origin, y_unit=chosen.view.y_unit
        )
        keys = trial_keys(chosen.identities, "predict").to(device)
        # they share what they were trained on: a split, or all of it but a fold
        seen = (
            pool.x[torch.as_tensor(chosen.rows[0], device=device)]
            if problem.recomputes
            else pool.x[:0]
        )
        x, y = (
            pool.x[torch.as_tensor(rows, device=device)],
            torch.from_numpy(self.dataset.y[rows]).double().to(device),
        )

        def one(
            state: Any, buffers: Mapping[str, Tensor], view: View, hyper: Hyper, key: Tensor
        ) -> Predictions:
            rows, draws = (
                Examples(view.inputs(x), y, view.y_unit, view.y_origin),
                Draws(self.samples, key),
            )
            return predict(
                problem,
                self.method.posterior(state),
                rows,
                hyper,
                buffers,
                draws,
                lambda: view.inputs(seen),
            )

        values = self.samples * max(len(rows) * problem.widest, problem.dim)
        chunk = max(1, VALUES_AT_ONCE // max(1, values))
        return torch.func.vmap(one, chunk_size=chunk)(
            states, statistics, scale, chosen.hyper, keys
        )
