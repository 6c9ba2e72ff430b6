"""Methods of others that return something wrong end in one line that names their file."""

from pathlib import Path

import numpy as np
import pytest
from tiny import TINY, refusal

import bdl
from bdl.errors import InputError

pytestmark = pytest.mark.usefixtures("blank_figures")

METHOD = """from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from bdl.methods.base import MinibatchMethod
from bdl.posteriors import DiagonalGaussian


class State(NamedTuple):
    mean: Tensor
    precision: Tensor


@dataclass(frozen=True)
class Mine(MinibatchMethod):
    def init(self, problem, noise):
        theta = noise["theta"]
        return State(0.1 * theta, torch.full_like(theta, 100.0))

    def step(self, state, batch, hyper, noise, problem):
        def loss(theta):
            joint = problem.log_likelihood(theta, batch, hyper) + problem.log_prior(theta, hyper)
            return -joint / batch.n

        mean = state.mean - hyper["learning_rate"] * torch.func.grad(loss)(state.mean)
        return State(mean, state.precision)

    def posterior(self, state):
        return DiagonalGaussian(state.mean, state.precision.reciprocal())
"""
DIRECT = """from dataclasses import dataclass

import torch

from bdl.methods.base import Direct
from bdl.posteriors import DiagonalGaussian


@dataclass(frozen=True)
class Mine(Direct):
    def fit(self, problem, x, y, hyper, seed):
        zeros = torch.zeros(problem.dim)
        return RETURNED
"""
INIT, STEP, POSTERIOR = (
    METHOD[: METHOD.index(f"def {name}")].count("\n") + 1 for name in ("init", "step", "posterior")
)
RETURNED = "DiagonalGaussian(state.mean, state.precision.reciprocal())"
INITIAL = "State(0.1 * theta, torch.full_like(theta, 100.0))"
UPDATED = "State(mean, state.precision)"


@pytest.fixture
def run(tiny, invoke):
    """Run the benchmark by a method in a file."""

    def call(text, *words):
        Path("mine.py").write_text(text, "utf-8")
        benchmark = TINY.replace("{name: vifa, gradients_per_update: 2}", "{name: mine.py:Mine}")
        tiny.write_text(benchmark, "utf-8")
        return invoke("run", "tiny.yaml", "--no-compile", "--tracking", "none", *words)

    return call


def located(line):
    return f"({Path('mine.py').resolve()}, line {line})"


WRONG = {
    "scalar variance": (
        RETURNED,
        "DiagonalGaussian(state.mean, state.precision.mean())",
        POSTERIOR,
        "Mine.posterior returned a DiagonalGaussian: var has shape (): give it shape (11,)",
    ),
    "scalar precision": (
        INITIAL,
        "State(0.1 * theta, torch.tensor(100.0))",
        POSTERIOR,
        "Mine.posterior returned a DiagonalGaussian: var has shape (): give it shape (11,)",
    ),
    "mean alone": (
        RETURNED,
        "state.mean",
        POSTERIOR,
        "Mine.posterior returned a tensor of shape (11,): return a posterior of bdl.posteriors",
    ),
    "short mean": (
        RETURNED,
        "DiagonalGaussian(state.mean[:-1], state.precision[:-1])",
        POSTERIOR,
        "Mine.posterior returned a DiagonalGaussian: loc has shape (10,): give it shape (11,)",
    ),
    "column": (
        RETURNED,
        "DiagonalGaussian(state.mean[:, None], state.precision)",
        POSTERIOR,
        "Mine.posterior returned a DiagonalGaussian: loc has shape (11, 1): give it shape (11,)",
    ),
    "no posterior": (
        f"return {RETURNED}",
        RETURNED,
        POSTERIOR,
        "Mine.posterior returned None: return a posterior of bdl.posteriors",
    ),
    "posterior of another type": (
        RETURNED,
        "DiagonalGaussian(state.mean.double(), state.precision)",
        POSTERIOR,
        "Mine.posterior returned a DiagonalGaussian: loc is float64: make it float32",
    ),
    "posterior that is not finite": (
        RETURNED,
        "DiagonalGaussian(state.mean, (-state.precision).sqrt())",
        POSTERIOR,
        "Mine.posterior returned a DiagonalGaussian: var has values that are not finite",
    ),
    "NaN in init": (
        INITIAL,
        "State(theta.log(), torch.full_like(theta, 100.0))",
        INIT,
        "Mine.init returned a State: mean has values that are not finite",
    ),
    "type of init": (
        INITIAL,
        "State(0.1 * theta.double(), torch.full_like(theta, 100.0))",
        INIT,
        "Mine.init returned a State: mean is float64: make it float32",
    ),
    "number in init": (
        INITIAL,
        "State(0.1 * theta, 100.0)",
        INIT,
        "Mine.init returned a State: precision is a float: return tensors",
    ),
    "no state": (f"return {INITIAL}", INITIAL, INIT, "Mine.init returned None: return tensors"),
    "state that changes its shape": (
        UPDATED,
        "State(mean, state.precision.mean())",
        STEP,
        "Mine.step returned a State: precision has shape (): give it shape (11,)",
    ),
    "state that changes its type": (
        UPDATED,
        "State(mean, state.precision.double())",
        STEP,
        "Mine.step returned a State: precision is float64: make it float32",
    ),
    "state of another structure": (
        UPDATED,
        "mean",
        STEP,
        "Mine.step returned a tensor of shape (11,): return the new state, a State as `init` does",
    ),
    "step without return": (
        f"return {UPDATED}",
        UPDATED,
        STEP,
        "Mine.step returned None: return the new state, a State as `init` does",
    ),
    "step that diverges": (
        UPDATED,
        "State(mean / 0, state.precision)",
        STEP,
        "Mine.step returned a State: mean has values that are not finite",
    ),
}


def test_the_method_is_right_as_it_is(run):
    code, out, err = run(METHOD)
    assert (code, err) == (0, ""), out + err


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_method_is_refused_before_training_with_its_file(run, kind):
    old, new, line, message = WRONG[kind]
    assert METHOD.count(old) == 1
    err = refusal(run(METHOD.replace(old, new)))
    assert f"entries.fixed: on diabetes {message}" in err
    assert located(line) in err
    assert not Path("results").exists()


def test_a_mistyped_hyperparameter_is_answered_by_those_that_there_are(run):
    err = refusal(run(METHOD.replace('hyper["learning_rate"]', 'hyper["learning_rat"]')))
    known = "learning_rate, noise_precision, prior_precision"
    assert f"unknown hyper-parameter 'learning_rat'; known: {known}" in err
    assert located(METHOD[: METHOD.index("mean = state.mean")].count("\n") + 1) in err


@pytest.mark.parametrize("rate", ["", "    rank: int = 3\n", "    rank = 3\n"])
def test_a_forgotten_decorator_is_named(run, rate):
    head = "class Mine(MinibatchMethod):\n"
    text = METHOD.replace(f"@dataclass(frozen=True)\n{head}", head + rate)
    line = text[: text.index("class Mine")].count("\n") + 1
    err = refusal(run(text, "--set", "entries.fixed.method.rank=2"))
    assert f"@dataclass(frozen=True) is missing above class Mine {located(line)}" in err


def test_settings_that_would_not_be_read_are_refused(run):
    head = "class Mine(MinibatchMethod):\n"
    err = refusal(
        run(METHOD.replace(f"@dataclass(frozen=True)\n{head}", f"{head}    rank: int = 3\n"))
    )
    assert "its settings (rank) are not read: @dataclass(frozen=True) is missing above" in err


@pytest.mark.parametrize("hyper", [{}, {"noise_precision": 1, "prior_precision": 1}])
def test_an_estimator_refuses_the_method_as_well(tmp_path, monkeypatch, hyper):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(METHOD.replace(RETURNED, "state.mean"), "utf-8")
    x = np.random.default_rng(0).standard_normal((20, 3))
    regressor = bdl.Regressor("mine.py:Mine", learning_rate=0.1, **hyper)
    with pytest.raises(InputError, match=r"Mine.posterior returned a tensor of shape \(\d+,\)"):
        regressor.fit(x, x[:, 0])


@pytest.fixture
def run_direct(tiny, invoke):
    """Run the benchmark by a method in a file, without minibatches."""

    def call(text):
        Path("mine.py").write_text(text, "utf-8")
        benchmark = TINY.replace("{name: vifa, gradients_per_update: 2}", "{name: mine.py:Mine}")
        for training in ("    training: {epochs: 1, batch_size: 10}\n", "learning_rate: 0.01, "):
            benchmark = benchmark.replace(training, "")
        tiny.write_text(benchmark, "utf-8")
        return invoke("run", "tiny.yaml", "--no-compile", "--tracking", "none")

    return call


def test_a_method_that_fits_by_itself_is_refused_as_well(run_direct):
    text = DIRECT.replace("RETURNED", "DiagonalGaussian(zeros, zeros.sum())")
    err = refusal(run_direct(text))
    assert "Mine.fit returned a DiagonalGaussian: var has shape (): give it shape (11,)" in err
    assert located(DIRECT[: DIRECT.index("def fit")].count("\n") + 1) in err


GUEST = """from dataclasses import dataclass

from bdl.methods.guest import Guest
from bdl.posteriors.predictive import MeanVariance


@dataclass(frozen=True)
class Mine(Guest):
    def fit(self, train, hyper, seed):
        return lambda x: WRONG
"""


@pytest.mark.slow  # a guest is called in a process of its own
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("MeanVariance(x[1:, 0], x[1:, 0] * 0 + 1)", "mean has shape (43,): give it shape (44,)"),
        ("MeanVariance(x[:, 0] / x[:, 0].std(), x[:, 0] * 0 + 1)", "mean of 22 rows changes by"),
    ],
)
def test_a_guest_is_refused_before_training_as_well(run_direct, answer, message):
    err = refusal(run_direct(GUEST.replace("WRONG", answer)))
    assert f"entries.fixed on diabetes: Mine.fit returned a function: {message}" in err
    assert located(GUEST[: GUEST.index("def fit")].count("\n") + 1) in err
    assert not Path("results").exists()
