"""Streams learnt from as one batch: one after the other gives the same, and evaluations leave no trace."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bdl.data.streams import Stream
from bdl.methods.batch_fa import BatchFa
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm
from bdl.training.fitting import EvaluationSchedule, run_to_end
from bdl.training.streaming import StreamFitting, StreamTrial

from .toy import same


def streams(method, length: int = 1300, splits: tuple[int, ...] = (0, 3)) -> StreamFitting:
    """Two spectra of each split."""
    kinds = [Stream(12, top, length=length) for top in (10, 100)]
    return StreamFitting(
        method, [StreamTrial(kind, split, split + 1) for split in splits for kind in kinds]
    )


def last(fitting: StreamFitting) -> list[Tensor]:
    """The state in the end."""
    (snapshot,) = fitting.run()
    assert snapshot.last
    return tree_leaves(snapshot.state)


def test_is_the_method_fed_with_each_stream():
    fitting, heard = streams(OnlineEm(2)), []
    end = run_to_end(fitting, heard.append)
    assert (end.index, end.updates.tolist(), sum(heard)) == ((0, 1, 2, 3), [1300] * 4, 4 * 1300)
    for i, trial in enumerate(fitting.trials):
        generator = torch.Generator().manual_seed(trial.seed)
        state = OnlineEm(2).init({"F": torch.randn(12, 2, generator=generator)})
        (observations,) = trial.stream.blocks(trial.split, 1300)
        alone, own = (
            OnlineEm(2).posterior(OnlineEm(2).update_block(state, observations)),
            fitting.posterior(end, i),
        )
        torch.testing.assert_close(own.mean(), alone.mean(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own.covariance(), alone.covariance(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "method", [OnlineEm(2), OnlinePxEm(2), OnlinePxEm(2, block=70), BatchFa(2)], ids=str
)
@pytest.mark.parametrize(
    ("evaluations", "places"),
    [
        (EvaluationSchedule("observations", every=650), [650, 1300]),
        (EvaluationSchedule("observations", log=True, first=500), [500, 1000, 1300]),
    ],
    ids=["every", "log"],
)
def test_a_look_is_a_stream_of_that_length_and_leaves_no_trace(method, evaluations, places):
    """At ends of blocks, of thousands, and anywhere else."""
    fitting, seen = streams(method), []
    for snapshot in fitting.run(evaluations):
        seen.append(snapshot.counters.updates)
        trials = [
            own._replace(stream=replace(own.stream, length=seen[-1])) for own in fitting.trials
        ]
        assert same(tree_leaves(snapshot.state), last(replace(fitting, trials=trials)))
        assert snapshot.last == (seen[-1] == 1300)
    assert seen == places
