"""IVON: its fixed point, the algorithm written out, and curvatures of either sign."""

import numpy as np
import pytest
import torch

from bdl.methods.ivon import Ivon
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Mlp
from bdl.models.problem import Problem

from .targets import linear_gaussian, normals, repeated, sigma_points


@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_it_stands_still_at_the_ridge_mean_and_the_diagonal_of_the_precision(bias_precision):
    """Noise that has mean 0 and covariance I exactly makes gradients and curvatures those that are expected."""
    target = linear_gaussian(bias_precision=bias_precision)
    noise = {"theta": sigma_points(0, 3)["z"]}
    method, hyper = (
        Ivon(betas=(0.9, 0.9), samples=6),
        target.hyper | {"learning_rate": torch.tensor(0.5, dtype=torch.float64)},
    )
    state, step = method.init(target.problem, {"theta": torch.ones(3).double()}), repeated(method, target.problem)
    for _ in range(1000):
        state = step(state, target.data, hyper, noise)
    q = method.posterior(state)
    torch.testing.assert_close(q.mean(), target.posterior.mean(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(q.variance(), 1 / target.posterior.precision_diagonal(), rtol=1e-10, atol=0)


def test_updates_are_those_of_the_algorithm():
    """Three updates of a network by autograd and numpy, line by line as printed, with two samples."""
    problem, target = Problem(Mlp((2,), "tanh"), Gaussian(), 2), linear_gaussian()
    generator, n = torch.Generator().manual_seed(3), 12
    b1, b2, rate, delta = 0.9, 0.95, 0.1, 1.5 / n
    method = Ivon(betas=(b1, b2), samples=2, initial_curvature=0.4)
    hyper = target.hyper | {"learning_rate": torch.tensor(rate, dtype=torch.float64)}
    state = method.init(problem, normals(method.init_noise(problem), generator))
    m, h, g = state.mu.numpy(), np.full(problem.dim, 0.4), np.zeros(problem.dim)
    for t in (1, 2, 3):
        noise = normals(method.step_noise(problem), generator)
        state = method.step(state, target.data, hyper, noise, problem)
        sigma, slopes, curvatures = 1 / np.sqrt(n * (h + delta)), [], []
        for z in noise["theta"].numpy():
            theta = torch.from_numpy(m + sigma * z).requires_grad_()
            loss = -problem.log_likelihoods(theta, target.data, hyper).mean()
            slopes.append(torch.autograd.grad(loss, theta)[0].numpy())
            curvatures.append(slopes[-1] * (theta.detach().numpy() - m) / sigma**2)
        g, estimate = b1 * g + (1 - b1) * np.mean(slopes, 0), np.mean(curvatures, 0)
        h = b2 * h + (1 - b2) * estimate + 0.5 * (1 - b2) ** 2 * (h - estimate) ** 2 / (h + delta)
        m = m - rate * (g / (1 - b1**t) + delta * m) / (h + delta)
    np.testing.assert_allclose(state.mu.numpy(), m, rtol=1e-10)
    np.testing.assert_allclose(state.var.numpy(), 1 / (n * (h + delta)), rtol=1e-10)


def test_variances_stay_positive_where_curvatures_are_far_below_zero():
    target, method = linear_gaussian(), Ivon(betas=(0.9, 0.0))
    state = method.init(target.problem, {"theta": torch.full((3,), 50.0).double()})
    hyper = target.hyper | {"learning_rate": torch.zeros((), dtype=torch.float64)}
    signs = torch.ones(1, 3).double()
    for sign in (1, -1, 1, -1):  # far from the mean, the sign of the noise is that of the estimate
        state = method.step(state, target.data, hyper, {"theta": sign * signs}, target.problem)
        assert bool((state.var > 0).all())
    assert bool((state.s < 1e6).all())
