"""How the states of a fit lie in memory."""

import pytest
import torch

from bdl.methods.point_estimate import Adam
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.training.programs import compiler_found, generators
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


@pytest.mark.skipif(not compiler_found(), reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("method", "places"),
    [(Adam(), 1), (Vifa(latent_dim=1, gradients_per_update=1), 2), (Swag(warmup_epochs=1, rank=2), 1)],
)
def test_a_program_is_compiled_once(method, places, caplog):
    """A slot batch of one place, and a factor of one column: each changes the strides of dimensions of size one.

    A second variant is an error here, after which the fit goes on uncompiled and says so. Generators of random numbers
    are made anew: those of other fits have variants for other numbers of places.
    """
    torch._dynamo.reset()  # of what other tests have compiled
    generators.cache_clear()
    program = toy_program(method=method, schedule=Schedule(3, 8))
    trials = toy_trials(program, [40] * places)
    slot_batch = SlotBatch([len(rows) for rows in trials.rows], range(places), least=1)
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert [snapshot.last for snapshot in program.fitting(trials, compile=True, slot_batch=slot_batch).run()] == [
            True
        ]
    assert "torch.compile failed" not in caplog.text
