"""Functions called by their trace, in chains and with noise drawn ahead, return the same bits."""

import logging
from collections import Counter

import pytest
import torch
from torch.utils._pytree import tree_leaves

from bdl.methods import METHODS
from bdl.rng import random_normals, trial_keys
from bdl.training import traced, updates
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch
from bdl.training.traced import TracedFunction, with_canonical_strides
from bdl.training.updates import (
    Normals,
    cached_update_functions,
    normal_generator,
    updates_per_block,
)

from .toy import fitted, toy_program, toy_trials


class Counted:
    """A function that counts how often it is really called."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)


@pytest.fixture
def after(monkeypatch):
    """Trace after so many calls; functions, which count them from fit to fit, are made anew."""

    def call(calls: int) -> None:
        monkeypatch.setattr(traced, "TRACE_AFTER_CALLS", calls)
        cached_update_functions.cache_clear()

    yield call
    cached_update_functions.cache_clear()


@pytest.mark.parametrize("interpreter", [True, False])
def test_from_a_number_of_calls_on_the_trace_runs_and_gives_the_same(
    monkeypatch, after, interpreter
):
    """Without Python where PyTorch has an interpreter."""
    after(3)
    if not interpreter:
        monkeypatch.delattr(torch.jit, "trace")
    gradient = Counted(torch.func.vmap(torch.func.grad(lambda x: (x.sin() * x.sin().exp()).sum())))
    repeated, x = TracedFunction(gradient), torch.arange(6.0).reshape(2, 3)
    for call in range(10):
        assert torch.equal(repeated(x + call), gradient.function(x + call))
        assert gradient.calls == min(call + 1, 3)
    [trace] = repeated._traces.values()
    assert isinstance(trace.run, torch.jit.ScriptModule) == interpreter


def test_other_shapes_strides_types_and_structures_are_kinds_of_their_own(after):
    after(1)
    double = Counted(lambda tree: {"twice": [2 * leaf for leaf in tree_leaves(tree)]})
    repeated, x = TracedFunction(double), torch.arange(4.0).reshape(2, 2)
    for count, tree in enumerate(
        ({"a": x}, {"b": x}, [x], x.T, x.double(), x[:1], {"a": x, "b": x}), 1
    ):
        for _ in range(2):
            found = repeated(tree)
            assert list(found) == ["twice"]
            assert all(map(torch.equal, found["twice"], [2 * leaf for leaf in tree_leaves(tree)]))
        assert double.calls == count


def test_a_function_whose_operations_depend_on_numbers_is_called_as_it_is(after):
    after(1)
    fickle = TracedFunction(lambda x: x if x.sum() > 0 else -x)
    for value in (1.0, -2.0, 3.0):
        assert fickle(torch.tensor([value])).item() == abs(value)


@pytest.mark.parametrize("compile", [False, True])
def test_a_fit_whose_time_is_over_ends_while_it_is_traced(monkeypatch, after, compile):
    def late(*_):
        raise TimeoutError("over")

    after(1)
    monkeypatch.setattr(traced, "compile_graph" if compile else "record_operations", late)
    with pytest.raises(TimeoutError, match="over"):
        TracedFunction(lambda x: 2 * x, compile)(torch.ones(3))


def test_a_failing_compiler_is_told_once_and_the_trace_runs(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def broken(*_, **__):
        raise RuntimeError("no C++ compiler\nand a long story")

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", broken)
    function = Counted(lambda x: x + 1)
    repeated = TracedFunction(function, compile=True)
    with caplog.at_level(logging.WARNING):
        assert [repeated(torch.ones(n)).sum().item() for n in (1, 1, 2, 2)] == [2, 2, 4, 4]
    assert function.calls == 3  # the second kind of call waits for its 20th
    assert [record.message for record in caplog.records] == [
        "torch.compile failed, going on without it (slower): no C++ compiler"
    ]


def test_a_chain_of_calls_is_what_calls_one_by_one_are(after):
    after(2)
    step = Counted(lambda state, x, scale: {"sum": state["sum"] * scale + x.sin(), "last": x})
    state, scale = {"sum": torch.zeros(3), "last": torch.zeros(3)}, torch.tensor(0.9)
    each = [(torch.full((3,), float(i)),) for i in range(7)]
    repeated = TracedFunction(step)
    found = repeated.chain(repeated.chain(state, each, scale), each, scale)
    assert repeated.chain(found, [], scale) is found
    assert step.calls == 2, "then by the trace"
    for own in (*each, *each):
        state = step(state, *own, scale)
    assert all(torch.equal(found[name], state[name]) for name in ("sum", "last"))


def test_a_chain_goes_on_where_what_is_returned_is_of_another_kind(after):
    after(1)
    repeated, x = TracedFunction(lambda state, x: torch.cat([state, x])), torch.ones(1)
    assert repeated.chain(torch.zeros(1), [(x,)] * 4).tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("name", ["adam", "bbb", "vifa", "slang", "noisy-kfac", "ivon"])
def test_a_fit_by_traces_has_the_bits_of_one_without(monkeypatch, after, name):
    """The last rows of an epoch are another kind of call.

    Noise is drawn for one update at a time, or for many.
    """
    schedule = Schedule(epochs=5, batch_size=8, incomplete="drop" if name == "vifa" else "keep")
    fits = []
    for calls, ahead in ((10**9, 1), (2, 2**12)):
        after(calls)
        monkeypatch.setattr(updates, "PREFETCH_NUMBERS", ahead)
        program = toy_program(method=METHODS.build(name, {}), schedule=schedule)
        fits.append(fitted(program, toy_trials(program, [43, 43, 47])))
    assert all(map(torch.equal, *(tree_leaves(fit.state) for fit in fits)))


def test_normals_are_those_of_their_update_whatever_comes_before(monkeypatch):
    monkeypatch.setattr(updates, "PREFETCH_NUMBERS", 40)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    numbers = 0, 1, 13, 39, 41
    assert [updates_per_block(count, cpu) for count in numbers] == [40, 40, 3, 1, 1]
    assert updates_per_block(updates.PREFETCH_NUMBERS_CUDA // 2, cuda) == 2
    keys = {"noise": trial_keys([("a",), ("b",)], "noise")}
    normals = Normals(keys, torch.float32, compile=False)
    for count in (3, 4, 0, 11):  # four are drawn at once
        expected = random_normals(keys["noise"], torch.tensor(count, dtype=torch.int32), 5)
        assert all(map(torch.equal, normals.of("noise", count, 5), expected))
    assert [half.shape for half in normals.of("noise", 0, 0)] == [(2, 0)]


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((1, 5), (1, 1), (5, 1)),
        ((3, 5, 1), (5, 1, 5), (5, 1, 1)),
        ((1,), (0,), (1,)),
        ((1, 0), (7, 1), (0, 1)),
        ((5, 3), (1, 5), (1, 5)),  # no dimension is of size one
        ((1, 3, 5), (1, 1, 3), (15, 5, 1)),  # lies in another order, and is copied
    ],
)
def test_dimensions_of_size_one_get_the_strides_of_the_shape(shape, strides, expected):
    leaf = torch.arange(15.0).as_strided(shape, strides)
    (found,) = with_canonical_strides((leaf,))
    assert (found.stride(), found.tolist()) == (expected, leaf.tolist())
    assert (found.data_ptr() == leaf.data_ptr()) == (shape != (1, 3, 5))


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("adam", {}),
        ("vifa", {"gradients_per_update": 1}),
        ("swag", {"warmup_epochs": 1, "rank": 2}),
        ("noisy-kfac", {}),
    ],
)
def test_a_program_is_compiled_once(monkeypatch, after, name, settings, places):
    """A slot batch of one place, and a factor of one column: each changes the strides of dimensions of size one."""
    made: Counter[TracedFunction] = Counter()
    monkeypatch.setattr(
        TracedFunction, "_compiled", lambda self, graph, _: made.update([self]) or graph.forward
    )
    monkeypatch.setattr(
        updates, "normal_generator", lambda dtype, _: normal_generator(dtype, compile=False)
    )
    after(traced.TRACE_AFTER_CALLS)
    program = toy_program(method=METHODS.build(name, settings), schedule=Schedule(3, 8))
    trials = toy_trials(program, [40] * places)
    slot_batch = SlotBatch([len(rows) for rows in trials.rows], range(places), min_slots=1)
    assert [
        snapshot.last
        for snapshot in program.fitting(trials, compile=True, slot_batch=slot_batch).run()
    ] == [True]
    assert set(made.values()) == {1}
