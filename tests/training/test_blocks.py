"""Updates that are made at once give the bits of updates that are made one by one."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from bdl.methods import METHODS
from bdl.methods.counters import StepCounters
from bdl.rng import random_normals, trial_keys
from bdl.training import blocks as making
from bdl.training import traced
from bdl.training.blocks import Normals, Update, blocks, longest
from bdl.training.fitting import EvaluationSchedule
from bdl.training.programs import compiler_found, programs
from bdl.training.schedule import Decay, Schedule
from bdl.training.traced import Repeated

from .toy import pick, same, toy_program, toy_trials


def test_blocks_are_of_one_kind_end_where_they_have_to_and_are_not_too_long():
    updates = [Update(torch.empty(0), StepCounters(count, 0, False, 9)) for count in range(1, 10)]
    found = blocks(
        updates,
        kind=lambda update: update.counters.updates > 7,
        ends=lambda update: update.counters.updates == 2,
        length=lambda first: 3 if first.counters.updates == 3 else 9,
    )
    assert [[update.counters.updates for update in block] for block in found] == [[1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_large_updates_are_made_one_by_one(monkeypatch):
    monkeypatch.setattr(making, "AHEAD", 100)
    assert [longest(numbers) for numbers in (0, 1, 33, 99, 101)] == [100, 100, 3, 1, 1]


def test_normals_are_those_of_their_update(monkeypatch):
    """Whatever comes before; as many as are drawn at once, and one more."""
    monkeypatch.setattr(making, "AHEAD", 40)
    keys = {"noise": trial_keys([("a",), ("b",)], "noise")}
    normals = Normals(keys, torch.float32, random_normals)
    for count in (3, 4, 0, 11):
        expected = random_normals(keys["noise"], torch.tensor(count, dtype=torch.int32), 5)
        assert all(map(torch.equal, normals.of("noise", count, 5), expected))
    assert [half.shape for half in normals.of("noise", 0, 0)] == [(2, 0)]


def test_a_chain_of_calls_is_what_calls_one_by_one_are(monkeypatch):
    monkeypatch.setattr(traced, "AFTER", 2)
    calls = []

    def step(state, x, scale):
        calls.append(x)
        return {"sum": state["sum"] * scale + x.sin(), "last": x}

    state, scale = {"sum": torch.zeros(3), "last": torch.zeros(3)}, torch.tensor(0.9)
    each = [(torch.full((3,), float(i)),) for i in range(7)]
    repeated = Repeated(step)
    found = repeated.chain(state, each, scale)
    assert len(calls) == 2, "then by the trace"
    found = repeated.chain(found, each, scale)
    assert repeated.chain(found, [], scale) is found
    assert len(calls) == 2
    for own in (*each, *each):
        state = step(state, *own, scale)
    assert all(torch.equal(found[name], state[name]) for name in ("sum", "last"))


def test_a_chain_goes_on_where_what_is_returned_is_of_another_kind(monkeypatch):
    monkeypatch.setattr(traced, "AFTER", 1)
    repeated, x = Repeated(lambda state, x: torch.cat([state, x])), torch.ones(1)
    assert repeated.chain(torch.zeros(1), [(x,)] * 4).tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["adam", "vifa", "swag"])
def test_looks_after_every_update_change_no_bit(monkeypatch, name, compile):
    """The rate is another one at every update, and the last minibatch of an epoch is smaller."""
    if compile and not compiler_found():
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(traced, "AFTER", 2)
    programs.cache_clear()  # functions count their calls from fit to fit
    schedule = Schedule(epochs=4, batch_size=8, rates={"": Decay()}, incomplete="drop" if name == "vifa" else "keep")
    settings = {"swag": {"warmup_epochs": 1}}.get(name, {})
    program = toy_program(method=METHODS.build(name, settings), schedule=schedule)
    trials = toy_trials(program, [43, 43])
    states = [
        list(program.fitting(trials, compile=compile).run(looks))[-1].state
        for looks in (None, EvaluationSchedule("updates", every=1), EvaluationSchedule("updates", every=3))
    ]
    assert all(same(pick(states[0], i), pick(state, i)) for state in states[1:] for i in range(2))
    assert all(leaf.isfinite().all() for leaf in tree_leaves(states[0]))
