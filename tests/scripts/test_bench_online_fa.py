"""What online factor analysis costs: the numbers are what the documentation says, and so is the file."""

import math

import pytest
import torch
from peers import fa_batch, fa_large, fa_streams
from peers.comparison import Cost
from peers.machine import alone

from bdl.data.streams import Stream
from bdl.methods.batch_fa import BatchFa
from bdl.methods.online_fa import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm

STREAM = Stream(20, 10, length=2500)


def counters(monkeypatch, module, *times):
    """Let a module see these times."""
    left = iter(times)
    monkeypatch.setattr(module, "perf_counter", lambda: next(left))


def test_cost_is_scaled_to_all_streams():
    """Two microseconds for each of 100,000 observations of 30 streams are 6 s; 80 us are 240 s."""
    six = fa_streams.scaled(Cost(2.0, 1.0, 3.0, None), 100, "online-em", 10, 30)
    assert (six.us, six.us_min, six.ratio, six.limit_s, six.holds) == (2.0, 1.0, 3.0, 60.0, True)
    assert six.seconds == pytest.approx(6)
    assert fa_streams.scaled(Cost(21.0, 1.0, 1.0, None), 100, "online-em", 30, 30).holds is False
    assert fa_streams.scaled(Cost(79.0, 1.0, 1.0, None), 1000, "online-em", 30, 30).holds is True
    drawing = fa_streams.scaled(Cost(2.0, 1.0, 1.0, 0.5), 100, "drawing", 30, 30)
    assert (drawing.limit_s, drawing.holds) == (None, None)
    assert drawing.seconds == pytest.approx(6.5)


def test_set_up_of_drawing_is_what_the_first_turn_takes_longer(monkeypatch):
    """Turns of 1000 observations of 30 streams take 5, 2 and 2 s: 100 turns of 2 s and 3 s at first."""
    monkeypatch.setattr(fa_streams, "ESTIMATORS", {})
    counters(monkeypatch, fa_streams, 0, 5, 5, 7, 7, 9)
    (drawing,) = fa_streams.measure((20,), 1)
    assert (drawing.dim, drawing.method, drawing.together) == (20, "drawing", 30)
    assert drawing.setup_s == pytest.approx(3)
    assert drawing.us == pytest.approx(2e6 / 30_000)
    assert drawing.seconds == pytest.approx(203)


def test_a_turn_is_a_thousand_observations_of_each_stream(monkeypatch):
    drawn = fa_streams._Drawn(20)
    drawn.seconds()
    streams = [Stream(20, spread) for spread in (10, 100, 1000)]
    expected = torch.stack([next(stream.blocks(index, 1000)) for index in range(10) for stream in streams])
    torch.testing.assert_close(drawn.latest, expected, rtol=0, atol=0)
    learner = fa_streams._Learner(OnlinePxEm(), drawn, 10)
    counters(monkeypatch, fa_streams, 1, 4)
    assert learner.seconds() == pytest.approx(3 / (1000 * 10))
    assert int(learner.state.seen) == 1000
    torch.testing.assert_close(learner.state.mean, expected[:10].mean(1), rtol=1e-4, atol=1e-4)


def test_what_diverges_is_not_timed():
    state = fa_streams.start(OnlineEm(), 5 + 10)
    fa_streams.check_finite(state)
    with pytest.raises(ArithmeticError, match="EmState is not finite"):
        fa_streams.check_finite(state._replace(diag=torch.full((15,), math.nan)))


def test_estimate_is_that_of_a_stream_with_the_seed_of_a_run():
    """Blocks of the estimator end where the pieces that are handed over do, but for the last."""
    estimate, seconds = fa_batch.streamed(OnlinePxEm(), STREAM)
    stream = fa_large.OneStream(OnlinePxEm(), 20)
    stream.observe(fa_batch.sampled(STREAM))
    torch.testing.assert_close(estimate, OnlinePxEm().posterior(stream.state), rtol=0, atol=0)
    assert seconds > 0


def test_whole_sample_and_its_moments_give_the_same():
    """The oracle is the fit from moments, which has its own way to scikit-learn."""
    sample = fa_batch.sampled(STREAM)
    assert sample.shape == (2500, 20)
    estimate, _ = fa_batch.whole(STREAM)
    moments, _ = fa_batch.streamed(BatchFa(solver="sklearn"), STREAM)
    torch.testing.assert_close(estimate.loc.double(), sample.double().mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(estimate.covariance().double(), moments.covariance(), rtol=1e-3, atol=1e-3)


def test_distance_is_to_the_model_of_the_stream():
    point = fa_batch.point("batch-exact", STREAM)
    estimate, _ = fa_batch.streamed(BatchFa(solver="exact"), STREAM)
    truth = STREAM.model(0).covariance().double()
    assert point.rel_cov_dist == pytest.approx(float((estimate.covariance() - truth).norm() / truth.norm()), rel=1e-9)
    assert (point.dim, point.rows, point.method) == (20, 2500, "batch-exact")
    assert point.peak_gb >= point.idle_gb > 0.1


def test_seconds_of_a_large_stream_are_per_observation_after_two_updates(monkeypatch):
    """Updates take 9, 9, 1, 2 and 6 s, for blocks of 4."""
    stream = fa_large.OneStream(OnlinePxEm(), 50)
    counters(monkeypatch, fa_large, 0, 9, 9, 18, 18, 19, 19, 21, 21, 27)
    assert fa_large.seconds_per_observation(stream, 4, 3) == pytest.approx(2 / 4)
    assert int(stream.state.seen) == 5 * 4


def test_memory_is_counted_in_arrays(monkeypatch):
    """At D = 1,000,000 an array of 10 x D numbers has 0.04 GB; peaks are those before, after two and four calls."""
    peaks = iter([1.0, 1.1, 1.2, 1.4])
    times = iter([9.0, 0.5, 2.0])
    monkeypatch.setattr(fa_large, "peak_memory", lambda: next(peaks))
    monkeypatch.setattr(fa_large, "keep_freed_memory", lambda: True)
    monkeypatch.setattr(fa_large, "seconds_per_observation", lambda stream, block, updates: next(times))
    monkeypatch.setattr(fa_large.Sizes, "dim", 1_000_000)
    point = fa_large.point("online-sga", 1, 1_000_000, 1)
    assert (point.idle_gb, point.start_gb, point.peak_gb, point.kept_peak_gb) == (1.0, 1.1, 1.2, 1.4)
    assert (point.arrays, point.kept_arrays) == pytest.approx((5, 10))
    assert (point.seconds, point.holds, point.kept_seconds, point.kept_holds) == (0.5, True, 2.0, False)


def test_an_update_needs_few_arrays():
    """O(D K): the old F and statistics, the new ones, and little else; the start's QR decomposition needs no more."""
    point = alone(1, fa_large.point, "online-em", 1, 500_000, 1)
    assert 4 < point.arrays < 7
    assert (point.latent_dim, point.limit_s, point.holds) == (10, None, None)
