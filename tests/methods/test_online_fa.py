"""What all online estimators of factor analysis have in common."""

import math
from itertools import islice
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from bdl.data.teachers import factor_model, observations
from bdl.errors import InputError
from bdl.methods import online_fa
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm
from bdl.methods.online_sga import OnlineSga
from bdl.posteriors import FactorAnalysis

ESTIMATORS = [OnlineSga(3, learning_rate=0.01, warmup=10), OnlineEm(3, warmup=10), OnlinePxEm(3, warmup=10, block=5)]
each = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)


def begin(estimator, dim, *streams, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    (shape,) = estimator.init_noise(dim).values()
    return estimator.init({"F": torch.randn(*streams, *shape, generator=generator, dtype=dtype)})


def data(*shape, seed=1, dtype=torch.float64):
    return 2 + 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def one_of(state, index):
    return tree_map(lambda leaf: leaf[index] if leaf.ndim else leaf, state)


def same(left, right, rtol=1e-10):
    for one, other in zip(tree_leaves(left), tree_leaves(right), strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol)


@each
def test_starts_at_orthonormal_columns(estimator):
    posterior = estimator.posterior(begin(estimator, 6))
    assert estimator.init_noise(6) == {"F": (6, 3)}
    assert torch.equal(posterior.loc, torch.zeros(6, dtype=torch.float64))
    assert torch.equal(posterior.diag, torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(posterior.factors.T @ posterior.factors, torch.eye(3, dtype=torch.float64))


@each
def test_factors_do_not_learn_before_the_warm_up_has_ended(estimator):
    state = begin(estimator, 6)
    warm = estimator.update_block(state, data(10, 6))
    torch.testing.assert_close(warm.mean, data(10, 6).mean(0))
    torch.testing.assert_close(warm.loadings, state.loadings)
    torch.testing.assert_close(warm.diag, state.diag)
    assert int(warm.seen) == 10
    after = estimator.update(warm, data(6, seed=2))
    assert float((after.loadings - warm.loadings).abs().max()) > 1e-4
    assert float((after.diag - warm.diag).abs().max()) > 1e-4


@each
def test_mean_is_the_sample_mean(estimator):
    x = data(57, 6)
    torch.testing.assert_close(estimator.update_block(begin(estimator, 6), x).mean, x.mean(0), rtol=1e-13, atol=0)


@pytest.mark.parametrize("estimator", ESTIMATORS[:2], ids=["OnlineSga", "OnlineEm"])
def test_block_is_one_observation_at_a_time(estimator):
    x, state = data(40, 6), begin(estimator, 6)
    block = estimator.update_block(state, x)
    for row in x:
        state = estimator.update(state, row)
    same(block, state, rtol=0)


@each
def test_pieces_of_a_stream_are_the_stream(estimator):
    """Whole blocks of 5; posteriors too, as the units of `OnlinePxEm` enter only there."""
    x, state = data(60, 6), begin(estimator, 6)
    whole = estimator.update_block(state, x)
    for piece in x.split([5, 10, 45]):
        state = estimator.update_block(state, piece)
    same(whole, state, rtol=0)
    assert int(state.seen) == 60


@each
def test_streams_mapped_batched_and_looped_agree(estimator):
    x, states = data(4, 30, 6), begin(estimator, 6, 4)
    batched = estimator.update_block(states, x)
    dims = tree_map(lambda leaf: 0 if leaf.ndim else None, states)
    mapped = torch.func.vmap(estimator.update_block, in_dims=(dims, 0))(states, x)
    for index in range(4):
        alone = estimator.update_block(one_of(states, index), x[index])
        same(one_of(batched, index), alone)
        same(tree_map(lambda leaf, i=index: leaf[i], mapped), alone)


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_keeps_the_precision(estimator, dtype):
    x = data(40, 6).to(dtype)
    state = estimator.update_block(begin(estimator, 6, dtype=dtype), x)
    assert {leaf.dtype for leaf in tree_leaves(state) if leaf.ndim} == {dtype}
    double = estimator.update_block(
        tree_map(lambda v: v.double() if v.ndim else v, begin(estimator, 6, dtype=dtype)), x.double()
    )
    same(tree_map(lambda v: v.double() if v.ndim else v, state), double, rtol=1e-3 if dtype is torch.float32 else 0)


@each
def test_slices_of_coordinates_change_nothing(estimator, monkeypatch):
    x, state = data(2, 30, 11), begin(estimator, 11, 2)
    whole = estimator.update_block(state, x)
    monkeypatch.setattr(online_fa, "_SLICE", 4)
    same(estimator.update_block(state, x), whole)


@each
def test_does_not_change_what_it_is_given(estimator):
    state = begin(estimator, 6)
    before = tree_map(torch.clone, state)
    estimator.update_block(state, data(20, 6))
    same(state, before, rtol=0)


@each
def test_a_diverged_stream_stays_alone(estimator):
    x, states = data(2, 40, 6), begin(estimator, 6, 2)
    x[1, 20] = math.nan
    mixed = estimator.update_block(states, x)
    same(one_of(mixed, 0), estimator.update_block(one_of(states, 0), x[0]))
    assert bool(mixed.mean[1].isnan().all())


class LargestTensor(TorchDispatchMode):
    """Records the most elements that any operation's result has."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


@each
def test_memory_is_that_of_the_factors(estimator):
    """At D = 200,000 no tensor has more than the D K elements of F; D x D would be 3e5 times that."""
    dim = 200_000
    with LargestTensor() as largest:
        state = begin(estimator, dim, dtype=torch.float32)
        for row in data(12, dim, dtype=torch.float32):
            state = estimator.update(state, row)
        estimator.posterior(state).log_prob(row)
    assert largest.elements == 3 * max(dim, 12 * dim // 3)


@pytest.mark.parametrize(("estimator", "first"), [(OnlineEm(2), 1000), (OnlinePxEm(2), 16000)], ids=["Em", "PxEm"])
def test_error_falls_as_the_root_of_the_sample_size(estimator, first):
    """Slope of log error against log T is -1/2, within 3 standard errors over 24 streams, once the start is forgotten.

    Factors as wide as the noise: with stronger ones published EM creeps.
    """
    streams, sizes = 24, [first, 2 * first, 4 * first, 8 * first]
    generator = torch.Generator().manual_seed(5)
    factors = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    model = FactorAnalysis(torch.zeros(12, dtype=torch.float64), factors, torch.full((12,), 2.0, dtype=torch.float64))
    truth = model.covariance()
    state, errors = begin(estimator, 12, streams), []
    for more in [first, first, 2 * first, 4 * first]:
        noise = torch.randn(streams, more, model.noise_dim, generator=generator, dtype=torch.float64)
        state = estimator.update_block(state, model.sample(noise))
        covariances = [estimator.posterior(one_of(state, index)).covariance() for index in range(streams)]
        errors.append(torch.stack([(covariance - truth).norm() for covariance in covariances]))
    x = torch.tensor(sizes, dtype=torch.float64).log()
    x = x - x.mean()
    slopes = x @ torch.stack(errors).log() / x.square().sum()
    standard_error = float(slopes.std()) / math.sqrt(streams)
    assert standard_error < 0.06
    assert abs(float(slopes.mean()) + 0.5) < 3 * standard_error


STREAMS, SEEN = 2, 10_000
POINTS = Path(__file__).parents[2] / "results/online-fa/points.parquet"


@pytest.mark.parametrize(("entry", "estimator"), [("online-sga", OnlineSga()), ("online-em", OnlineEm())])
def test_published_distance(entry, estimator):
    """The first trials of Table B.1, D = 100, spectrum [1, 10], on their way; trial i has algorithm seed i + 1."""
    models = [factor_model(seed, 100, 10, (1, 10)) for seed in range(STREAMS)]
    noise = [torch.randn(100, 10, generator=torch.Generator().manual_seed(seed + 1)) for seed in range(STREAMS)]
    state = estimator.init({"F": torch.stack(noise)})
    blocks = [observations([model], seed, 100_000, 2000) for seed, model in enumerate(models)]
    for parts in islice(zip(*blocks, strict=True), SEEN // 2000):
        state = estimator.update_block(state, torch.cat(parts))
    where = {"dataset": "fa_100_10", "entry": entry, "at": SEEN, "metric": "rel_cov_dist"}
    published = pd.read_parquet(POINTS, filters=[(name, "==", value) for name, value in where.items()])
    for index, model in enumerate(models):
        truth = model.covariance().double()
        difference = estimator.posterior(one_of(state, index)).covariance().double() - truth
        expected = float(published.set_index("split").value[index])
        # In float32 rounding depends on how many streams are learnt from together.
        assert float(difference.norm() / truth.norm()) == pytest.approx(expected, rel=1e-4)


def test_inverse_of_a_singular_matrix_spoils_only_its_own():
    good = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    batch = torch.stack([good, torch.zeros(2, 2), torch.full((2, 2), torch.nan)])
    for found in (online_fa.inverse(batch), torch.func.vmap(online_fa.inverse)(batch)):
        torch.testing.assert_close(found[0], torch.linalg.inv(good))
        assert not found[1:].isfinite().all(dim=(-2, -1)).any()


@pytest.mark.parametrize("latent_dim", [-1, 0, 6, 7])
def test_impossible_number_of_factors(latent_dim):
    with pytest.raises(InputError, match=f"latent_dim {latent_dim} does not suit 6 dimensions: give one of 1 to 5$"):
        OnlineEm(latent_dim).check_dim(6)
    OnlineEm(5).check_dim(6)
