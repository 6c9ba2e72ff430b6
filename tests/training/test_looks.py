"""A look at a fit finds what a fit of that length gives, and leaves no trace."""

import numpy as np
import pytest

from bdl.errors import InputError
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.counters import StepCounters
from bdl.methods.iterates_fa import IteratesFa
from bdl.methods.mc_dropout import McDropout
from bdl.methods.sgd_iterates import SgdIterates
from bdl.methods.slang import Slang
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.training.fitting import EvaluationSchedule
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


def places(evaluations: EvaluationSchedule, stop: int) -> list[int]:
    """Places up to `stop` on an axis of epochs of one update, or of updates."""
    counts = (StepCounters(n, n, ended=True, per_epoch=1.0) for n in range(stop + 1))
    return [place for place in map(evaluations.due, counts) if place]


def test_when_a_look_is_due():
    assert places(EvaluationSchedule("updates", every=3), 10) == [3, 6, 9]
    assert places(EvaluationSchedule("epochs", log=True), 130) == [1, 2, 5, 10, 20, 50, 100]
    assert places(EvaluationSchedule("observations", log=True, first=100), 3000) == [100, 200, 500, 1000, 2000]
    assert places(EvaluationSchedule("updates", log=True, first=3), 60) == [5, 10, 20, 50]
    inside = StepCounters(7, 2, ended=False, per_epoch=3.0)
    assert EvaluationSchedule("epochs", every=1).due(inside) is None
    assert EvaluationSchedule("updates", every=1).due(inside) == 7
    assert EvaluationSchedule("epochs", every=2).due(StepCounters(8, 4, ended=True, per_epoch=2.0)) == 4
    assert list(EvaluationSchedule("observations", every=40).within(80, 160)) == [120, 160]


@pytest.mark.parametrize("settings", [{}, {"every": 3, "log": True}])
def test_looks_say_either_how_often_or_log(settings):
    with pytest.raises(InputError, match="give either every, or log: true"):
        EvaluationSchedule("epochs", **settings)


@pytest.mark.parametrize("name", METHODS)
def test_a_look_after_an_epoch_is_a_fit_of_so_many_epochs(name):
    """Five, three and six minibatches an epoch; with three or four in an update an epoch ends within one."""
    epochs, lengths = 30 if name == "iterates-fa" else 6, [40, 24, 50]
    program = toy_program(method=METHODS[name], schedule=Schedule(epochs, 8))
    evaluations = EvaluationSchedule("epochs", every=epochs // 3)
    found = curve(program.fitting(toy_trials(program, lengths)), evaluations)
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
    found = curve(program.fitting(toy_trials(program, [45, 40])), EvaluationSchedule("updates", log=True))
    assert {place for _, place in found} == {0, 1, 2, 5}
    for place in (1, 2, 5, 7):
        short = toy_program(method=Swag(warmup_epochs=2), schedule=Schedule(place, 40))
        alone = fitted(short, toy_trials(short, [45, 40]))
        for i in range(2):
            assert same(found[i, place if place < 7 else 0], pick(alone.state, i))


@pytest.mark.parametrize(
    "evaluations",
    [
        None,
        EvaluationSchedule("epochs", every=1),
        EvaluationSchedule("updates", every=1),
        EvaluationSchedule("updates", every=7),
    ],
)
def test_looking_changes_nothing(evaluations):
    program = toy_program()
    trials = toy_trials(program, [40, 24])
    expected = fitted(program, trials)
    snapshots = list(program.fitting(trials).run(evaluations))
    last = [snapshot for snapshot in snapshots if snapshot.last]
    assert [snapshot.index for snapshot in last] == [(0,), (1,)]
    for i, snapshot in enumerate(last):
        assert same(pick(snapshot.state, 0), pick(expected.state, i))
    if evaluations:
        own = [snapshot for snapshot in snapshots if snapshot.index == (0,)]
        seen = [evaluations.due(snapshot.counters) for snapshot in own]
        assert seen[: len(own) - 1] == sorted(set(seen[:-1])), "each place once, in order"
        assert (
            len(own)
            == {"epochs": 20, "updates": 50 // evaluations.every + (50 % evaluations.every > 0)}[evaluations.unit]
        )


def test_clocks_of_updates_that_mix_epochs():
    """Five minibatches an epoch, two an update: epochs end after updates 2, 5, 7, 10."""
    program = toy_program(schedule=Schedule(4, 8))
    trials = toy_trials(program, [40])
    by_update = [snapshot.counters for snapshot in program.fitting(trials).run(EvaluationSchedule("updates", every=1))]
    assert [counters.epochs for counters in by_update] == [0, 1, 1, 1, 2, 2, 3, 3, 3, 4]
    assert [counters.updates for counters in by_update if counters.ended] == [2, 5, 7, 10]
    assert {counters.per_epoch for counters in by_update} == {2.5}
    by_epoch = [snapshot.counters for snapshot in program.fitting(trials).run(EvaluationSchedule("epochs", every=1))]
    assert [(counters.epochs, counters.updates) for counters in by_epoch] == [(1, 2), (2, 5), (3, 7), (4, 10)]


def test_a_fit_without_an_update_is_its_start():
    program = toy_program(schedule=Schedule(1, 30), method=Vifa(gradients_per_update=4))
    (only,) = program.fitting(toy_trials(program, [31])).run(EvaluationSchedule("updates", every=1))
    assert (only.last, only.updates.tolist(), only.counters.updates) == (True, [0], 0)
    np.testing.assert_array_equal(only.state.params["c"], np.zeros((1, program.problem.dim)))


def test_trials_have_no_observations():
    program = toy_program()
    with pytest.raises(InputError, match="observations are those of streams"):
        next(program.fitting(toy_trials(program, [40])).run(EvaluationSchedule("observations", every=5)))
