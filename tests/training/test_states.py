"""How the states of a fit lie in memory."""

from collections import Counter

import pytest
import torch

from bdl.methods.noisy_kfac import NoisyKfac
from bdl.methods.point_estimate import Adam
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.training import engine, traced
from bdl.training.programs import generator, programs
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch
from bdl.training.traced import settled

from .toy import toy_program, toy_trials


@pytest.mark.parametrize(
    ("shape", "strides", "settled_strides"),
    [
        ((1, 5), (1, 1), (5, 1)),
        ((3, 5, 1), (5, 1, 5), (5, 1, 1)),
        ((1,), (0,), (1,)),
        ((1, 0), (7, 1), (0, 1)),
        ((5, 3), (1, 5), (1, 5)),  # no dimension is of size one
    ],
)
def test_dimensions_of_size_one_get_the_strides_of_the_shape(shape, strides, settled_strides):
    leaf = torch.arange(15.0).as_strided(shape, strides)
    (found,) = settled((leaf,))
    assert found.stride() == settled_strides
    assert found.tolist() == leaf.tolist()
    assert found.data_ptr() == leaf.data_ptr()


def test_what_lies_otherwise_is_copied():
    leaf = torch.arange(15.0).view(5, 3).T.unsqueeze(0)
    (found,) = settled((leaf,))
    assert (found.stride(), found.tolist()) == ((15, 5, 1), leaf.tolist())


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize(
    "method",
    [Adam(), Vifa(latent_dim=1, gradients_per_update=1), Swag(warmup_epochs=1, rank=2), NoisyKfac()],
    ids=["adam", "vifa", "swag", "noisy-kfac"],
)
def test_a_program_is_compiled_once(method, places, monkeypatch):
    """A slot batch of one place, and a factor of one column: each changes the strides of dimensions of size one."""
    made: Counter[traced.Repeated] = Counter()
    monkeypatch.setattr(traced.Repeated, "_compiled", lambda self, graph, _: made.update([self]) or graph.forward)
    monkeypatch.setattr(engine, "generator", lambda dtype, _: generator(dtype, compile=False))
    programs.cache_clear()  # functions keep their traces from fit to fit
    program = toy_program(method=method, schedule=Schedule(3, 8))
    trials = toy_trials(program, [40] * places)
    slot_batch = SlotBatch([len(rows) for rows in trials.rows], range(places), least=1)
    assert [snapshot.last for snapshot in program.fitting(trials, compile=True, slot_batch=slot_batch).run()] == [True]
    assert set(made.values()) == {1}
    programs.cache_clear()  # nor do other tests take what is not compiled
