"""Guests of a third party, in one file, and benchmarks that bring them."""

import pytest
from execution.listeners import Ear

from bdl.execution import scheduler
from bdl.execution.worker_pool import WorkerPool
from bdl.plan.planning import plan_tasks
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark

GUESTS = '''
import collections
import itertools
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from bdl.methods.guest import Guest
from bdl.posteriors import FullGaussian
from bdl.posteriors.predictive import MeanVariance, Outputs, Probabilities


def posterior(train, hyper):
    design = np.column_stack([train.x, np.ones(len(train.x))])
    alpha, beta = hyper["prior_precision"], hyper["noise_precision"]
    covariance = np.linalg.inv(alpha * np.eye(design.shape[1]) + beta * design.T @ design)
    return beta * covariance @ design.T @ train.y, covariance


@dataclass(frozen=True)
class Weights(Guest):
    """Bayesian linear regression, as a distribution of the weights."""

    def fit(self, train, hyper, seed):
        return FullGaussian.from_covariance(*map(torch.from_numpy, posterior(train, hyper)))


class Line(NamedTuple):
    """Its predictive distribution, in tensors."""

    mean: torch.Tensor
    covariance: torch.Tensor
    noise: torch.Tensor

    def __call__(self, x):
        design = torch.cat([x, torch.ones(len(x), 1)], 1)
        return MeanVariance(design @ self.mean, ((design @ self.covariance) * design).sum(1) + self.noise)


@dataclass(frozen=True)
class Whole(Guest):
    """Bayesian linear regression, as something that predicts and can be stored."""

    def fit(self, train, hyper, seed):
        noise = torch.tensor(1 / hyper["noise_precision"], dtype=torch.float64)
        return Line(*map(torch.from_numpy, posterior(train, hyper)), noise)


@dataclass(frozen=True)
class Closure(Whole):
    """Bayesian linear regression, as a function of which nothing but answers can be stored."""

    def fit(self, train, hyper, seed):
        line = super().fit(train, hyper, seed)
        return lambda x: line(x)


@dataclass(frozen=True)
class Samples(Guest):
    """Bayesian linear regression, as outputs at draws from the global generator of NumPy."""

    def fit(self, train, hyper, seed):
        draws = np.random.multivariate_normal(*posterior(train, hyper), size=2000)
        return lambda x: Outputs(draws[:, :-1] @ x.numpy().T + draws[:, -1:])


@dataclass(frozen=True)
class Shares(Guest):
    """Shares of the classes among the training rows."""

    self_tuned = True

    @property
    def hyper(self):
        return ("unused",)

    def fit(self, train, hyper, seed):
        shares = np.bincount(train.y.astype(int), minlength=train.classes) / len(train.y)
        return lambda x: Probabilities(np.tile(shares, (len(x), 1)))


@dataclass(frozen=True)
class Wrong(Guest):
    """What can go wrong."""

    kind: str = "short"
    self_tuned = True

    @property
    def hyper(self):
        return ("size",)

    def fit(self, train, hyper, seed):
        if self.kind == "slow":
            while True:
                time.sleep(0.01)
        if self.kind == "hung":  # a loop in C, which hears no alarm
            collections.deque(itertools.repeat(0), maxlen=0)
        if self.kind == "raises" and hyper["size"] > 0.5:
            raise RuntimeError("the matrix is singular")
        if self.kind == "dead":
            raise SystemExit(3)
        if self.kind == "panics":  # as a library in Rust does
            raise type("PanicException", (BaseException,), {})("the mutex is poisoned")
        rows = 3 if self.kind == "short" else None
        return lambda x: MeanVariance(np.zeros(rows or len(x)), np.ones(rows or len(x)))
'''

BENCHMARK = """
name: guests
title: Guests
datasets: [diabetes]
splits: 2
entries: {ENTRIES}
evaluation: {samples: 2000}
metrics: [nmll, rmse, log_evidence]
"""
CONJUGATE = "name: conjugate"


def line(method, hyper="hyper: {prior_precision: 10, noise_precision: 3e-4}", name="line"):
    """Bayesian linear regression, by a method."""
    return f"{name}: {{model: {{name: linear}}, likelihood: {{name: gaussian}}, method: {{{method}}}, {hyper}}}"


@pytest.fixture
def store(tmp_path):
    with RunFolder(tmp_path / "results/store") as opened:
        yield opened


@pytest.fixture
def guest(tmp_path):
    """Name a guest of the file, as an entry does."""
    (tmp_path / "guests.py").write_text(GUESTS)
    return lambda name: f"name: '{tmp_path}/guests.py:{name}'"


@pytest.fixture
def cells(tmp_path):
    """Lay out the cells of entries, with changes of the benchmark."""

    def made(entries, *overrides, splits=(0, 1)):
        path = tmp_path / "guests.yaml"
        path.write_text(BENCHMARK.replace("ENTRIES", entries))
        return plan_tasks(
            load_benchmark(str(path), overrides=list(overrides)),
            splits=list(splits),
            compile=False,
        )

    return made


@pytest.fixture
def rows(cells, store):
    """Run entries in this process; give the rows of the first, of a stage."""

    def ran(entries, *overrides, splits=(0, 1), stage="final"):
        planned = cells(entries, *overrides, splits=splits)
        scheduler.prepare_run_folder(planned, store)
        scheduler.run_tasks(planned, store, WorkerPool(), Ear())
        return store.load_rows(stage, planned[0].key)

    return ran
