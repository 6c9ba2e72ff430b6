"""SWAG: the published formulas on recorded iterates, their expectation under known noise, and the engine."""

import numpy as np
import pytest
import torch

from bdl.methods.sgd_iterates import VARIANCE_FLOOR
from bdl.methods.swag import Swag
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.schedule import Schedule

from .targets import linear_gaussian
from .test_sgd_iterates import (
    Recursion,
    assert_mean,
    descent,
    deviations,
    hyper_of,
    iterates,
    large_mean_iterates,
    replay,
    toy_trials,
    trained,
)


def published(collected: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, Sdiag and Dhat from lists and raw moments, as equations 3.1 to 3.4 have them."""
    columns = [theta - collected[: t + 1].mean(0) for t, theta in enumerate(collected)][-rank:]
    mean = collected.mean(0)
    return mean, (collected**2).mean(0) - mean**2, np.column_stack(columns)


def covariance(variance: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Half of the diagonal and half of the low-rank part, divided by the number of columns less one."""
    return 0.5 * (np.diag(variance) + columns @ columns.T / max(columns.shape[1] - 1, 1))


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("collected", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("extra_steps", [0, 2])
def test_posterior_of_the_recorded_iterates(rank, collected, extra_steps):
    """Three steps an epoch, two epochs of warm-up; steps within an epoch change nothing."""
    target, method = linear_gaussian(), Swag(warmup_epochs=2, rank=rank)
    _, states = descent(method, target, hyper_of(target), 3 * (2 + collected) + extra_steps)
    mean, variance, columns = published(iterates(states)[8::3], rank)
    posterior = method.posterior(states[-1]).check()
    assert states[-1].collected == collected
    np.testing.assert_allclose(posterior.mean().numpy(), mean, rtol=1e-12)
    # raw moments of order 1 cancel down to their rounding
    expected = covariance(np.maximum(variance, VARIANCE_FLOOR), columns)
    np.testing.assert_allclose(posterior.covariance().numpy(), expected, rtol=1e-10, atol=1e-14)


def test_deviations_are_a_ring():
    """The t-th collected one fills column (t - 1) mod K and stays for the K epochs of three steps that follow."""
    target, method = linear_gaussian(), Swag(warmup_epochs=1, rank=3)
    _, states = descent(method, target, hyper_of(target), 3 * 9)
    path, ring = iterates(states)[5::3], np.zeros((3, 3))
    for step, state in enumerate(states[6:]):
        t = step // 3
        ring[:, t % 3] = path[t] - path[: t + 1].mean(0)
        np.testing.assert_allclose(state.deviations.numpy(), ring, rtol=1e-10, atol=1e-14)


def test_before_the_first_collection_it_is_a_narrow_gaussian_at_the_iterate():
    target, method = linear_gaussian(), Swag(warmup_epochs=2)
    _, states = descent(method, target, hyper_of(target), 8)
    for state in states:
        posterior = method.posterior(state).check()
        assert torch.equal(posterior.mean(), state.theta)
        assert torch.equal(posterior.variance(), torch.full((3,), 0.5 * VARIANCE_FLOOR, dtype=torch.float64))


def test_a_sample_is_the_published_one():
    """theta = mean + (s / 2)^1/2 o z1 + (2 (K - 1))^-1/2 Dhat z2, equation 3.5."""
    target, method = linear_gaussian(), Swag(warmup_epochs=0, rank=3)
    _, states = descent(method, target, hyper_of(target), 3 * 6)
    mean, variance, columns = published(iterates(states)[2::3], 3)
    rng = np.random.default_rng(0)
    z1, z2 = rng.normal(size=3), rng.normal(size=3)
    expected = mean + np.sqrt(variance / 2) * z1 + columns @ z2 / np.sqrt(2 * (3 - 1))
    # the ring holds the six deviations as columns 4, 5, 6: in the order of the list
    sample = method.posterior(states[-1]).sample(torch.tensor(np.concatenate([z2, z1])))
    np.testing.assert_allclose(sample.numpy(), expected, rtol=1e-10)


def test_samples_have_the_declared_covariance_across_layers():
    """Entry (i, j) of the covariance of S normal samples has variance (C_ii C_jj + C_ij^2) / (S - 1)."""
    data, trials = toy_trials([40])
    problem, method, size = Problem(Mlp((2,)), Gaussian(), 3), Swag(warmup_epochs=2, rank=4, initial_scale=0.5), 50_000
    fit = trained(method, problem, data, trials, Schedule(epochs=12, batch_size=8))
    posterior = method.posterior(type(fit.state)(*(leaf[0].double() for leaf in fit.state))).check()
    noise = torch.randn(size, posterior.noise_dim, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    samples, declared = posterior.sample(noise).numpy(), posterior.covariance().numpy()
    error = np.sqrt((np.outer(declared.diagonal(), declared.diagonal()) + declared**2) / (size - 1))
    assert (abs(np.cov(samples.T) - declared) < 4.5 * error).all()
    assert (abs(samples.mean(0) - posterior.mean().numpy()) < 4.5 * np.sqrt(declared.diagonal() / size)).all()
    between = declared[:8, 8:] / np.sqrt(np.outer(declared.diagonal()[:8], declared.diagonal()[8:]))
    assert abs(between).max() > 0.2


def test_expected_covariance_under_known_gradient_noise():
    """Each part is a quadratic form of the T iterates, whose expectation the Lyapunov equation gives."""
    recursion, T, rank = Recursion(rate=0.4), 20, 3
    running = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
    last = (np.eye(T) - running)[-rank:]
    low_rank = recursion.expected(last.T @ last / (rank - 1))
    diagonal = recursion.expected(deviations(T) / T).diagonal()
    samples = recursion.run(Swag(warmup_epochs=80, rank=rank), 1000, 80 + T)
    assert_mean(samples, 0.5 * (np.diag(diagonal) + low_rank), relative=0.05)


def test_float32_keeps_the_variance_of_iterates_far_from_zero():
    """The mean, 2000, is rounded to 1.2e-4, which is 3e-3 of a deviation. Raw moments lose everything."""
    method = Swag(warmup_epochs=20)
    state, path = large_mean_iterates(method)
    _, variance, _ = published(path[2::3], 2)
    np.testing.assert_allclose(2 * method.posterior(state).diag.numpy(), variance, rtol=3e-3)
    single = path[2::3].astype(np.float32)
    assert (abs((single**2).mean(0) - single.mean(0) ** 2 - variance) > variance).any()


def test_engine_collects_each_trial_at_the_end_of_its_own_epochs():
    """Five steps an epoch, or four; collection starts with the third epoch of each trial."""
    data, trials = toy_trials([40, 43, 33, 47])
    problem, schedule = Problem(Mlp((2,)), Gaussian(), 3), Schedule(epochs=9, batch_size=8)
    method = Swag(warmup_epochs=2, rank=3, initial_scale=0.5)
    fit = trained(method, problem, data, trials, schedule)
    assert fit.state.collected.tolist() == [7] * 4
    for i in range(4):
        path = replay(method, problem, data, trials, schedule, i)
        mean, variance, columns = published(path[2:, -1], 3)
        posterior = method.posterior(type(fit.state)(*(leaf[i] for leaf in fit.state))).check()
        # float32 that adds in another order
        np.testing.assert_allclose(posterior.mean().numpy(), mean, rtol=1e-4, atol=1e-5)
        expected = covariance(variance, columns)
        assert np.linalg.norm(posterior.covariance().numpy() - expected) < 1e-3 * np.linalg.norm(expected)
