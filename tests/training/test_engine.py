"""Training many trials at once gives each what a plain loop over single trials gives."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl.data import folds, load
from bdl.methods.base import MinibatchMethod
from bdl.methods.optim import DescentState
from bdl.methods.vifa import Vifa
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Mlp
from bdl.models.problem import Batch, Problem
from bdl.posteriors import Point
from bdl.rng import random_normals, trial_keys
from bdl.training import engine
from bdl.training.batches import minibatches
from bdl.training.compiler import compiled
from bdl.training.fitting import finished
from bdl.training.predict import predict
from bdl.training.program import Program
from bdl.training.programs import compiler_found, generator, pairs, shaped
from bdl.training.schedule import Schedule
from bdl.training.states import finite, initial_state
from bdl.training.trials import Pool, Trials, View

from .toy import HYPER, fitted, pick, toy, toy_program, toy_trials


def looped(program: Program, trials: Trials, index: int) -> DescentState:
    """Train one trial by a plain loop: no vmap, no pool, inputs standardised by scikit-learn."""
    method, problem, schedule, data = program.method, program.problem, program.schedule, program.dataset
    own, identity = trials.rows[index], [trials.identities[index]]
    hyper = {name: value[index] for name, value in trials.hyper.items()}
    y_scaler = StandardScaler().fit(data.y[own, None])
    x = torch.tensor(StandardScaler().fit(data.x[own]).transform(data.x), dtype=torch.float32)
    y = torch.tensor(y_scaler.transform(data.y[:, None])[:, 0], dtype=torch.float32)
    n, unit = torch.tensor(float(len(own))), torch.tensor(y_scaler.scale_[0], dtype=torch.float32)

    def noise(stream: str, step: int, shapes: dict) -> dict[str, Tensor]:
        halves = random_normals(trial_keys(identity, stream), torch.tensor(step, dtype=torch.int32), pairs(shapes))
        return shaped((halves[0][0], halves[1][0]), shapes)

    state = method.init(problem, noise("init", 0, method.init_noise(problem)))
    stream = minibatches([own], trial_keys(identity, "shuffle"), schedule, batches_per_step=method.batches_per_step)
    for step, rows in enumerate([rows[0] for _, updates in stream for rows in updates]):
        drawn = noise("noise", step, method.step_noise(problem))
        state = method.step(state, Batch(x[rows], y[rows], n, unit), hyper, drawn, problem)
    return state


def test_fifty_batched_updates_equal_a_plain_loop():
    program = toy_program()
    trials = toy_trials(program, [40, 43, 47, 40])
    fit = fitted(program, trials)
    assert fit.updates.tolist() == [50] * 4
    assert fit.diverged.tolist() == [0] * 4
    start = initial_state(program.method, program.problem, trials, program.pool.device)
    for index in range(4):
        alone = looped(program, trials, index)
        # fifty updates of float32 that add in another order; parameters move by about 1
        for ours, theirs in zip(pick(fit.state, index), tree_leaves(alone), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        assert (pick(fit.state, index)[0] - pick(start, index)[0]).norm() > 0.1


def diabetes_trials(program: Program, index: list[int]) -> Trials:
    """Some of 150 trials: 30 settings, each on five folds of the first split."""
    settings = [
        {"learning_rate": lr, "prior_precision": alpha, "noise_precision": beta}
        for lr in (0.06, 0.08, 0.1, 0.12, 0.14)
        for alpha in (0.01, 1.0, 10.0)
        for beta in (1e-4, 1e-3)
    ]
    rows = program.dataset.split(0).train
    parts = [rows[own] for own, _ in folds(len(rows), 5)]
    names = [(i // 5, i % 5) for i in index]
    return program.trials(
        [("diabetes", *name) for name in names], [parts[k] for _, k in names], [settings[s] for s, _ in names]
    )


def scores(program: Program, trials: Trials, position: int, compile: bool) -> dict[str, float]:
    """NMLL and RMSE on the test rows of one trial, trained with its companions."""
    fit, rows = fitted(program, trials, compile), program.dataset.split(0).test
    targets = torch.tensor(program.dataset.y[rows])
    parts = program.posterior, program.problem, program.pool, trials, fit.state, fit.buffers
    found = predict(*parts, [position], rows, targets, program.samples)
    return {
        "nmll": -found.log_likelihood.mean().item(),
        "rmse": (found.mean[0] - targets).square().mean().sqrt().item(),
    }


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["eager", "compiled"])
def test_a_trial_scores_the_same_alone_and_among_150(compile, caplog):
    """A whole short fit of networks; the compiled ones are held to the eager scores too."""
    if compile and not compiler_found():
        pytest.skip("needs a C++ compiler")
    data = load("diabetes")
    program = Program(
        data,
        Pool.load(data),
        Problem(Mlp((5,)), Gaussian(), d_in=10),
        Vifa(),
        Schedule(epochs=4, batch_size=10),
        samples=20,
    )
    everything = diabetes_trials(program, list(range(150)))
    position = 77
    eager = scores(program, diabetes_trials(program, [position]), 0, compile=False)
    assert scores(program, everything, position, compile) == pytest.approx(eager, rel=1e-3)
    assert eager["rmse"] < data.y[data.split(0).test].std()  # it has learnt something
    assert "torch.compile failed" not in caplog.text


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverging_trial_leaves_its_neighbours_alone(bad):
    program = toy_program()
    lengths, healthy = [40, 42, 44], [0.01, 0.02, 0.03]
    fit = fitted(program, toy_trials(program, lengths, learning_rate=[0.01, bad, 0.03]))
    undisturbed = fitted(program, toy_trials(program, lengths, learning_rate=healthy))
    assert fit.diverged.tolist() == [0, 1, 0]
    assert finite(fit.state).tolist() == [True, False, True]
    for index in (0, 2):
        for ours, theirs in zip(pick(fit.state, index), pick(undisturbed.state, index), strict=True):
            assert torch.equal(ours, theirs)


class CountState(NamedTuple):
    count: Tensor
    value: Tensor


@dataclass(frozen=True)
class Counting(MinibatchMethod):
    """A method that only counts; its state is infinite after update number ``when``, and finite again later."""

    hyper = ("when",)
    batches_per_step = 2

    def init_noise(self, problem):
        return {"unused": (1,)}

    step_noise = init_noise

    def init(self, problem, noise):
        return CountState(torch.zeros(()), torch.zeros(2))

    def step(self, state, batches, hyper, noise, problem):
        count = state.count + 1
        broken = (count >= hyper["when"]) & (count < hyper["when"] + 5)
        return CountState(count, torch.where(broken, torch.inf, torch.zeros(2)))

    def posterior(self, state):
        return Point(state.value)


@dataclass(frozen=True)
class Watching(MinibatchMethod):
    """A method that writes down the axes of its minibatches and the mean of their inputs."""

    batches_per_step: int = 1

    def init(self, problem, noise):
        return torch.zeros(2), torch.zeros(())

    def step(self, state, batches, hyper, noise, problem):
        assert batches.x.shape[:-1] == batches.y.shape
        return torch.tensor([batches.x.ndim, batches.y.ndim]).float(), batches.x.mean()

    def posterior(self, state):
        return Point(state[0])


@pytest.mark.parametrize("augmented", [False, True])
def test_a_single_minibatch_has_no_axis_of_its_own(augmented):
    """The same rows in one minibatch of 16 and in two of 8; each row is moved by the first of its normals."""
    changes = {"augment": lambda x, noise: x + noise[..., :1], "augment_noise": 2} if augmented else {}
    found = []
    for batches, size in ((1, 16), (2, 8)):
        program = toy_program(dataset=toy(**changes), method=Watching(batches), schedule=Schedule(1, size))
        (axes, mean) = fitted(program, toy_trials(program, [16])).state
        found.append((axes[0].tolist(), mean))
    assert [axes for axes, _ in found] == [[2, 1], [3, 2]]
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)


def test_the_first_epoch_with_a_non_finite_state_is_recorded():
    """Five minibatches an epoch, two an update: epochs 1, 2, 3, 4 end after updates 2, 5, 7, 10."""
    program = toy_program(method=Counting(), schedule=Schedule(epochs=8, batch_size=8))
    when = [1.0, 2.0, 3.0, 5.0, 6.0, 8.0, 21.0]
    fit = fitted(program, toy_trials(program, [40] * 7, when=when))
    assert fit.updates.tolist() == [20] * 7
    assert fit.diverged.tolist() == [1, 1, 2, 2, 3, 4, 0]


def test_trials_of_unlike_lengths_come_back_in_order():
    """5, 3, 6, 5 and 3 minibatches an epoch: three programs, one answer.

    The programs see the trials in the order 0, 3, 1, 4, 2, which is not its own inverse.
    """
    program, lengths = toy_program(), [40, 24, 50, 47, 31]
    trials, heard = toy_trials(program, lengths), []
    fit = finished(program.fitting(trials), heard.append)
    assert fit.updates.tolist() == [50, 30, 60, 50, 30]
    assert sum(heard) == 2 * 220
    assert len(heard) == 3 * 20
    for index in range(5):
        alone = fitted(program, trials.take([index]))
        for ours, theirs in zip(pick(fit.state, index), pick(alone.state, 0), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_divergence_is_told_in_the_order_of_the_trials():
    program = toy_program(schedule=Schedule(epochs=1, batch_size=8))
    rates = [0.01, 0.01, float("nan"), 0.01, 0.01]
    fit = fitted(program, toy_trials(program, [40, 24, 50, 47, 31], learning_rate=rates))
    assert fit.diverged.tolist() == [0, 0, 1, 0, 0]


def test_the_start_is_the_trials_own():
    program = toy_program()
    trials = toy_trials(program, [40, 24, 47])
    together = initial_state(program.method, program.problem, trials, program.pool.device)
    alone = initial_state(program.method, program.problem, trials.take([1]), program.pool.device)
    torch.testing.assert_close(pick(together, 1), pick(alone, 0), rtol=1e-6, atol=1e-6)
    factors = together.params["F"]
    assert (factors[0] - factors[1]).norm() > 0.1
    torch.testing.assert_close(factors.mT @ factors, torch.eye(2).expand(3, 2, 2), rtol=0, atol=1e-6)


def test_a_view_standardises_as_scikit_learn_does():
    """Far origins, a column that is constant on the trial's rows, and rows that the scaling was not fitted on."""
    data = toy(n=80)
    data.x[:30, 1] = 1003.0
    pool = Pool.load(data)
    row_sets = [np.arange(30), np.arange(0, 80, 2), np.arange(80)[::-1][:11]]
    trials = Trials.make(data, pool, [("a",), ("b",), ("c",)], row_sets, [HYPER] * 3)
    asked = torch.tensor([[0, 5, 29], [7, 7, 21]])
    for index, own in enumerate(row_sets):
        x_scaler, y_scaler = StandardScaler().fit(data.x[own]), StandardScaler().fit(data.y[own, None])
        batch = View(*(value[index] for value in trials.view)).batch(pool.x[asked], pool.y[asked])
        x = x_scaler.transform(data.x[asked.flatten()]).reshape(2, 3, 3)
        y = y_scaler.transform(data.y[asked.flatten(), None]).reshape(2, 3)
        np.testing.assert_allclose(batch.x, x, rtol=0, atol=1e-5)
        np.testing.assert_allclose(batch.y, y, rtol=0, atol=1e-5)
        assert batch.n.item() == len(own)
        assert batch.y_unit.item() == pytest.approx(data.y[own].std(), rel=1e-6)


def test_a_failing_compiler_is_reported_once_and_done_without(monkeypatch, caplog):
    def no_compiler(function, **settings):
        def fail(*args):
            raise torch._dynamo.exc.TorchDynamoException("no C++ compiler\nand a long story")

        return fail

    monkeypatch.setattr(torch, "compile", no_compiler)
    double = compiled(lambda x: 2 * x)
    assert [double(2), double(3)] == [4, 6]
    assert [record.message for record in caplog.records] == [
        "torch.compile failed, going on without it (slower): no C++ compiler"
    ]


CURVE = """
import torch
from bdl.training.compiler import compiled
def curve(x): return torch.exp(-x * x) * torch.cos(x)
x = torch.linspace(-3, 3, 1000)
torch.testing.assert_close(compiled(curve)(x), curve(x))
"""


@pytest.mark.slow  # compiles
def test_processors_that_share_a_cache_of_programs_compute_the_same(tmp_path, monkeypatch):
    """Two compilations, one for each kind of processor: the second ran the first one's program, and had garbage."""
    if not compiler_found() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("needs a C++ compiler, and a processor that can also be one with shorter vectors")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")  # else programs are compiled to try the processor
    torch._dynamo.reset()
    exec(CURVE, {})
    subprocess.run([sys.executable, "-c", CURVE], env=os.environ | {"ATEN_CPU_CAPABILITY": "avx2"}, check=True)


@pytest.mark.slow  # compiles
def test_a_generator_of_many_normals_is_compiled_and_draws_the_same(monkeypatch, caplog):
    """To the rounding of the logarithms and cosines of either program."""
    if not compiler_found():
        pytest.skip("needs a C++ compiler")
    program, asked = toy_program(), []
    trials = toy_trials(program, [40, 43])
    eager = fitted(program, trials)
    monkeypatch.setattr(engine, "_MANY", 1)
    monkeypatch.setattr(engine, "generator", lambda *how: asked.append(how) or generator(*how))
    fast = fitted(program, trials)
    assert asked == [(torch.float32, True)]
    for ours, theirs in zip(pick(fast.state, 1), pick(eager.state, 1), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)

    keys, step = trial_keys([("a",), ("b",)], "noise"), torch.tensor(3, dtype=torch.int32)
    slow, fast = (generator(torch.float32, compile)(keys, step, 1000) for compile in (False, True))
    for ours, theirs in zip(fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert "torch.compile failed" not in caplog.text
