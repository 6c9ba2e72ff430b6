"""The data, model, method and schedule that a group of trials shares."""

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
class TrainingSetup:
    """Data, model, method and schedule of a group of trials, and S = `samples` of its predictions.

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
        """Make trials, one for each element of the sequences."""
        return Trials.make(self.dataset, self.pool, identities, rows, hyper)

    def fitting(
        self,
        trials: Trials,
        *,
        compile: bool = False,
        slot_batch: SlotBatch | None = None,
        rows_to_predict: Sequence[Rows] = (),
    ) -> Fitting:
        """Make the fitting of trials.

        Compilation and slot batches concern minibatches alone, and `rows_to_predict` direct fits
        alone.
        """
        shared = self.dataset, self.pool, self.problem
        if isinstance(self.method, ExternalMethod):
            return DirectFitting(*shared, self.method, trials, rows_to_predict)
        assert isinstance(self.method, MinibatchMethod), "streams have a fitting of their own"
        assert self.schedule is not None, "minibatches need a schedule"
        return MinibatchFitting(*shared, self.method, self.schedule, trials, compile, slot_batch)

    def predict(
        self, trials: Trials, end: Snapshot, index: Sequence[int], rows: Rows
    ) -> Predictions:
        """Predict rows of the data set, (n,), by some trials; stacked over these.

        The result is on the device of the pool. `end` has all trials in the end, and `index` the
        positions of those that predict, which were trained on the same rows. Each draws its
        posterior samples from its stream "predict".
        """
        pool, problem, predicting = self.pool, self.problem, trials.take(index)
        device = pool.device
        trial_index = torch.as_tensor(index, device=device)
        states = as_type(tree_map(lambda leaf: leaf[trial_index], end.state), torch.float32)
        statistics = {name: value[trial_index] for name, value in end.buffers.items()}
        # the units of the targets stay float64, in which scores are computed
        view = predicting.view
        scale = as_type(view, torch.float32)._replace(y_origin=view.y_origin, y_unit=view.y_unit)
        keys = trial_keys(predicting.identities, "predict").to(device)
        training_x = pool.x[:0]
        if problem.recomputes:
            training_rows = torch.as_tensor(predicting.rows[0], device=device)
            training_x = pool.x[training_rows]
        x = pool.x[torch.as_tensor(rows, device=device)]
        y = torch.from_numpy(self.dataset.y[rows]).double().to(device)

        def predict_trial(
            state: Any, buffers: Mapping[str, Tensor], view: View, hyper: Hyper, key: Tensor
        ) -> Predictions:
            return predict(
                problem,
                self.method.posterior(state),
                Examples(view.inputs(x), y, view.y_unit, view.y_origin),
                hyper,
                buffers,
                Draws(self.samples, key),
                lambda: view.inputs(training_x),
            )

        values = self.samples * max(len(rows) * problem.widest, problem.dim)
        chunk = max(1, VALUES_AT_ONCE // max(1, values))
        return torch.func.vmap(predict_trial, chunk_size=chunk)(
            states, statistics, scale, predicting.hyper, keys
        )
