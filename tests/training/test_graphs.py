"""Launches of updates as graphs: a stand-in replays recorded operations on the same tensors."""

import logging

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bdl.methods import METHODS
from bdl.rng import trial_keys
from bdl.training import graphs, traced, updates
from bdl.training.schedule import Schedule
from bdl.training.traced import TracedFunction
from bdl.training.updates import Normals, cached_update_functions

from .toy import fitted, toy_program, toy_trials


class Recording(TorchDispatchMode):
    """Records operations; replays them from and into the tensors that they had, as CUDA does."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        self.operations.append((func, args, kwargs or {}, output))
        return output

    def replay(self):
        for func, args, kwargs, output in self.operations:
            if func.is_view:  # of a tensor that is where it was
                continue
            again = func(*args, **kwargs)
            if not func._schema.is_mutable:
                for place, value in zip(tree_leaves(output), tree_leaves(again), strict=True):
                    place.copy_(value)


class StandIn:
    """Records operations of tensors on the CPU."""

    def __init__(self, refuses=False):
        self.recordings, self.refuses = [], refuses

    def records(self, leaves):
        return True

    def warm_up(self, function):
        function()

    def record(self, function):
        if self.refuses:
            raise RuntimeError("CUDA error: operation not permitted\nwhen stream is capturing")
        with Recording() as recording:
            function()
        # CUDA makes no operation while it records: what is in the tensors then is no result
        for func, *_, output in recording.operations:
            for leaf in tree_leaves(output):
                if not (func.is_view or func._schema.is_mutable) and leaf.is_floating_point():
                    leaf.fill_(torch.nan)
        self.recordings.append(recording)
        return recording.replay


@pytest.fixture
def stand_in(monkeypatch):
    """Put the stand-in in the place of CUDA's graphs; traces are made from the first call on."""

    def place(**settings):
        recorder = StandIn(**settings)
        monkeypatch.setattr(graphs, "recorder", recorder)
        monkeypatch.setattr(traced, "TRACE_AFTER_CALLS", 1)
        monkeypatch.setattr(updates, "PREFETCH_NUMBERS", 2**12)
        cached_update_functions.cache_clear()
        return recorder

    yield place
    cached_update_functions.cache_clear()


@pytest.mark.parametrize(
    ("name", "settings", "recorded"),
    [
        ("adam", {}, True),
        ("bbb", {}, True),
        ("vifa", {"gradients_per_update": 2}, True),
        ("swag", {"warmup_epochs": 1, "rank": 2}, True),
        ("ivon", {}, True),
        ("slang", {"rank": 2}, False),  # its QR decomposition waits for the device
    ],
)
def test_a_fit_by_graphs_has_the_bits_of_one_without(stand_in, name, settings, recorded):
    """Chains end with epochs, whose last minibatches are another kind of update."""
    fits, schedule = [], Schedule(epochs=3, batch_size=8)
    program = toy_program(method=METHODS.build(name, settings), schedule=schedule)
    trials = toy_trials(program, [43, 43, 47])
    fits.append(fitted(program, trials))
    recorder = stand_in()
    fits.append(fitted(program, trials))
    assert bool(recorder.recordings) == recorded
    assert all(map(torch.equal, *(tree_leaves(fit.state) for fit in fits)))


def test_results_that_are_arguments_change_places(stand_in):
    recorder = stand_in()
    function = TracedFunction(lambda state, x, one: (state[1], state[0] + x, state[2], one))
    state = torch.zeros(2), torch.ones(2), torch.full((2,), 7.0), torch.zeros(2)
    expected = tuple(leaf.clone() for leaf in state)
    each = [(torch.full((2,), float(i)),) for i in range(5)]
    returned = function.chain(state, each, torch.ones(2))
    for (x,) in each:
        expected = expected[1], expected[0] + x, expected[2], torch.ones(2)
    assert len(recorder.recordings) == 1
    assert all(map(torch.equal, returned, expected))


def test_later_chains_leave_earlier_results_alone_and_read_shared_arguments_anew(stand_in):
    recorder = stand_in()
    function = TracedFunction(lambda state, x, scale: state * scale + x)
    each, state = [(torch.ones(3),)] * 3, torch.ones(3)
    first = function.chain(state, each, torch.tensor(1.0))
    second = function.chain(first, each, torch.tensor(0.0))
    assert (state.tolist(), first.tolist(), second.tolist()) == ([1] * 3, [4] * 3, [1] * 3)
    assert len(recorder.recordings) == 1
    function.chain(torch.ones(4), [(torch.ones(4),)] * 3, torch.tensor(1.0))
    assert len(recorder.recordings) == 2, "another kind of call has a graph of its own"


def test_where_launches_cannot_be_recorded_they_are_made_one_by_one(stand_in, caplog):
    stand_in(refuses=True)
    function = TracedFunction(lambda state, x: state + x)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert function.chain(torch.zeros(1), [(torch.ones(1),)] * 4).tolist() == [4]
    assert [record.message for record in caplog.records] == [
        "launches are not recorded as a graph, going on without it (slower): "
        "CUDA error: operation not permitted"
    ]


def test_an_argument_that_has_no_buffer_is_said(stand_in, caplog):
    recorder = stand_in()
    function = TracedFunction(lambda state, x: state + x)
    x = torch.ones(1).expand(3)
    with caplog.at_level(logging.WARNING):
        assert function.chain(torch.zeros(3), [(x,)] * 3).tolist() == [3] * 3
    assert not recorder.recordings
    assert "a tensor with strides (0,) has no buffer like it" in caplog.text


@pytest.mark.parametrize("decompose", [torch.linalg.qr, torch.linalg.eigh, torch.linalg.svd])
def test_decompositions_are_not_recorded(stand_in, caplog, decompose):
    recorder = stand_in()
    function = TracedFunction(lambda state, x: state + tree_leaves(decompose(x))[-1].diagonal())
    matrix = torch.eye(2) + 0.25
    with caplog.at_level(logging.WARNING):
        function.chain(torch.zeros(2), [(matrix,)] * 3)
    assert not recorder.recordings
    assert not caplog.records


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_nothing_waits_for_the_device_in_a_chain(monkeypatch):
    monkeypatch.setattr(traced, "TRACE_AFTER_CALLS", 1)
    function = TracedFunction(lambda state, pair, rate: state - rate * pair[0] * pair[1])
    keys = {"noise": trial_keys([("a",), ("b",)], "noise").cuda()}
    normals = Normals(keys, torch.float32, compile=False)
    state, rate = torch.zeros(2, 5, device="cuda"), torch.full((2, 1), 0.1, device="cuda")
    expected = state.clone()
    for block in range(3):  # the first records
        if block:
            torch.cuda.set_sync_debug_mode("error")
        try:
            pairs = [(normals.of("noise", 8 * block + i, 5),) for i in range(8)]
            state = function.chain(state, pairs, rate)
            for ((first, second),) in pairs:
                expected = expected - rate * first * second
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(state, expected)
