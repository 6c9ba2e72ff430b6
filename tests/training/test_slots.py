"""Slot batches: how they are filled, and that bits of a trial do not depend on the other trials."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

from bdl.methods.bbb import BayesByBackprop
from bdl.methods.slang import Slang
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.training.fitting import run_to_end
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch, SlotGroup

from .toy import pick, same, toy_program, toy_trials

LENGTHS = [40, 24, 47, 50, 31, 44]
"""5, 3, 5, 6, 3 and 5 minibatches of 8 rows."""


def test_groups_have_the_slots_of_trials_with_as_many_minibatches():
    """Trials 0 and 1 have the slots 5 and 1.

    Those of 3 stay empty, and no group is made of them alone.
    """
    schedule = Schedule(epochs=1, batch_size=8)
    assert list(SlotBatch(LENGTHS, (5, 1)).groups(schedule)) == [
        SlotGroup(0, slot_trials=[0, 0, 0], fitted_slots=[2], fitted_trials=(0,)),
        SlotGroup(1, slot_trials=[1, 1], fitted_slots=[0], fitted_trials=(1,)),
    ]
    assert list(SlotBatch(LENGTHS, (3, 2, 0)).groups(schedule)) == [
        SlotGroup(0, slot_trials=[2, 1, 1], fitted_slots=[1, 0], fitted_trials=(1, 2)),
        SlotGroup(2, slot_trials=[0, 0], fitted_slots=[0], fitted_trials=(0,)),
    ]


def test_groups_have_as_many_rows_where_incomplete_minibatches_are_kept():
    schedule = Schedule(epochs=1, batch_size=8, incomplete="keep")
    (alone,) = SlotBatch([40], (0,), min_slots=1).groups(schedule)
    assert alone.slot_trials == [0]
    (group,) = SlotBatch([40, 39, 40], (2,)).groups(schedule)
    assert group == SlotGroup(0, slot_trials=[0, 0], fitted_slots=[1], fitted_trials=(0,))


@pytest.mark.parametrize(
    "method",
    [
        Vifa(latent_dim=2, gradients_per_update=2),
        Slang(rank=2, samples=2),
        BayesByBackprop(samples=2),
        Swag(rank=3, warmup_epochs=2),
    ],
    ids=lambda method: type(method).__name__,
)
def test_a_trial_has_the_same_bits_in_any_company(method):
    """Unlike numbers of minibatches: the slot batch is trained in groups."""
    program = toy_program(method=method, schedule=Schedule(epochs=6, batch_size=8))
    trials = toy_trials(program, LENGTHS)
    everyone = run_to_end(program.fitting(trials))
    for company in ([4], [2], [5, 0], [3, 1, 2]):
        heard: list[int] = []
        fitting = program.fitting(trials.take(company), slot_batch=SlotBatch(LENGTHS, company))
        found = run_to_end(fitting, heard.append)
        assert len(found.diverged) == len(company)
        assert sum(heard) == method.batches_per_step * found.updates.sum(), (
            "copies are not counted"
        )
        for position, trial in enumerate(company):
            assert same(pick(found.state, position), pick(everyone.state, trial))
    assert all(leaf.isfinite().all() for leaf in tree_leaves(everyone.state))


def test_a_single_trial_has_no_copy_and_the_same_bits_on_any_number_of_threads():
    """Where it belongs to a slot batch it has one, whose bits do not depend on threads either."""
    program = toy_program(
        method=BayesByBackprop(samples=2), schedule=Schedule(epochs=6, batch_size=8)
    )
    trials, threads = toy_trials(program, LENGTHS).take([0]), torch.get_num_threads()
    assert [group.slot_trials for group in SlotBatch.of(trials.rows).groups(program.schedule)] == [
        [0]
    ]
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(run_to_end(program.fitting(trials)))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert same(*(pick(own.state, 0) for own in found))
