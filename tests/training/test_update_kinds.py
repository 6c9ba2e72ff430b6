"""What a method does now and then is chosen on the host: which functions make which update, and programs of them."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from bdl.methods.base import MinibatchMethod
from bdl.methods.counters import StepCounters
from bdl.methods.iterates_fa import IteratesFa
from bdl.methods.sgd_iterates import SgdIterates
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.posteriors import Point
from bdl.training import updates
from bdl.training.schedule import Schedule
from bdl.training.updates import UpdateFunctions, is_compiler_installed, update_kind

from .toy import fitted, pick, toy_program, toy_trials


class Log(NamedTuple):
    """What was called: at each update a number whose decimal digits name the functions, in their order."""

    calls: Tensor
    count: Tensor


@dataclass(frozen=True)
class Logging(MinibatchMethod):
    """A method that writes down which of its functions are called."""

    def init(self, problem, noise):
        return Log(torch.zeros(30), torch.zeros((), dtype=torch.int64))

    def phase(self, counters: StepCounters) -> str:
        return "early" if counters.updates <= 3 else "step"

    def due(self, counters: StepCounters) -> tuple[str, ...]:
        return (
            *(["often"] if counters.updates % 2 == 0 else []),
            *(["epoch"] if counters.ended else []),
        )

    def early(self, state, *given):
        return self._called(state._replace(count=state.count + 1), 1)

    def step(self, state, batches, hyper, noise, problem):
        return self._called(state._replace(count=state.count + 1), 2)

    def often(self, state, *given):
        return self._called(state, 3)

    def epoch(self, state, *given):
        return self._called(state, 4)

    def posterior(self, state):
        return Point(state.calls)

    def _called(self, state, digit):
        here = torch.arange(30) == state.count - 1
        return state._replace(calls=torch.where(here, 10 * state.calls + digit, state.calls))


def test_the_step_counters_choose_the_functions_of_every_update():
    """Five updates an epoch, or three: each trial's own epochs."""
    program = toy_program(method=Logging(), schedule=Schedule(4, 8))
    calls = fitted(program, toy_trials(program, [40, 24])).state.calls
    assert calls[0, :20].tolist() == [
        1,
        13,
        1,
        23,
        24,
        23,
        2,
        23,
        2,
        234,
        2,
        23,
        2,
        23,
        24,
        23,
        2,
        23,
        2,
        234,
    ]
    assert calls[1, :12].tolist() == [1, 13, 14, 23, 2, 234, 2, 23, 24, 23, 2, 234]
    assert calls[1, 12:].tolist() == [0] * 18


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (Swag(warmup_epochs=1), ["step"] * 5 + ["step collect"] + ["step"] * 2 + ["step collect"]),
        (SgdIterates(warmup_epochs=1), ["step"] * 3 + ["step average collect"] * 6),
        (
            SgdIterates(warmup_epochs=1, window=2, separate_warmup=True),
            ["warm_up"] * 3 + ["step average", "step average collect"] * 3,
        ),
        (IteratesFa(warmup_epochs=2), ["step"] * 6 + ["step measure"] * 100 + ["step learn"] * 3),
        (Vifa(), ["step"] * 9),
    ],
    ids=["swag", "sgd-iterates", "windows", "iterates-fa", "vifa"],
)
def test_update_kinds_of_the_methods(method, expected):
    """Three updates an epoch."""
    counts = [StepCounters(n, n // 3, n % 3 == 0, 3.0) for n in range(1, len(expected) + 1)]
    assert [" ".join(update_kind(method, counters)) for counters in counts] == expected


def test_frequent_update_kinds_have_a_compiled_program_of_their_own(monkeypatch):
    """Of the others only what they share with most updates is compiled."""
    made_compiled: list[bool] = []
    monkeypatch.setattr(
        updates,
        "TracedFunction",
        lambda function, compile: made_compiled.append(compile) or function,
    )
    program = toy_program(method=Logging())
    made = UpdateFunctions(Logging(), program.problem, None, 0, compile=True)
    frequent, rare = ("step", "often"), ("step", "often", "epoch")
    assert len(made.functions(frequent, {frequent})) == 1
    assert len(made.functions(rare, {frequent})) == 2
    assert len(made.functions(("step",), {frequent})) == 1
    assert made_compiled == [True, True, False], (
        "step and often as one, step alone; often and epoch are not compiled"
    )
    assert made.functions(rare, {frequent}) == made.functions(rare, {frequent}), "made once"
    assert (
        len(
            UpdateFunctions(Logging(), program.problem, None, 0, compile=False).functions(rare, ())
        )
        == 1
    )


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("method", [Swag(warmup_epochs=1), Vifa()], ids=["swag", "vifa"])
def test_compiled_programs_give_what_eager_ones_give(caplog, method):
    if not is_compiler_installed():
        pytest.skip("needs a C++ compiler")
    program = toy_program(method=method, schedule=Schedule(45, 8))
    trials = toy_trials(program, [40, 43])
    eager, fast = (fitted(program, trials, compile) for compile in (False, True))
    assert "torch.compile failed" not in caplog.text
    for i in range(2):
        torch.testing.assert_close(pick(fast.state, i), pick(eager.state, i), rtol=1e-3, atol=1e-4)
