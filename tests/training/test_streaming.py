"""Streams learnt from as one batch: one after the other gives the same, and evaluations leave no trace."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl.data.streams import Stream
from bdl.errors import InputError
from bdl.methods.batch_fa import BatchFa
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm
from bdl.training.fitting import EvaluationSchedule, finished
from bdl.training.streaming import StreamFitting, StreamTrial

from .toy import same

METHODS = [OnlineEm(2), OnlinePxEm(2), OnlinePxEm(2, block=70), BatchFa(2)]


def streams(method, length: int = 1300, splits: tuple[int, ...] = (0, 3)) -> StreamFitting:
    """Two spectra of each split."""
    kinds = [Stream(12, top, length=length) for top in (10, 100)]
    return StreamFitting(method, [StreamTrial(kind, split, split + 1) for split in splits for kind in kinds])


def last(fitting: StreamFitting) -> list[Tensor]:
    """The state in the end."""
    (snapshot,) = fitting.run()
    assert snapshot.last
    return tree_leaves(snapshot.state)


def test_is_the_method_fed_with_each_stream():
    fitting = streams(OnlineEm(2))
    end = finished(fitting)
    assert (end.index, end.updates.tolist()) == ((0, 1, 2, 3), [1300] * 4)
    for i, trial in enumerate(fitting.trials):
        generator = torch.Generator().manual_seed(trial.seed)
        state = OnlineEm(2).init({"F": torch.randn(12, 2, generator=generator)})
        (observations,) = trial.stream.blocks(trial.split, 1300)
        alone, own = OnlineEm(2).posterior(OnlineEm(2).update_block(state, observations)), fitting.posterior(end, i)
        torch.testing.assert_close(own.mean(), alone.mean(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own.covariance(), alone.covariance(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_look_is_a_stream_of_that_length_and_leaves_no_trace(method):
    """At ends of blocks, of thousands, and anywhere else."""
    fitting = streams(method)
    expected = last(fitting)
    for evaluations in (
        EvaluationSchedule("observations", every=250),
        EvaluationSchedule("observations", log=True, first=500),
    ):
        for snapshot in fitting.run(evaluations):
            place = snapshot.counters.updates
            short = replace(
                fitting, trials=[t._replace(stream=replace(t.stream, length=place)) for t in fitting.trials]
            )
            assert same(tree_leaves(snapshot.state), last(short))
        assert (snapshot.last, place) == (True, 1300)
        assert same(tree_leaves(snapshot.state), expected)


def test_places():
    counts = [
        snapshot.counters.updates for snapshot in streams(OnlineEm(2)).run(EvaluationSchedule("observations", log=True))
    ]
    assert counts == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 1300]
    counts = [
        snapshot.counters.updates
        for snapshot in streams(OnlineEm(2)).run(EvaluationSchedule("observations", every=650))
    ]
    assert counts == [650, 1300]


def test_progress_counts_all_observations():
    heard: list[int] = []
    finished(streams(OnlineEm(2)), heard.append)
    assert sum(heard) == 4 * 1300


def test_streams_have_no_epochs():
    with pytest.raises(InputError, match="a stream has no epochs; count observations"):
        next(streams(OnlineEm(2)).run(EvaluationSchedule("epochs", every=1)))
