"""A look at a fit finds what a fit of that length gives, and leaves no trace."""

import numpy as np
import pytest
from torch.utils._pytree import tree_leaves

from bdl.errors import InputError
from bdl.methods import METHODS
from bdl.methods.counters import StepCounters
from bdl.methods.iterates_fa import IteratesFa
from bdl.methods.online_em import OnlineEm
from bdl.methods.sgd_iterates import SgdIterates
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.training import traced
from bdl.training.fitting import EvaluationSchedule
from bdl.training.schedule import Decay, Schedule
from bdl.training.updates import cached_update_functions, is_compiler_installed

from .test_streaming import streams
from .toy import curve, fitted, pick, same, toy_program, toy_trials


@pytest.mark.parametrize(
    ("evaluations", "stop", "expected"),
    [
        (EvaluationSchedule("updates", every=3), 10, [3, 6, 9]),
        (EvaluationSchedule("epochs", log=True), 130, [1, 2, 5, 10, 20, 50, 100]),
        (
            EvaluationSchedule("observations", log=True, first=100),
            3000,
            [100, 200, 500, 1000, 2000],
        ),
        (EvaluationSchedule("updates", log=True, first=3), 60, [5, 10, 20, 50]),
    ],
)
def test_when_a_look_is_due(evaluations, stop, expected):
    """Epochs are of one update."""
    places = [
        evaluations.due(StepCounters(n, n, ended=True, per_epoch=1.0)) for n in range(stop + 1)
    ]
    assert (
        [place for place in places if place]
        == expected
        == list(evaluations.counts_between(0, stop))
    )


def test_epochs_are_looked_at_when_they_have_ended():
    inside = StepCounters(7, 2, ended=False, per_epoch=3.0)
    assert EvaluationSchedule("epochs", every=1).due(inside) is None
    assert EvaluationSchedule("updates", every=1).due(inside) == 7
    assert (
        EvaluationSchedule("epochs", every=2).due(StepCounters(8, 4, ended=True, per_epoch=2.0))
        == 4
    )


@pytest.mark.parametrize(
    "method",
    [
        Vifa(gradients_per_update=3),
        SgdIterates(warmup_epochs=2, window=4, separate_warmup=True),
        Swag(warmup_epochs=3),
        IteratesFa(estimator="px-em", warmup_epochs=1),
    ],
    ids=lambda method: type(method).__name__,
)
def test_a_look_after_an_epoch_is_a_fit_of_so_many_epochs(method):
    """Five, three and six minibatches an epoch.

    With three in an update an epoch ends within one.
    """
    epochs, lengths = 30 if isinstance(method, IteratesFa) else 6, [40, 24, 50]
    program = toy_program(method=method, schedule=Schedule(epochs, 8))
    places = (epochs // 3, 2 * epochs // 3, epochs)
    found = curve(
        program.fitting(toy_trials(program, lengths)),
        EvaluationSchedule("epochs", every=places[0]),
    )
    assert set(found) == {(i, place) for i in range(3) for place in (0, *places)}
    for place in places:
        short = toy_program(method=method, schedule=Schedule(place, 8))
        alone = fitted(short, toy_trials(short, lengths))
        for i in range(3):
            assert same(found[i, place], pick(alone.state, i))
            assert same(found[i, 0], found[i, epochs])


def test_a_look_after_an_update_is_a_fit_of_so_many_updates():
    """One minibatch an epoch, so that there are fits of any number of updates."""
    program = toy_program(method=Swag(warmup_epochs=2), schedule=Schedule(7, 40))
    found = curve(
        program.fitting(toy_trials(program, [45, 40])), EvaluationSchedule("updates", log=True)
    )
    assert {place for _, place in found} == {0, 1, 2, 5}
    for place in (1, 2, 5, 7):
        short = toy_program(method=Swag(warmup_epochs=2), schedule=Schedule(place, 40))
        alone = fitted(short, toy_trials(short, [45, 40]))
        for i in range(2):
            assert same(found[i, place if place < 7 else 0], pick(alone.state, i))


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["adam", "vifa", "swag"])
def test_evaluation_schedule_change_no_bit(monkeypatch, name, compile):
    """The rate is another one at every update, and the last minibatch of an epoch is smaller."""
    if compile and not is_compiler_installed():
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(traced, "TRACE_AFTER_CALLS", 2)
    cached_update_functions.cache_clear()  # functions count their calls from fit to fit
    schedule = Schedule(
        epochs=4,
        batch_size=8,
        rates={"": Decay()},
        incomplete="drop" if name == "vifa" else "keep",
    )
    program = toy_program(
        method=METHODS.build(name, {"warmup_epochs": 1} if name == "swag" else {}),
        schedule=schedule,
    )
    trials = toy_trials(program, [43, 43])
    expected = list(program.fitting(trials, compile=compile).run())[-1].state
    assert all(leaf.isfinite().all() for leaf in tree_leaves(expected))
    for unit, every in (("updates", 1), ("updates", 3), ("epochs", 1)):
        found = list(
            program.fitting(trials, compile=compile).run(EvaluationSchedule(unit, every))
        )[-1].state
        assert all(same(pick(found, i), pick(expected, i)) for i in range(2))


def test_step_counters_of_updates_that_mix_epochs():
    """Five minibatches an epoch, two an update: epochs end after updates 2, 5, 7, 10."""
    program = toy_program(schedule=Schedule(4, 8))
    fitting = program.fitting(toy_trials(program, [40]))
    by_update = [
        snapshot.counters for snapshot in fitting.run(EvaluationSchedule("updates", every=1))
    ]
    assert [counters.epochs for counters in by_update] == [0, 1, 1, 1, 2, 2, 3, 3, 3, 4]
    assert [counters.updates for counters in by_update if counters.ended] == [2, 5, 7, 10]
    assert {counters.per_epoch for counters in by_update} == {2.5}
    by_epoch = [
        snapshot.counters for snapshot in fitting.run(EvaluationSchedule("epochs", every=1))
    ]
    assert [(counters.epochs, counters.updates) for counters in by_epoch] == [
        (1, 2),
        (2, 5),
        (3, 7),
        (4, 10),
    ]


def test_a_fit_without_an_update_is_its_start():
    program = toy_program(schedule=Schedule(1, 30), method=Vifa(gradients_per_update=4))
    (only,) = program.fitting(toy_trials(program, [31])).run(
        EvaluationSchedule("updates", every=1)
    )
    assert (only.last, only.updates.tolist(), only.counters.updates) == (True, [0], 0)
    np.testing.assert_array_equal(only.state.params["c"], np.zeros((1, program.problem.dim)))


def test_trials_have_no_observations_and_streams_have_nothing_else():
    program = toy_program()
    with pytest.raises(InputError, match="observations are those of streams"):
        next(
            program.fitting(toy_trials(program, [40])).run(
                EvaluationSchedule("observations", every=5)
            )
        )
    with pytest.raises(InputError, match="a stream has no epochs; count observations"):
        next(streams(OnlineEm(2)).run(EvaluationSchedule("epochs", every=1)))
