"""Logistic regressions by natural gradients, as `slang-logistic` has them, for the engine and its peers."""

from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from torch.utils._pytree import tree_map

from bdl.methods.base import MinibatchMethod
from bdl.methods.counters import StepCounters
from bdl.methods.natural_gradient import NaturalGradient
from bdl.methods.slang import Slang
from bdl.models.networks import LinearModel
from bdl.plan.fittings import build_training_setup
from bdl.plan.planning import list_tasks
from bdl.spec import load_benchmark
from bdl.training.engine import MinibatchFitting
from bdl.training.schedule import Schedule
from peers.natural_loop import Algorithm, LoopModel, NaturalLoop, Rows, SlangLoop
from peers.workload import Workload

BENCHMARK = "slang-logistic"


@dataclass(frozen=True, eq=False)
class Regressions(Workload[MinibatchMethod]):
    """Models of one entry on one data set.

    Parameters
    ----------
    schedule
        Of the entry; epochs are as many as are asked for.
    """

    schedule: Schedule = field(kw_only=True)

    def fitting(self, epochs: int, *, compile: bool) -> MinibatchFitting:
        """Describe the engine's training of all models."""
        schedule = replace(self.schedule, epochs=epochs)
        return MinibatchFitting(
            self.dataset, self.pool, self.problem, self.method, schedule, self.trials, compile
        )

    @property
    def per_epoch(self) -> int:
        """Updates of an epoch."""
        return self.schedule.batches(len(self.trials.rows[0]))

    @property
    def algorithm(self) -> Algorithm:
        """What the peers train by."""
        if isinstance(self.method, Slang):
            return SlangLoop(self.method.rank, self.method.momentum)
        assert isinstance(self.method, NaturalGradient), (
            "the benchmark has no other that the peers know"
        )
        return NaturalLoop(self.method.curvature, self.method.structure)

    @property
    def samples(self) -> int:
        """Parameter samples of an update, S."""
        return cast(NaturalGradient | Slang, self.method).samples

    def rate(self, update: int) -> float:
        """Return the learning rate of an update, from 1: that of the mean and of the precision."""
        counters = StepCounters(update, 0, False, self.per_epoch)
        return (
            float(self.trials.hyper["learning_rate"][0])
            * self.schedule.factors(counters, ("mean", "precision"))[0]
        )

    def table(self, model: int) -> Rows:
        """Return the whole data set as a model sees it."""
        view, hyper = tree_map(
            lambda leaf: leaf[model], (self.trials.view, dict(self.trials.hyper))
        )
        batch = view.batch(self.pool.x, self.pool.y)
        prior = self.problem.prior_precision(hyper).expand(self.problem.dim)
        x = cast(LinearModel, self.problem.model).design(batch.x)
        return Rows(x.numpy(), batch.y.numpy(), batch.n.numpy(), prior.numpy())

    def training(self, model: int) -> Rows:
        """Return the training rows of a model."""
        return self.table(model).take(self.trials.rows[model])

    def loop(self, model: int) -> LoopModel:
        """Make the plain loop of a model."""
        return LoopModel(
            self.algorithm, self.training(model), self.rate, self.samples, self.batch_size
        )


def make(dataset: str, entry: str, models: int) -> Regressions:
    """Make models of an entry, on the benchmark's splits in turn.

    A1a has one alone, whose rows all see then.
    """
    (cell,) = list_tasks(load_benchmark(BENCHMARK).select([dataset], [entry]))
    shared, splits = (
        build_training_setup(cell),
        [cell.splits[i % len(cell.splits)] for i in range(models)],
    )
    identities = [(*cell.identity, "bench_natural_gradients", i) for i in range(models)]
    rows = [cell.data.split(split).train for split in splits]
    trials = shared.trials(identities, rows, [cell.settings.hyper] * models)
    method, schedule = cast(MinibatchMethod, shared.method), cast(Schedule, shared.schedule)
    given = method, shared.problem, shared.dataset, shared.pool, trials, schedule.batch_size
    return Regressions(*given, schedule=schedule)


def stacked(tables: list[Rows]) -> Rows:
    """Put the rows of several models into arrays with one axis more, the first."""
    return Rows(*(np.stack(parts) for parts in zip(*tables, strict=True)))
