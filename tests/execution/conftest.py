"""A store, and a benchmark of which everything is tiny."""

import pytest
import torch

from bdl.plan.planning import plan_tasks
from bdl.records.run_folder import RunFolder
from bdl.spec import load_benchmark

DATA = """
import numpy as np
from bdl.data import Dataset


def line():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    return Dataset("line", x, x @ [3.0, -4.0] + rng.normal(size=60))
"""

TINY = """
name: tiny
title: Everything is tiny
datasets: [diabetes, OWN]
splits: 2
preparation: {rows: 40}
entries:
  rounds:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 2, batch_size: 5}
    hyper: {learning_rate: 0.01, noise_precision: 0.001}
    search:
      sampler: bayesian
      trials: 3
      startup: 1
      folds: 2
      metric: nmll
      space: {prior_precision: {low: 0.1, high: 1}}
  random:
    model: {name: mlp, hidden: [3]}
    likelihood: {name: gaussian}
    method: {name: swag, rank: 2, warmup_epochs: 2}
    training: {epochs: 4, batch_size: 5}
    hyper: {learning_rate: 0.001, noise_precision: 0.001}
    search: {sampler: random, trials: 2, folds: 2, metric: nmll, space: {prior_precision: {low: 0.1, high: 1}}}
  exact:
    model: {name: linear}
    likelihood: {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 0.001}
evaluation: {samples: 5}
metrics: [nmll, rmse, runtime]
"""


@pytest.fixture
def finish(ran, blank_figures):
    """Run the command line in this process, with one thread, as the processes have that tests kill."""

    def call(folder, *words):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        ran(folder, *words)
        torch.set_num_threads(threads)

    return call


@pytest.fixture
def store(tmp_path):
    with RunFolder(tmp_path / "results/store") as opened:
        yield opened


@pytest.fixture
def line(tmp_path):
    """Name of a small data set of our own: two inputs, 54 training rows."""
    (tmp_path / "line.py").write_text(DATA)
    return f"{tmp_path}/line.py:line"


@pytest.fixture
def tiny(tmp_path, line):
    """Lay out cells of the tiny benchmark, with changes; of all entries or some."""

    def cells(*overrides, entries=(), splits=(0, 1)):
        path = tmp_path / "tiny.yaml"
        path.write_text(TINY.replace("OWN", f"'{line}'"))
        benchmark = load_benchmark(str(path), overrides=list(overrides)).select(entries=entries)
        return plan_tasks(
            benchmark,
            splits=[split for split in splits if split < benchmark.splits],
            compile=False,
        )

    return cells
