"""Rates in the course of a fit: factors against their formulas, what the engine makes of them, what is refused."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.base import MinibatchMethod
from bdl.methods.counters import StepCounters
from bdl.methods.slang import Slang
from bdl.methods.vifa import Vifa
from bdl.posteriors import Point
from bdl.training.schedule import Constant, Decay, Exponential, LinearDecay, Power, Schedule

from .toy import fitted, pick, same, toy_program, toy_trials

FIRST, FIFTH, SIXTH = (
    StepCounters(*at, 2.5, 8) for at in ((1, 0, False), (5, 2, True), (6, 2, False))
)
"""Updates of epochs 0, 1 and 2, of two and a half updates each, of a fit of eight."""


@pytest.mark.parametrize(
    ("rate", "factors"),
    [
        (Constant(), (1, 1, 1)),
        (Decay(1.0), (1 / 2, 1 / 6, 1 / 7)),
        (Decay(0.5), (1 / 2, 1 / (1 + 5**0.5), 1 / (1 + 6**0.5))),
        (Power(0.25), (1, 5**-0.25, 6**-0.25)),
        (Exponential(0.9), (1, 0.9, 0.81)),
        (LinearDecay(), (1, 4 / 8, 3 / 8)),
    ],
)
def test_factors(rate, factors):
    found = [rate.factor(counters) for counters in (FIRST, FIFTH, SIXTH)]
    assert found == pytest.approx(factors, rel=1e-12)


class Heard(NamedTuple):
    """Learning rates of the updates, (updates, groups)."""

    rates: Tensor
    count: Tensor


@dataclass(frozen=True)
class Listening(MinibatchMethod):
    """A method that only writes down its learning rates."""

    names: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        return self.names

    def init(self, problem, noise):
        return Heard(torch.zeros(30, max(1, len(self.names))), torch.zeros((), dtype=torch.int64))

    def step(self, state, batches, hyper, noise, problem):
        own = self.rates(hyper).values() if self.names else [hyper["learning_rate"]]
        here = (torch.arange(30) == state.count).unsqueeze(1)
        return Heard(torch.where(here, torch.stack(list(own)), state.rates), state.count + 1)

    def posterior(self, state):
        return Point(state.rates[:, 0])


@pytest.mark.parametrize(
    ("rates", "groups", "expected"),
    [
        pytest.param({"": Exponential(0.8)}, (), [Exponential(0.8)], id="all"),
        pytest.param(
            {"b": Decay(), "": Power(1)},
            ("a", "b", "c"),
            [Power(1), Decay(), Power(1)],
            id="others",
        ),
        pytest.param({"b": Decay()}, ("a", "b"), [Constant(), Decay()], id="constant"),
    ],
)
def test_every_update_has_its_factor_of_each_trials_rate(rates, groups, expected):
    """Rates of two trials are 0.01 and 0.02.

    A group without one has that of the empty name, or a constant one.
    """
    program = toy_program(method=Listening(groups), schedule=Schedule(6, 8, rates))
    found = fitted(program, toy_trials(program, [40, 43])).state.rates
    counts = [StepCounters(n, n // 5, n % 5 == 0, 5.0) for n in range(1, 31)]
    factors = torch.tensor([[rate.factor(counters) for rate in expected] for counters in counts])
    torch.testing.assert_close(
        found, torch.tensor([0.01, 0.02]).view(2, 1, 1) * factors, rtol=1e-6, atol=0
    )


@dataclass(frozen=True)
class Doubled:
    """Twice the rate."""

    def factor(self, counters: StepCounters) -> float:
        return 2.0


@pytest.mark.parametrize(
    ("method", "twin", "group"),
    [
        (Vifa(lr_factors=(1.0, 0.5, 1.0)), Vifa(lr_factors=(1.0, 1.0, 1.0)), "F"),
        (Slang(lr_factors=(1.0, 0.5)), Slang(lr_factors=(1.0, 1.0)), "precision"),
        (Slang(lr_factors=(0.5, 1.0)), Slang(lr_factors=(1.0, 1.0)), "mean"),
    ],
)
def test_a_group_of_a_method_is_the_one_with_the_factor(method, twin, group):
    """Half a fixed factor and twice the rate of the same group cancel, bit for bit."""
    program = toy_program(method=method, schedule=Schedule(3, 8, {group: Doubled()}))
    plain = toy_program(method=twin, schedule=Schedule(3, 8))
    trials = toy_trials(program, [40])
    assert same(pick(fitted(program, trials).state, 0), pick(fitted(plain, trials).state, 0))


@dataclass(frozen=True)
class Rateless(Listening):
    """A method without a learning rate."""

    hyper = ("step_size",)


@pytest.mark.parametrize(
    ("settings", "method", "message"),
    [
        ({"rates": {"gama": Decay()}}, Vifa(), "group of parameters 'gama'.*did you mean gamma"),
        (
            {"incomplete": "keep"},
            Vifa(gradients_per_update=4),
            "cannot be kept where an update takes 4",
        ),
        ({"rates": {"": Decay()}}, Rateless(), "Rateless has no learning_rate"),
    ],
)
def test_what_does_not_suit_the_method_is_refused(settings, method, message):
    Schedule(1, 8, {"": Constant()}).check(method)
    program = toy_program(method=method, schedule=Schedule(2, 8, **settings))
    with pytest.raises(InputError, match=message):
        fitted(program, toy_trials(program, [40], step_size=[1.0]))


def test_incomplete_minibatches_are_trained_on():
    """Trials of 43 and 40 rows have six and five minibatches then, and train apart."""
    program = toy_program(
        method=Vifa(gradients_per_update=1), schedule=Schedule(3, 8, incomplete="keep")
    )
    trials = toy_trials(program, [43, 40, 43])
    together = fitted(program, trials)
    assert together.updates.tolist() == [18, 15, 18]
    for i in range(3):
        alone = fitted(program, trials.take([i]))
        torch.testing.assert_close(
            pick(together.state, i), pick(alone.state, 0), rtol=1e-3, atol=1e-4
        )


def test_numbers_are_float64_throughout_if_asked_for():
    """The same noise to 24 bits, and the same path to the rounding of float32."""
    single, double = (
        toy_program(schedule=Schedule(2, 8, dtype=dtype)) for dtype in ("float32", "float64")
    )
    one, two = (fitted(program, toy_trials(program, [40, 24])) for program in (single, double))
    for mine, theirs in zip(pick(one.state, 0), pick(two.state, 0), strict=True):
        assert (mine.dtype, theirs.dtype) == (torch.float32, torch.float64)
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-3, atol=1e-4)
    mean = two.state.params["c"]
    assert (mean.float().double() != mean).all(), "digits that float32 has not"
