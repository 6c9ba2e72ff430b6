"""On a GPU methods end where they end on the CPU, and a CUDA graph of an update changes no bit."""

import pytest
import torch

from bdl.training import traced
from bdl.training.programs import programs

from .test_devices import STEPPED, methods, trials
from .toy import fitted, toy_program, toy_trials

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture
def early(monkeypatch):
    """Trace from the second call on; programs are made anew for it."""
    monkeypatch.setattr(traced, "AFTER", 2)
    programs.cache_clear()
    yield
    programs.cache_clear()


@pytest.mark.parametrize("method", STEPPED)
def test_methods_end_where_they_end_on_the_cpu(method, early):
    for settings in trials(method):
        expected = methods.fitted(settings, "float64")
        programs.cache_clear()
        for name, value in methods.fitted(settings, "float64", "cuda").items():
            wanted, value = expected[name].double(), value.double().cpu()
            error = (value - wanted).abs().max() / wanted.abs().max().clamp(min=1e-12)
            assert error < 1e-7, (settings["model"], name, float(error))


def test_a_graph_of_an_update_changes_no_bit(early, monkeypatch):
    captured = traced._captured
    made = []

    def counted(run, leaves):
        found = captured(run, leaves)
        made.append(found is not run)
        return found

    def states(capture):
        monkeypatch.setattr(traced, "_captured", capture)
        programs.cache_clear()
        program = toy_program()
        program = type(program)(**{**vars(program), "pool": program.pool.load(program.dataset, "cuda")})
        return fitted(program, toy_trials(program, [40, 43, 60])).state

    plain = torch.utils._pytree.tree_leaves(states(lambda run, leaves: run))
    graph = torch.utils._pytree.tree_leaves(states(counted))
    assert made
    assert all(made)
    assert all(map(torch.equal, graph, plain))
