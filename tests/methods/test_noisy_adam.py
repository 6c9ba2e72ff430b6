"""Noisy Adam: bad input, two updates by hand, and the covariance of what it draws."""

import numpy as np
import torch

from bdl.methods.noisy_adam import NoisyAdam

from .targets import linear_gaussian, normals, repeat

ALPHA = np.array([1.5, 1.5, 0.2])
"""Prior precisions of the target with a bias of its own."""


def test_the_divergence_needs_a_weight():
    assert NoisyAdam().hyper_above == {"kl_weight": 0.0}


def given(hyper, **own):
    return hyper | {name: torch.tensor(value, dtype=torch.float64) for name, value in own.items()}


def test_two_updates_by_hand():
    """The mean log-likelihood of a linear regression has the gradient beta u^2 X^T (y - X theta) / N."""
    problem, data, hyper, _ = linear_gaussian(bias_precision=0.2)
    X, y, n = np.c_[data.x.numpy(), np.ones(12)], data.y.numpy(), 12
    method = NoisyAdam(betas=(0.8, 0.95), damping=0.01, initial_scale=0.5)
    generator = torch.Generator().manual_seed(0)
    state = method.init(problem, normals(method.init_noise(problem), generator))
    assert method.posterior(state).variance().tolist() == [1.0] * 3  # the prior's is not known yet
    mu, m, f = state.mu.numpy(), np.zeros(3), np.zeros(3)
    lam, rate = 0.7, 0.05
    gin = lam * ALPHA / n
    for k in (1, 2):
        noise = normals(method.step_noise(problem), generator)
        state = method.step(state, repeat(data, 1), given(hyper, learning_rate=rate, kl_weight=lam), noise, problem)
        w = mu + np.sqrt(lam / n / (f + gin)) * noise["theta"].numpy()
        g = 0.4 * 1.3**2 * X.T @ (y - X @ w) / n
        m = 0.8 * m + 0.2 * (g - gin * w)
        f = 0.95 * f + 0.05 * g**2
        mu = mu + rate * m / (1 - 0.8**k) / (np.sqrt(f) + gin + 0.01)
        q = method.posterior(state)
        np.testing.assert_allclose(q.mean(), mu, rtol=1e-12)
        np.testing.assert_allclose(q.variance(), lam / n / (f + gin), rtol=1e-12)


def test_the_first_draw_is_as_wide_as_the_prior():
    """Whatever the weight of the divergence; v then tells theta, which it depends on linearly."""
    problem, data, hyper, _ = linear_gaussian(bias_precision=0.2)
    theta = drawn(NoisyAdam(betas=(0.0, 0.9), initial_scale=0.0), problem, data, given(hyper, kl_weight=0.3), None)
    assert_covariance(theta, np.diag(1 / ALPHA))


def test_draws_have_the_declared_covariance():
    """Those of the next update, from statistics that three updates have left."""
    problem, data, hyper, _ = linear_gaussian(bias_precision=0.2)
    method, settings = NoisyAdam(betas=(0.0, 0.9)), given(hyper, learning_rate=0.05, kl_weight=0.6)
    generator = torch.Generator().manual_seed(1)
    state = method.init(problem, normals(method.init_noise(problem), generator))
    for _ in range(3):
        noise = normals(method.step_noise(problem), generator)
        state = method.step(state, repeat(data, 1), settings, noise, problem)
    q = method.posterior(state)
    theta = drawn(method, problem, data, settings, state)
    assert_covariance(theta - q.mean().numpy(), q.covariance().numpy())


def drawn(method, problem, data, hyper, state, count=50_000):
    """What `step` drew, from m: without momentum it is v = X^T y b / N - (b X^T X / N + gin) theta."""
    if state is None:
        state = method.init(problem, {"theta": torch.zeros(3).double()})
    hyper = {"learning_rate": torch.tensor(0.0).double()} | hyper
    noise = normals({"theta": (count, 3)}, torch.Generator().manual_seed(2))
    after = torch.func.vmap(lambda z: method.step(state, repeat(data, 1), hyper, {"theta": z}, problem))(noise["theta"])
    X, b = np.c_[data.x.numpy(), np.ones(12)], 0.4 * 1.3**2
    gin = hyper["kl_weight"].item() * ALPHA / 12
    return (b * X.T @ data.y.numpy() / 12 - after.m.numpy()) @ np.linalg.inv(b * X.T @ X / 12 + np.diag(gin))


def assert_covariance(centred, covariance):
    """Each entry within 4.5 standard errors."""
    n, variance = len(centred), covariance.diagonal()
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.abs((centred.T @ centred / n - covariance) / error).max() < 4.5
    assert np.abs(centred.mean(0) / np.sqrt(variance / n)).max() < 4.5
