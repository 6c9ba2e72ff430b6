"""Averaged online PX-EM: the algorithm step by step, its invariance, and that it is as good as the batch fit."""

import torch

from bdl.data.teachers import factor_model, observations
from bdl.methods.batch_fa import exact_fa
from bdl.methods.online_px_em import OnlinePxEm
from bdl.posteriors import FactorAnalysis


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def exact(x, rank):
    """Batch fit."""
    return FactorAnalysis(x.mean(0), *exact_fa(torch.cov(x.T, correction=0), rank))


def relative(posterior, truth):
    truth = truth.covariance().double()
    return float((posterior.covariance().double() - truth).norm() / truth.norm())


def test_is_the_algorithm_of_its_docstring():
    """Dense inverses; average as an explicit weighted sum with weights proportional to the observations learnt."""
    dim, rank, size = 6, 2, 10
    estimator, x = OnlinePxEm(rank, warmup=20, block=size), 3 * normal(100, dim, seed=0) * torch.arange(1, dim + 1)
    unit = x[:20].std(0, correction=0)
    factors, diag = torch.linalg.qr(normal(dim, rank, seed=1)).Q, torch.ones(dim)
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
        iterates.append((factors, diag))
        weights.append(end - 20)
    weights = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    mean_factors = sum(w * factors for w, (factors, _) in zip(weights, iterates, strict=True))
    mean_diag = sum(w * diag for w, (_, diag) in zip(weights, iterates, strict=True))

    posterior = estimator.posterior(estimator.update_block(estimator.init({"F": normal(dim, rank, seed=1)}), x))
    torch.testing.assert_close(posterior.loc, x.mean(0))
    torch.testing.assert_close(posterior.factors, unit[:, None] * mean_factors, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(posterior.diag, unit.square() * mean_diag, rtol=1e-9, atol=1e-10)


def test_warm_up_variance_does_not_depend_on_the_blocks():
    x, states = normal(20, 6, seed=2) * torch.arange(1, 7), []
    for block in (1, 5, 20):
        estimator = OnlinePxEm(2, warmup=20, block=block)
        states.append(estimator.update_block(estimator.init({"F": normal(6, 2, seed=3)}), x))
        torch.testing.assert_close(states[-1].variance, x.var(0, correction=0))
    after = estimator.update(states[0], 100 * x[0])
    assert torch.equal(after.variance, states[0].variance)


def test_does_not_depend_on_the_units():
    """Powers of two as units change no digit."""
    estimator, x = OnlinePxEm(2, block=10), normal(400, 6, seed=4)
    unit = 2.0 ** torch.arange(-3, 3, dtype=torch.float64)
    start = estimator.init({"F": normal(6, 2, seed=5)})
    one = estimator.posterior(estimator.update_block(start, x))
    other = estimator.posterior(estimator.update_block(start, x * unit))
    assert torch.equal(other.loc, one.loc * unit)
    assert torch.equal(other.factors, one.factors * unit[:, None])
    assert torch.equal(other.diag, one.diag * unit.square())


def test_a_constant_coordinate_does_no_harm():
    estimator, x = OnlinePxEm(2), normal(5000, 6, seed=6)
    x[:, 2] = 7
    posterior = estimator.posterior(estimator.update_block(estimator.init({"F": normal(6, 2, seed=7)}), x))
    assert all(bool(part.isfinite().all()) for part in posterior)
    assert float(posterior.loc[2]) == 7
    assert 0 < float(posterior.diag[2]) < 0.01  # what the average still has of psi = 1


def test_the_batch_fit_is_a_fixed_point():
    """A step from the maximum-likelihood fit, by the observations that it was fitted to, stays there."""
    factors, noise = normal(8, 2, seed=9), normal(300, 10, seed=10)
    x = noise[:, :2] @ factors.T + noise[:, 2:] * torch.linspace(0.5, 1.5, 8)
    best = exact(x, 2)
    estimator = OnlinePxEm(2, block=300)
    state = estimator.init({"F": normal(8, 2, seed=8)})
    rows, square = best.factors.T.contiguous(), x.var(0, correction=0)
    state = state._replace(seen=torch.tensor(300), mean=best.loc, square=square, loadings=rows, diag=best.diag)
    after = estimator.update_block(state, x)
    torch.testing.assert_close(after.mean, best.loc)
    torch.testing.assert_close(after.loadings, rows, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(after.diag, best.diag, rtol=1e-6, atol=0)
    moved = estimator.update_block(state._replace(loadings=1.1 * rows), x)
    assert float((moved.loadings - 1.1 * rows).abs().max()) > 0.01


def test_is_within_half_again_of_the_batch_fit():
    """Weak factors (rows scaled), D = 40, K = 4, 30,000 observations, 6 streams; both spectra of very unequal range."""
    seeds, estimator = range(6), OnlinePxEm(4)
    for spectrum in ((1, 10), (1, 1000)):
        models = [factor_model(seed, 40, 4, spectrum) for seed in seeds]
        x = [next(observations([model], seed, 30_000, 30_000))[0] for seed, model in zip(seeds, models, strict=True)]
        batch = sum(relative(exact(part.double(), 4), model) for part, model in zip(x, models, strict=True))
        online = 0.0
        for seed, part, model in zip(seeds, x, models, strict=True):
            start = estimator.init({"F": normal(40, 4, seed=100 + seed).float()})
            online += relative(estimator.posterior(estimator.update_block(start, part)), model)
        assert online < 1.5 * batch
