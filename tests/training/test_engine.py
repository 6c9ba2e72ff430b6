"""Training many trials at once gives each what a plain loop over single trials gives."""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl.methods.base import MinibatchMethod
from bdl.methods.optim import DescentState
from bdl.models.problem import Batch
from bdl.posteriors import Point
from bdl.rng import random_normals, trial_keys
from bdl.training import engine, updates
from bdl.training.batches import iterate_minibatches
from bdl.training.compiler import compile_function
from bdl.training.fitting import find_finite_trials, make_initial_state, run_to_end
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Trials
from bdl.training.updates import (
    count_pairs,
    is_compiler_installed,
    normal_generator,
    unflatten_normals,
)

from .toy import fitted, pick, same, toy, toy_program, toy_trials


def looped(program: TrainingSetup, trials: Trials, index: int) -> DescentState:
    """Train one trial by a plain loop: no vmap, no pool, inputs standardised by scikit-learn."""
    method, problem, schedule, data = (
        program.method,
        program.problem,
        program.schedule,
        program.dataset,
    )
    own, identity = trials.rows[index], [trials.identities[index]]
    hyper = {name: value[index] for name, value in trials.hyper.items()}
    y_scaler = StandardScaler().fit(data.y[own, None])
    x = torch.tensor(StandardScaler().fit(data.x[own]).transform(data.x), dtype=torch.float32)
    y = torch.tensor(y_scaler.transform(data.y[:, None])[:, 0], dtype=torch.float32)
    n, unit = torch.tensor(float(len(own))), torch.tensor(y_scaler.scale_[0], dtype=torch.float32)

    def noise(stream: str, step: int, shapes: dict) -> dict[str, Tensor]:
        halves = random_normals(
            trial_keys(identity, stream),
            torch.tensor(step, dtype=torch.int32),
            count_pairs(shapes),
        )
        return unflatten_normals((halves[0][0], halves[1][0]), shapes)

    state = method.init(problem, noise("init", 0, method.init_noise(problem)))
    stream = iterate_minibatches(
        [own], trial_keys(identity, "shuffle"), schedule, batches_per_step=method.batches_per_step
    )
    for step, rows in enumerate([rows[0] for _, minibatches in stream for rows in minibatches]):
        drawn = noise("noise", step, method.step_noise(problem))
        state = method.step(state, Batch(x[rows], y[rows], n, unit), hyper, drawn, problem)
    return state


def test_fifty_batched_updates_equal_a_plain_loop():
    program = toy_program()
    trials = toy_trials(program, [40, 43, 47, 40])
    fit = fitted(program, trials)
    assert fit.updates.tolist() == [50] * 4
    assert fit.diverged.tolist() == [0] * 4
    start = make_initial_state(program.method, program.problem, trials, program.pool.device)
    for index in range(4):
        # fifty updates of float32 that add in another order; parameters move by about 1
        alone = tree_leaves(looped(program, trials, index))
        torch.testing.assert_close(pick(fit.state, index), alone, rtol=1e-3, atol=1e-4)
        assert (pick(fit.state, index)[0] - pick(start, index)[0]).norm() > 0.1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_diverging_trial_leaves_its_neighbours_alone(bad):
    """The fourth trial, which is the second of the first program."""
    program, lengths = toy_program(), [40, 24, 50, 47, 31]
    fit = fitted(
        program, toy_trials(program, lengths, learning_rate=[0.01, 0.01, 0.01, bad, 0.01])
    )
    undisturbed = fitted(program, toy_trials(program, lengths, learning_rate=[0.01] * 5))
    assert fit.diverged.tolist() == [0, 0, 0, 1, 0]
    assert find_finite_trials(fit.state).tolist() == [True, True, True, False, True]
    for index in (0, 1, 2, 4):
        assert same(pick(fit.state, index), pick(undisturbed.state, index))


@dataclass(frozen=True)
class Counting(MinibatchMethod):
    """A method that only counts.

    Its state is infinite after update number ``when``, and finite again later.
    """

    hyper = ("when",)
    batches_per_step = 2

    def init(self, problem, noise):
        return torch.zeros(()), torch.zeros(2)

    def step(self, state, batches, hyper, noise, problem):
        count = state[0] + 1
        broken = (count >= hyper["when"]) & (count < hyper["when"] + 5)
        return count, torch.where(broken, torch.inf, torch.zeros(2))

    def posterior(self, state):
        return Point(state[1])


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
    """The same rows in one minibatch of 16 and in two of 8.

    Each row is moved by the first of its normals.
    """
    changes = (
        {"augment": lambda x, noise: x + noise[..., :1], "augment_noise": 2} if augmented else {}
    )
    found = []
    for batches, size in ((1, 16), (2, 8)):
        program = toy_program(
            dataset=toy(**changes), method=Watching(batches), schedule=Schedule(1, size)
        )
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
    fit = run_to_end(program.fitting(trials), heard.append)
    assert fit.updates.tolist() == [50, 30, 60, 50, 30]
    assert sum(heard) == 2 * 220
    assert len(heard) == 3 * 20
    for index in range(5):
        alone = fitted(program, trials.take([index]))
        torch.testing.assert_close(
            pick(fit.state, index), pick(alone.state, 0), rtol=1e-3, atol=1e-4
        )


def test_a_failing_compiler_is_reported_once_and_done_without(monkeypatch, caplog):
    def no_compiler(function, **settings):
        def fail(*args):
            raise torch._dynamo.exc.TorchDynamoException("no C++ compiler\nand a long story")

        return fail

    monkeypatch.setattr(torch, "compile", no_compiler)
    double = compile_function(lambda x: 2 * x)
    assert [double(2), double(3)] == [4, 6]
    assert [record.message for record in caplog.records] == [
        "torch.compile failed, going on without it (slower): no C++ compiler"
    ]


CURVE = """
import torch
from bdl.training.compiler import compile_function
def curve(x): return torch.exp(-x * x) * torch.cos(x)
x = torch.linspace(-3, 3, 1000)
torch.testing.assert_close(compile_function(curve)(x), curve(x))
"""


@pytest.mark.slow  # compiles
def test_processors_that_share_a_cache_of_programs_compute_the_same(tmp_path, monkeypatch):
    """Two compilations, one for each kind of processor: the second ran the first one's program, and had garbage."""
    if not is_compiler_installed() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip(
            "needs a C++ compiler, and a processor that can also be one with shorter vectors"
        )
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(
        "TORCHINDUCTOR_VEC_ISA_OK", "1"
    )  # else programs are compiled to try the processor
    torch._dynamo.reset()
    exec(CURVE, {})
    subprocess.run(
        [sys.executable, "-c", CURVE], env=os.environ | {"ATEN_CPU_CAPABILITY": "avx2"}, check=True
    )


@pytest.mark.slow  # compiles
def test_a_generator_of_many_normals_is_compiled_and_draws_the_same(monkeypatch, caplog):
    """To the rounding of the logarithms and cosines of either program."""
    if not is_compiler_installed():
        pytest.skip("needs a C++ compiler")
    program, asked = toy_program(), []
    trials = toy_trials(program, [40, 43])
    eager = fitted(program, trials)
    monkeypatch.setattr(engine, "_MANY_PAIRS", 1)
    monkeypatch.setattr(
        updates, "normal_generator", lambda *how: asked.append(how) or normal_generator(*how)
    )
    fast = fitted(program, trials)
    assert asked == [(torch.float32, True)]
    torch.testing.assert_close(pick(fast.state, 1), pick(eager.state, 1), rtol=1e-3, atol=1e-4)

    keys, step = trial_keys([("a",), ("b",)], "noise"), torch.tensor(3, dtype=torch.int32)
    slow, fast = (
        normal_generator(torch.float32, compile)(keys, step, 1000) for compile in (False, True)
    )
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-6)
    assert "torch.compile failed" not in caplog.text
