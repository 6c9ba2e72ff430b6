"""A fit that is cut off goes on to the same bits."""

from collections.abc import Iterator
from itertools import islice

import pytest
import torch

from bdl.methods.bbb import BayesByBackprop
from bdl.methods.iterates_fa import IteratesFa
from bdl.methods.online_px_em import OnlinePxEm
from bdl.methods.sgd_iterates import SgdIterates
from bdl.methods.slang import Slang
from bdl.methods.swag import Swag
from bdl.methods.vifa import Vifa
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import EvaluationSchedule, Snapshot, run_to_end
from bdl.training.schedule import Schedule

from .test_streaming import streams
from .toy import fitted, pick, same, toy_program, toy_trials

VALUES = {"a": torch.arange(6.0).view(2, 3), "n": torch.tensor(7), "view": torch.arange(8.0)[::2]}


def at_once(tmp_path, key: str = "fit") -> Checkpoint:
    """A checkpoint that saves whenever it may."""
    return Checkpoint(tmp_path / "checkpoints", key, every_seconds=0)


def test_what_was_saved_last_comes_back(tmp_path):
    first = at_once(tmp_path)
    assert (first.load(0), first.text, first.due) == (None, "", True)
    assert not Checkpoint(tmp_path, "fit", every_seconds=3600).due
    for part, text in enumerate(("one", "one two")):
        for updates in (5, 6):
            first.text = text
            first.save(part, VALUES, {"updates": updates})
    again = at_once(tmp_path)
    tensors, numbers = again.load(0)
    assert (numbers, again.text) == ({"updates": 6}, "one two")
    assert set(tensors) == set(VALUES)
    assert all(torch.equal(tensors[name], value) for name, value in VALUES.items())
    assert len(list((tmp_path / "checkpoints").iterdir())) == 2, (
        "nothing but the files themselves is left"
    )


def test_another_fit_finds_nothing_and_removes_nothing(tmp_path):
    first, other = at_once(tmp_path), at_once(tmp_path, "other fit")
    first.save(0, VALUES, {})
    other.save(3, VALUES, {})
    other.remove()
    assert other.load(3) is None
    assert first.load(0) is not None
    first.remove()
    first.remove()
    assert at_once(tmp_path).load(0) is None


def test_a_file_that_cannot_be_read_counts_as_none(tmp_path):
    at_once(tmp_path).save(0, VALUES, {})
    (path,) = (tmp_path / "checkpoints").iterdir()
    path.write_bytes(path.read_bytes()[:20])
    assert at_once(tmp_path).load(0) is None


def stopped(snapshots: Iterator[Snapshot], after: int) -> None:
    """Let a fit run until it has been looked at so often, and abandon it."""
    for _ in islice(snapshots, after):
        pass


@pytest.mark.parametrize(
    ("method", "unit", "epochs"),
    [
        pytest.param(Vifa(gradients_per_update=2), "updates", 6, id="updates"),
        pytest.param(Vifa(gradients_per_update=2), "epochs", 6, id="epochs"),
        pytest.param(Vifa(gradients_per_update=7), "updates", 12, id="many minibatches"),
        pytest.param(Swag(warmup_epochs=2), "epochs", 6, id="swag"),
        pytest.param(BayesByBackprop(samples=2), "updates", 2, id="bbb"),
        pytest.param(Slang(rank=2, samples=2), "updates", 2, id="slang"),
        pytest.param(SgdIterates(warmup_epochs=2, window=3), "updates", 6, id="sgd-iterates"),
        pytest.param(IteratesFa(warmup_epochs=2), "epochs", 30, id="iterates-fa"),
    ],
)
def test_a_fit_goes_on_to_the_same_bits(tmp_path, method, unit, epochs):
    """Two groups of trials, with five and three minibatches an epoch, cut off in the first, between, in the second."""
    program, evaluations = (
        toy_program(method=method, schedule=Schedule(epochs, 8)),
        EvaluationSchedule(unit, every=1),
    )
    trials = toy_trials(program, [40, 24, 43])
    expected = fitted(program, trials)
    everything = sum(1 for _ in program.fitting(trials).run(evaluations))
    for after in {1, 3, everything // 2, everything - 2, everything - 1, everything}:
        stopped(
            program.fitting(trials).run(evaluations, checkpoint=at_once(tmp_path, f"{after}")),
            after,
        )
        heard: list[int] = []
        found = run_to_end(program.fitting(trials), heard.append, at_once(tmp_path, f"{after}"))
        assert all(same(pick(found.state, i), pick(expected.state, i)) for i in range(3))
        assert found.updates.tolist() == expected.updates.tolist()
        assert found.diverged.tolist() == expected.diverged.tolist()
        assert sum(heard) >= method.batches_per_step * int(expected.updates.sum())
        assert after == 1 or heard[0] > 0, "it went on, and did not begin again"


def test_what_was_done_is_not_done_again(tmp_path):
    program = toy_program(method=Vifa(), schedule=Schedule(8, 8))
    fitting, evaluations = (
        program.fitting(toy_trials(program, [40])),
        EvaluationSchedule("updates", every=1),
    )
    stopped(fitting.run(evaluations, checkpoint=at_once(tmp_path)), 7)
    rest = [
        snapshot.counters.updates
        for snapshot in fitting.run(evaluations, checkpoint=at_once(tmp_path))
    ]
    assert rest == [7, 8, 9, 10], "after six updates, the last that were saved"


def test_the_epoch_of_divergence_outlives_the_interruption(tmp_path):
    program = toy_program(method=Vifa(), schedule=Schedule(8, 8))
    trials = toy_trials(program, [40, 40], learning_rate=[0.01, float("nan")])
    stopped(
        program.fitting(trials).run(
            EvaluationSchedule("epochs", every=1), checkpoint=at_once(tmp_path)
        ),
        6,
    )
    assert run_to_end(program.fitting(trials), checkpoint=at_once(tmp_path)).diverged.tolist() == [
        0,
        1,
    ]


def test_streams_go_on_to_the_same_bits(tmp_path):
    fitting, evaluations = (
        streams(OnlinePxEm(2), length=3300),
        EvaluationSchedule("observations", every=700),
    )

    def states(checkpoint=None):
        snapshots = fitting.run(evaluations, checkpoint=checkpoint)
        return {own.counters.updates: [leaf.clone() for leaf in own.state] for own in snapshots}

    expected = states()
    stopped(fitting.run(evaluations, checkpoint=at_once(tmp_path)), 4)
    rest = states(at_once(tmp_path))
    assert list(expected) == [700, 1400, 2100, 2800, 3300]
    assert list(rest) == [2100, 2800, 3300], "two thousand had been learnt from"
    assert all(same(rest[place], expected[place]) for place in rest)
