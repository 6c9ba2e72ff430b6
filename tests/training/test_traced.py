"""Functions called by their trace return the same bits."""

import logging

import pytest
import torch
from torch.utils._pytree import tree_leaves

from bdl.methods import METHODS
from bdl.training import blocks, traced
from bdl.training.programs import programs
from bdl.training.schedule import Schedule
from bdl.training.traced import Repeated

from .toy import fitted, toy_program, toy_trials


class Counted:
    """A function that counts how often it is really called."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


def test_from_a_number_of_calls_on_the_trace_runs_and_gives_the_same(monkeypatch):
    monkeypatch.setattr(traced, "AFTER", 3)
    gradient = Counted(torch.func.vmap(torch.func.grad(lambda x: (x.sin() * x.sin().exp()).sum())))
    repeated, x = Repeated(gradient), torch.arange(6.0).reshape(2, 3)
    for call in range(10):
        assert torch.equal(repeated(x + call), gradient.function(x + call))
        assert gradient.calls == min(call + 1, 3)


def test_other_shapes_strides_types_and_structures_are_kinds_of_their_own(monkeypatch):
    monkeypatch.setattr(traced, "AFTER", 1)
    double = Counted(lambda tree: {"twice": [2 * leaf for leaf in tree_leaves(tree)]})
    repeated, x = Repeated(double), torch.arange(4.0).reshape(2, 2)
    for count, tree in enumerate(({"a": x}, {"b": x}, [x], x.T, x.double(), x[:1], {"a": x, "b": x}), 1):
        for _ in range(2):
            found = repeated(tree)
            assert list(found) == ["twice"]
            assert all(map(torch.equal, found["twice"], [2 * leaf for leaf in tree_leaves(tree)]))
        assert double.calls == count


def test_a_function_whose_operations_depend_on_numbers_is_called_as_it_is(monkeypatch):
    monkeypatch.setattr(traced, "AFTER", 1)
    fickle = Repeated(lambda x: x if x.sum() > 0 else -x)
    for value in (1.0, -2.0, 3.0):
        assert fickle(torch.tensor([value])).item() == abs(value)


@pytest.mark.parametrize("compile", [False, True])
def test_a_fit_whose_time_is_over_ends_while_it_is_traced(monkeypatch, compile):
    def late(*_):
        raise TimeoutError("over")

    monkeypatch.setattr(traced, "AFTER", 1)
    monkeypatch.setattr(traced, "compiled_graph" if compile else "recorded", late)
    with pytest.raises(TimeoutError, match="over"):
        Repeated(lambda x: 2 * x, compile)(torch.ones(3))


def test_a_failing_compiler_is_told_once_and_the_trace_runs(monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("no C++ compiler\nand a long story")

    monkeypatch.setattr(torch._inductor, "compile", broken)
    function = Counted(lambda x: x + 1)
    repeated = Repeated(function, compile=True)
    with caplog.at_level(logging.WARNING):
        assert [repeated(torch.ones(n)).sum().item() for n in (1, 1, 2, 2)] == [2, 2, 4, 4]
    assert function.calls == 3  # the second kind of call waits for its 20th
    assert [record.message for record in caplog.records] == [
        "torch.compile failed, going on without it (slower): no C++ compiler"
    ]


@pytest.mark.parametrize("there", [True, False])
def test_operations_are_made_without_python_where_there_is_an_interpreter(monkeypatch, there):
    monkeypatch.setattr(traced, "AFTER", 1)
    if not there:
        monkeypatch.delattr(torch.jit, "trace")
    function = Counted(lambda x: x.exp().sum(1))
    repeated, x = Repeated(function), torch.randn(3, 4)
    assert all(torch.equal(repeated(x + call), (x + call).exp().sum(1)) for call in range(5))
    assert function.calls == 1
    [trace] = repeated._traces.values()
    assert isinstance(trace.run, torch.jit.ScriptModule) == there


@pytest.mark.parametrize("name", ["adam", "bbb", "vifa", "slang", "noisy-kfac", "ivon"])
def test_a_fit_by_traces_has_the_bits_of_one_without(monkeypatch, name):
    """The last rows of an epoch are another kind of call; noise is drawn for one update at a time, or for many."""
    schedule = Schedule(epochs=5, batch_size=8, incomplete="drop" if name == "vifa" else "keep")
    fits = []
    for after, ahead in ((10**9, 1), (2, 2**12)):
        monkeypatch.setattr(traced, "AFTER", after)
        monkeypatch.setattr(blocks, "AHEAD", ahead)
        programs.cache_clear()  # functions count their calls from fit to fit
        program = toy_program(method=METHODS.build(name, {}), schedule=schedule)
        fits.append(fitted(program, toy_trials(program, [43, 43, 47])))
    assert all(map(torch.equal, *(tree_leaves(fit.state) for fit in fits)))
