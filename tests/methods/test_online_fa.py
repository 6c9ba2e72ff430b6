"""Online estimators of factor analysis: what all have in common, and each against its algorithm written out."""

import math
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from bdl.data.teachers import draw_factor_model, draw_observations
from bdl.methods import online_fa
from bdl.methods.batch_fa import exact_fa
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm
from bdl.methods.online_sga import OnlineSga
from bdl.posteriors import FactorAnalysis
from bdl.records.run_folder import RunFolder

ESTIMATORS = [
    OnlineSga(3, learning_rate=0.01, warmup=10),
    OnlineEm(3, warmup=10),
    OnlinePxEm(3, warmup=10, block=5),
]
each = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def begin(estimator, dim, *streams, dtype=torch.float64, seed=0):
    (shape,) = estimator.init_noise(dim).values()
    return estimator.init({"F": normal(*streams, *shape, seed=seed).to(dtype)})


def data(*shape, seed=1):
    return 2 + 3 * normal(*shape, seed=seed)


def one_of(state, index):
    return tree_map(lambda leaf: leaf[index] if leaf.ndim else leaf, state)


def same(left, right, rtol=1e-10):
    for one, other in zip(tree_leaves(left), tree_leaves(right), strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol)


@each
def test_starts_at_orthonormal_columns(estimator):
    posterior = estimator.posterior(begin(estimator, 6))
    assert torch.equal(posterior.loc, torch.zeros(6, dtype=torch.float64))
    assert torch.equal(posterior.diag, torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(
        posterior.factors.T @ posterior.factors, torch.eye(3, dtype=torch.float64)
    )


@each
def test_factors_do_not_learn_before_the_warm_up_has_ended(estimator):
    state = begin(estimator, 6)
    warm = estimator.update_block(state, data(10, 6))
    torch.testing.assert_close(warm.mean, data(10, 6).mean(0))
    torch.testing.assert_close(warm.loadings, state.loadings)
    torch.testing.assert_close(warm.diag, state.diag)
    after = estimator.update(warm, data(6, seed=2))
    assert float((after.loadings - warm.loadings).abs().max()) > 1e-4
    assert float((after.diag - warm.diag).abs().max()) > 1e-4


@each
def test_pieces_of_a_stream_are_the_stream(estimator):
    """Whole blocks of 5 for `OnlinePxEm`, single observations for others.

    The state that is given stays as it was.
    """
    x, state = data(60, 6), begin(estimator, 6)
    before = tree_map(torch.clone, state)
    whole = estimator.update_block(state, x)
    same(state, before, rtol=0)
    for piece in x.split([5, 10, 45] if isinstance(estimator, OnlinePxEm) else 1):
        state = estimator.update_block(state, piece)
    same(whole, state, rtol=0)
    assert int(state.n_observations) == 60
    torch.testing.assert_close(state.mean, x.mean(0), rtol=1e-13, atol=0)


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
    double = estimator.update_block(begin(estimator, 6), x.double())
    same(
        tree_map(lambda v: v.double() if v.ndim else v, state),
        double,
        rtol=1e-3 if dtype is torch.float32 else 0,
    )


@each
def test_slices_of_coordinates_change_nothing(estimator, monkeypatch):
    x, state = data(2, 30, 11), begin(estimator, 11, 2)
    whole = estimator.update_block(state, x)
    monkeypatch.setattr(online_fa, "_SLICE", 4)
    same(estimator.update_block(state, x), whole)


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
    """At D = 200,000 no tensor has more than the D K elements of F.

    D x D would be 3e5 times that.
    """
    dim = 200_000
    with LargestTensor() as largest:
        state = begin(estimator, dim, dtype=torch.float32)
        for row in data(12, dim).float():
            state = estimator.update(state, row)
        estimator.posterior(state).log_prob(row)
    assert largest.elements == 3 * max(dim, 12 * dim // 3)


@pytest.mark.parametrize(
    ("estimator", "first"), [(OnlineEm(2), 1000), (OnlinePxEm(2), 16000)], ids=["Em", "PxEm"]
)
def test_error_falls_as_the_root_of_the_sample_size(estimator, first):
    """Slope of log error against log T is -1/2, within 3 standard errors over 24 streams, once the start is forgotten.

    Factors as wide as the noise: with stronger ones published EM creeps.
    """
    streams, generator = 24, torch.Generator().manual_seed(5)
    factors = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    model = FactorAnalysis(
        torch.zeros(12, dtype=torch.float64), factors, torch.full((12,), 2.0, dtype=torch.float64)
    )
    truth = model.covariance()
    state, errors = begin(estimator, 12, streams), []
    for more in [first, first, 2 * first, 4 * first]:
        noise = torch.randn(
            streams, more, model.noise_dim, generator=generator, dtype=torch.float64
        )
        state = estimator.update_block(state, model.sample(noise))
        covariances = [
            estimator.posterior(one_of(state, index)).covariance() for index in range(streams)
        ]
        errors.append(torch.stack([(covariance - truth).norm() for covariance in covariances]))
    x = math.log(2) * torch.arange(-1.5, 2, dtype=torch.float64)  # log T about its mean
    slopes = x @ torch.stack(errors).log() / x.square().sum()
    standard_error = float(slopes.std()) / math.sqrt(streams)
    assert standard_error < 0.06
    assert abs(float(slopes.mean()) + 0.5) < 3 * standard_error


STREAMS, SEEN = 2, 2000
PUBLISHED = Path(__file__).parents[2] / "results/online-fa"


@pytest.mark.parametrize(
    ("entry", "estimator"), [("online-sga", OnlineSga()), ("online-em", OnlineEm())]
)
def test_published_distance(entry, estimator):
    """The first trials of Table B.1, D = 100, spectrum [1, 10], on their way.

    Trial i has algorithm seed i + 1.
    """
    models = [draw_factor_model(seed, 100, 10, (1, 10)) for seed in range(STREAMS)]
    noise = [
        torch.randn(100, 10, generator=torch.Generator().manual_seed(seed + 1))
        for seed in range(STREAMS)
    ]
    state = estimator.init({"F": torch.stack(noise)})
    blocks = [draw_observations([model], seed, 100_000, 2000) for seed, model in enumerate(models)]
    for parts in islice(zip(*blocks, strict=True), SEEN // 2000):
        state = estimator.update_block(state, torch.cat(parts))
    points = RunFolder(PUBLISHED).tabulate_curve_points()
    published = points.query(
        "dataset == 'fa_100_10' and entry == @entry and at == @SEEN and metric == 'rel_cov_dist'"
    )
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


def test_sga_is_plain_ascent_of_the_log_density_at_the_new_mean():
    """By autograd, in F and log psi."""
    estimator = OnlineSga(3, learning_rate=0.02, warmup=0)
    state, x = begin(estimator, 7), normal(5, 7, seed=5)
    for t, row in enumerate(x, start=1):
        before, state = state, estimator.update(state, row)
        factors, log_diag = (
            before.loadings.T.clone().requires_grad_(),
            before.diag.log().requires_grad_(),
        )
        density = FactorAnalysis(x[:t].mean(0), factors, log_diag.exp()).log_prob(row)
        to_factors, to_log_diag = torch.autograd.grad(density, (factors, log_diag))
        torch.testing.assert_close(state.loadings.T, before.loadings.T + 0.02 * to_factors)
        torch.testing.assert_close(state.diag, (before.diag.log() + 0.02 * to_log_diag).exp())


def test_em_statistics_are_sums_over_the_observations():
    """Algorithm 2 as corrected, with dense D x D inverses, sums kept apart, and psi as printed."""
    dim, rank, warmup = 7, 3, 4
    estimator, x = OnlineEm(rank, warmup), 1 + normal(30, dim)
    state = begin(estimator, dim, seed=1)
    factors, diag = state.loadings.T, state.diag
    cross, second, square = torch.zeros(dim, rank), torch.zeros(rank, rank), torch.zeros(dim)
    for t, row in enumerate(x, start=1):
        d = row - x[:t].mean(0)
        precision = torch.linalg.inv(factors @ factors.T + diag.diag())
        sigma = torch.eye(rank) - factors.T @ precision @ factors
        m = factors.T @ precision @ d
        cross, second, square = (
            cross + torch.outer(d, m),
            second + torch.outer(m, m),
            square + d.square(),
        )
        if t > warmup:
            a, h = cross / t, sigma + second / t
            factors = a @ torch.linalg.inv(h)
            diag = square / t + ((factors @ h) * factors - 2 * factors * a).sum(1)
        state = estimator.update(state, row)
        same(state[2:5], (cross.T / t, second / t, square / t), rtol=1e-9)
        torch.testing.assert_close(state.loadings.T, factors, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(state.diag, diag, rtol=1e-8, atol=1e-9)


def test_px_em_is_the_algorithm_of_its_docstring():
    """Dense inverses.

    Average as an explicit weighted sum with weights proportional to the observations learnt.
    """
    dim, rank, size = 6, 2, 10
    estimator, x = (
        OnlinePxEm(rank, warmup=20, block=size),
        3 * normal(100, dim) * torch.arange(1, dim + 1),
    )
    start = begin(estimator, dim, seed=1)
    unit = x[:20].std(0, correction=0)
    factors, diag = start.loadings.T, torch.ones(dim)
    eye = torch.eye(rank, dtype=torch.float64)
    square, iterates, weights = diag + factors.square().sum(1), [], []
    for end in range(30, 101, size):
        d = (x[end - size : end] - x[:end].mean(0)) / unit
        precision = torch.linalg.inv(factors @ factors.T + diag.diag())
        sigma, m = eye - factors.T @ precision @ factors, d @ precision @ factors
        gain = min(1, size / (20 + end / 5))
        cross = (1 - gain) * factors + gain * d.T @ m / size
        second = (1 - gain) * eye + gain * (m.T @ m / size + sigma)
        square = (1 - gain) * square + gain * d.square().mean(0)
        plain = cross @ torch.linalg.inv(second)  # the M step without expansion
        diag = square - 2 * (plain * cross).sum(1) + ((plain @ second) * plain).sum(1)
        factors = plain @ torch.linalg.cholesky(second)
        iterates.append(torch.cat([factors, diag.unsqueeze(1)], 1))
        weights.append(end - 20)
    mean = sum(w / sum(weights) * iterate for w, iterate in zip(weights, iterates, strict=True))
    posterior = estimator.posterior(estimator.update_block(start, x))
    torch.testing.assert_close(posterior.loc, x.mean(0))
    torch.testing.assert_close(
        posterior.factors, unit[:, None] * mean[:, :rank], rtol=1e-9, atol=1e-10
    )
    torch.testing.assert_close(
        posterior.diag, unit.square() * mean[:, rank], rtol=1e-9, atol=1e-10
    )


def test_px_em_does_not_depend_on_the_units():
    """Powers of two as units change no digit."""
    estimator, x = OnlinePxEm(2, block=10), normal(400, 6, seed=4)
    unit, start = 2.0 ** torch.arange(-3, 3, dtype=torch.float64), begin(estimator, 6, seed=5)
    one, other = (
        estimator.posterior(estimator.update_block(start, rows)) for rows in (x, x * unit)
    )
    assert torch.equal(other.loc, one.loc * unit)
    assert torch.equal(other.factors, one.factors * unit[:, None])
    assert torch.equal(other.diag, one.diag * unit.square())


def test_a_constant_coordinate_does_no_harm_to_px_em():
    estimator, x = OnlinePxEm(2), normal(5000, 6, seed=6)
    x[:, 2] = 7
    posterior = estimator.posterior(estimator.update_block(begin(estimator, 6), x))
    assert all(bool(part.isfinite().all()) for part in posterior)
    assert float(posterior.loc[2]) == 7
    assert 0 < float(posterior.diag[2]) < 0.01  # what the average still has of psi = 1


def test_the_batch_fit_is_a_fixed_point_of_px_em():
    """A step from the maximum-likelihood fit, by the observations that it was fitted to, stays there."""
    noise = normal(300, 10, seed=10)
    x = noise[:, :2] @ normal(8, 2, seed=9).T + noise[:, 2:] * torch.linspace(0.5, 1.5, 8)
    best = FactorAnalysis(x.mean(0), *exact_fa(torch.cov(x.T, correction=0), 2))
    estimator = OnlinePxEm(2, block=300)
    rows, square = best.factors.T.contiguous(), x.var(0, correction=0)
    fields = {
        "n_observations": torch.tensor(300),
        "mean": best.loc,
        "square": square,
        "diag": best.diag,
    }
    state = begin(estimator, 8)._replace(**fields, loadings=rows)
    after = estimator.update_block(state, x)
    torch.testing.assert_close(after.mean, best.loc)
    torch.testing.assert_close(after.loadings, rows, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(after.diag, best.diag, rtol=1e-6, atol=0)
    moved = estimator.update_block(state._replace(loadings=1.1 * rows), x)
    assert float((moved.loadings - 1.1 * rows).abs().max()) > 0.01


def test_px_em_is_within_half_again_of_the_batch_fit():
    """Weak factors (rows scaled), D = 40, K = 4, 30,000 observations, 6 streams.

    Both spectra of very unequal range.
    """
    estimator = OnlinePxEm(4)
    for spectrum in ((1, 10), (1, 1000)):
        errors = []
        for seed in range(6):
            model = draw_factor_model(seed, 40, 4, spectrum)
            x, truth = (
                next(draw_observations([model], seed, 30_000, 30_000))[0],
                model.covariance().double(),
            )
            start = begin(estimator, 40, dtype=torch.float32, seed=100 + seed)
            online = estimator.posterior(estimator.update_block(start, x)).covariance()
            factors, diag = exact_fa(torch.cov(x.double().T, correction=0), 4)
            found = torch.stack([online.double(), factors @ factors.T + diag.diag()])
            errors.append((found - truth).norm(dim=(-2, -1)) / truth.norm())
        online, batch = sum(errors)
        assert online < 1.5 * batch
