"""A look at a fit finds what a fit of that length gives, and leaves no trace."""

import numpy as np
import pytest

from bdl.errors import InputError
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.clock import Clock
from bdl.methods.iterates_fa import IteratesFa
from bdl.methods.mc_dropout import McDropout
from bdl.methods.sgd_iterates import SgdIterates
from bdl.methods.slang import Slang
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.training.fitting import Looks
from bdl.training.schedule import Schedule

from .toy import curve, fitted, pick, same, toy_program, toy_trials

METHODS = {
    "vifa": Vifa(gradients_per_update=3),
    "sgd-iterates": SgdIterates(warmup_epochs=2, window=4, separate_warmup=True),
    "swag": Swag(warmup_epochs=3),
    "iterates-fa": IteratesFa(estimator="px-em", warmup_epochs=1),
    "slang": Slang(),
    "bbb": BayesByBackprop(),
    "mc-dropout": McDropout(),
}


def places(looks: Looks, stop: int) -> list[int]:
    """Places up to `stop` on an axis of epochs of one update, or of updates."""
    clocks = (Clock(n, n, ended=True, per_epoch=1.0) for n in range(stop + 1))
    return [place for place in map(looks.due, clocks) if place]


def test_when_a_look_is_due():
    assert places(Looks("updates", every=3), 10) == [3, 6, 9]
    assert places(Looks("epochs", log=True), 130) == [1, 2, 5, 10, 20, 50, 100]
    assert places(Looks("observations", log=True, first=100), 3000) == [100, 200, 500, 1000, 2000]
    assert places(Looks("updates", log=True, first=3), 60) == [5, 10, 20, 50]
    inside = Clock(7, 2, ended=False, per_epoch=3.0)
    assert Looks("epochs", every=1).due(inside) is None
    assert Looks("updates", every=1).due(inside) == 7
    assert Looks("epochs", every=2).due(Clock(8, 4, ended=True, per_epoch=2.0)) == 4
    assert list(Looks("observations", every=40).within(80, 160)) == [120, 160]


@pytest.mark.parametrize("settings", [{}, {"every": 3, "log": True}])
def test_looks_say_either_how_often_or_log(settings):
    with pytest.raises(InputError, match="give either every, or log: true"):
        Looks("epochs", **settings)


@pytest.mark.parametrize("name", METHODS)
def test_a_look_after_an_epoch_is_a_fit_of_so_many_epochs(name):
    """Five, three and six minibatches an epoch; with three or four in an update an epoch ends within one."""
    epochs, lengths = 30 if name == "iterates-fa" else 6, [40, 24, 50]
    program = toy_program(method=METHODS[name], schedule=Schedule(epochs, 8))
    looks = Looks("epochs", every=epochs // 3)
    found = curve(program.fitting(toy_trials(program, lengths)), looks)
    assert set(found) == {(i, place) for i in range(3) for place in (0, epochs // 3, 2 * epochs // 3, epochs)}
    for place in (epochs // 3, 2 * epochs // 3, epochs):
        short = toy_program(method=METHODS[name], schedule=Schedule(place, 8))
        alone = fitted(short, toy_trials(short, lengths))
        for i in range(3):
            assert same(found[i, place], pick(alone.state, i))
            assert same(found[i, 0], found[i, epochs])


def test_a_look_after_an_update_is_a_fit_of_so_many_updates():
    """One minibatch an epoch, so that there are fits of any number of updates."""
    program = toy_program(method=Swag(warmup_epochs=2), schedule=Schedule(7, 40))
    found = curve(program.fitting(toy_trials(program, [45, 40])), Looks("updates", log=True))
    assert {place for _, place in found} == {0, 1, 2, 5}
    for place in (1, 2, 5, 7):
        short = toy_program(method=Swag(warmup_epochs=2), schedule=Schedule(place, 40))
        alone = fitted(short, toy_trials(short, [45, 40]))
        for i in range(2):
            assert same(found[i, place if place < 7 else 0], pick(alone.state, i))


@pytest.mark.parametrize(
    "looks", [None, Looks("epochs", every=1), Looks("updates", every=1), Looks("updates", every=7)]
)
def test_looking_changes_nothing(looks):
    program = toy_program()
    trials = toy_trials(program, [40, 24])
    expected = fitted(program, trials)
    snapshots = list(program.fitting(trials).run(looks))
    last = [snapshot for snapshot in snapshots if snapshot.last]
    assert [snapshot.index for snapshot in last] == [(0,), (1,)]
    for i, snapshot in enumerate(last):
        assert same(pick(snapshot.state, 0), pick(expected.state, i))
    if looks:
        own = [snapshot for snapshot in snapshots if snapshot.index == (0,)]
        seen = [looks.due(snapshot.clock) for snapshot in own]
        assert seen[: len(own) - 1] == sorted(set(seen[:-1])), "each place once, in order"
        assert len(own) == {"epochs": 20, "updates": 50 // looks.every + (50 % looks.every > 0)}[looks.unit]


def test_clocks_of_updates_that_mix_epochs():
    """Five minibatches an epoch, two an update: epochs end after updates 2, 5, 7, 10."""
    program = toy_program(schedule=Schedule(4, 8))
    trials = toy_trials(program, [40])
    by_update = [snapshot.clock for snapshot in program.fitting(trials).run(Looks("updates", every=1))]
    assert [clock.epochs for clock in by_update] == [0, 1, 1, 1, 2, 2, 3, 3, 3, 4]
    assert [clock.updates for clock in by_update if clock.ended] == [2, 5, 7, 10]
    assert {clock.per_epoch for clock in by_update} == {2.5}
    by_epoch = [snapshot.clock for snapshot in program.fitting(trials).run(Looks("epochs", every=1))]
    assert [(clock.epochs, clock.updates) for clock in by_epoch] == [(1, 2), (2, 5), (3, 7), (4, 10)]


def test_a_fit_without_an_update_is_its_start():
    program = toy_program(schedule=Schedule(1, 30), method=Vifa(gradients_per_update=4))
    (only,) = program.fitting(toy_trials(program, [31])).run(Looks("updates", every=1))
    assert (only.last, only.updates.tolist(), only.clock.updates) == (True, [0], 0)
    np.testing.assert_array_equal(only.state.params["c"], np.zeros((1, program.problem.dim)))


def test_trials_have_no_observations():
    program = toy_program()
    with pytest.raises(InputError, match="observations are those of streams"):
        next(program.fitting(toy_trials(program, [40])).run(Looks("observations", every=5)))
