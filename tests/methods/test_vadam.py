"""The Vadam family, noisy Adam, IVON and Vadam with learnt scales: updates by hand, and where they stand still."""

import numpy as np
import pytest
import torch

from bdl.methods import METHODS
from bdl.methods.counters import StepCounters
from bdl.methods.hierarchical_vadam import HierarchicalVadam
from bdl.methods.ivon import Ivon
from bdl.methods.noisy_adam import NoisyAdam
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.training.traced import TracedFunction

from .targets import BETA, batch_of, doubles, linear_gaussian, settled, sigma_points, steps

ALPHA = np.array([1.5, 1.5, 0.2])
"""Prior precisions of the target with a bias of its own."""
TARGET = linear_gaussian(bias_precision=0.2)
X, Y, N = TARGET.design.numpy(), TARGET.data.y.numpy(), 12
SEED = 5


@pytest.mark.parametrize("initial_precision", [5.0, 0.5])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("name", ["vadam", "vprop", "vprop-root", "vogn"])
def test_three_updates_of_the_family(name, momentum, initial_precision):
    """Gradients of a linear regression.

    0.5 is below one of the prior's precisions, which holds then.
    """
    start = {"initial_precision": initial_precision, "initial_scale": 0.5}
    method, hyper = (
        METHODS.get(name)(betas=(momentum, 0.95), samples=2, **start),
        doubles(learning_rate=0.05),
    )
    c = 1 if name == "vprop" else N
    m, s = np.zeros(3), (np.maximum(initial_precision, ALPHA) - ALPHA) / c
    for t, (before, after, noise) in enumerate(
        steps(method, *TARGET[:2], TARGET.hyper | hyper, 3), start=1
    ):
        mu = before.mu.numpy()
        w = mu + noise["theta"].numpy() / np.sqrt(c * s + ALPHA)
        each = -BETA * (Y - w @ X.T)[:, :, None] * X  # by sample and example
        g = each.mean(1) * (N / c)
        h = (each**2).mean((0, 1)) if name == "vogn" else (g**2).mean(0)
        m = momentum * m + (1 - momentum) * (g.mean(0) + ALPHA / c * mu)
        s = 0.95 * s + 0.05 * h
        corrected = (1 - momentum**t, 1 - 0.95**t) if name == "vadam" else (1, 1)
        r = s / corrected[1] if name in ("vprop", "vogn") else np.sqrt(s / corrected[1])
        mu = mu - 0.05 * m / corrected[0] / (r + ALPHA / c)
        q = method.posterior(after)
        np.testing.assert_allclose(q.mean(), mu, rtol=1e-11)
        np.testing.assert_allclose(q.variance(), 1 / (c * s + ALPHA), rtol=1e-12)  # not corrected


@pytest.mark.parametrize("name", ["vadam", "vprop", "vprop-root"])
def test_fixed_point_of_the_family_on_a_gaussian_target(name):
    """The exact mean, whatever the curvature, and s = E g^2 there, which with H = X^T X b / N solves

    s = (lambda mu / N)^2 + H^2 (1 / (N s + lambda)); all but for the units of vprop, whose s is
    N^2 times this.
    """
    target, points = (
        linear_gaussian(),
        sigma_points(0, 3)["z"],
    )  # averages over them are exact for g and g^2
    betas, rate = (0.9 if name == "vadam" else 0.0, 0.9), 0.5 if name == "vprop" else 0.02
    method = METHODS.get(name)(
        betas=betas, samples=len(points), initial_precision=5.0, initial_scale=0.0
    )
    state = settled(
        method, *target[:2], target.hyper | doubles(learning_rate=rate), {"theta": points}, 3000
    )
    mu, c = target.posterior.loc.numpy(), 1 if name == "vprop" else N
    H, s = BETA * X.T @ X / c, np.ones(3)
    for _ in range(3000):
        s = 0.5 * s + 0.5 * ((1.5 * mu / c) ** 2 + H**2 @ (1 / (c * s + 1.5)))
    np.testing.assert_allclose(state.mu, mu, rtol=1e-9)
    np.testing.assert_allclose(state.s, s, rtol=1e-9)
    np.testing.assert_allclose(method.posterior(state).variance(), 1 / (c * s + 1.5), rtol=1e-9)


def test_two_updates_of_noisy_adam():
    """The mean log-likelihood of a linear regression has the gradient beta u^2 X^T (y - X theta) / N."""
    method, lam = NoisyAdam(betas=(0.8, 0.95), damping=0.01, initial_scale=0.5), 0.7
    m, f, gin = np.zeros(3), np.zeros(3), lam * ALPHA / N
    hyper = TARGET.hyper | doubles(learning_rate=0.05, kl_weight=lam)
    for k, (before, after, noise) in enumerate(steps(method, *TARGET[:2], hyper, 2), start=1):
        mu = before.mu.numpy()
        w = mu + np.sqrt(lam / N / (f + gin)) * noise["theta"].numpy()
        g = BETA * X.T @ (Y - X @ w) / N
        m = 0.8 * m + 0.2 * (g - gin * w)
        f = 0.95 * f + 0.05 * g**2
        mu = mu + 0.05 * m / (1 - 0.8**k) / (np.sqrt(f) + gin + 0.01)
        q = method.posterior(after)
        np.testing.assert_allclose(q.mean(), mu, rtol=1e-12)
        np.testing.assert_allclose(q.variance(), lam / N / (f + gin), rtol=1e-12)


def test_three_updates_of_ivon():
    """Of a network by autograd and numpy, line by line as printed, with two samples."""
    problem, target = Problem(Mlp((2,), "tanh"), GaussianLikelihood(), 2), linear_gaussian()
    b1, b2, rate, delta = 0.9, 0.95, 0.1, 1.5 / N
    method = Ivon(betas=(b1, b2), samples=2, initial_curvature=0.4)
    h, g = np.full(problem.dim, 0.4), np.zeros(problem.dim)
    hyper = target.hyper | doubles(learning_rate=rate)
    for t, (before, after, noise) in enumerate(
        steps(method, problem, target.data, hyper, 3), start=1
    ):
        m = before.mu.numpy()
        sigma, slopes, curvatures = 1 / np.sqrt(N * (h + delta)), [], []
        for z in noise["theta"].numpy():
            theta = torch.from_numpy(m + sigma * z).requires_grad_()
            loss = -problem.log_likelihoods(theta, target.data, hyper).mean()
            slopes.append(torch.autograd.grad(loss, theta)[0].numpy())
            curvatures.append(slopes[-1] * (theta.detach().numpy() - m) / sigma**2)
        g, estimate = b1 * g + (1 - b1) * np.mean(slopes, 0), np.mean(curvatures, 0)
        h = b2 * h + (1 - b2) * estimate + 0.5 * (1 - b2) ** 2 * (h - estimate) ** 2 / (h + delta)
        m = m - rate * (g / (1 - b1**t) + delta * m) / (h + delta)
        np.testing.assert_allclose(after.mu.numpy(), m, rtol=1e-10)
        np.testing.assert_allclose(after.var.numpy(), 1 / (N * (h + delta)), rtol=1e-10)


def test_ivon_stands_still_at_the_ridge_mean_and_the_diagonal_of_the_precision():
    """Noise that has mean 0 and covariance I exactly makes gradients and curvatures those that are expected."""
    method, noise = Ivon(betas=(0.9, 0.9), samples=6), {"theta": sigma_points(0, 3)["z"]}
    q = method.posterior(
        settled(method, *TARGET[:2], TARGET.hyper | doubles(learning_rate=0.5), noise, 1000)
    )
    torch.testing.assert_close(q.mean(), TARGET.posterior.mean(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        q.variance(), 1 / TARGET.posterior.precision_diagonal(), rtol=1e-10, atol=0
    )


def test_variances_of_ivon_stay_positive_where_curvatures_are_far_below_zero():
    method, (problem, data, hyper, _) = Ivon(betas=(0.9, 0.0)), linear_gaussian()
    state = method.init(problem, {"theta": torch.full((3,), 50.0).double()})
    for sign in (1, -1, 1, -1):  # far from the mean, the sign of the noise is that of the estimate
        noise = {"theta": sign * torch.ones(1, 3).double()}
        state = method.step(state, data, hyper | doubles(learning_rate=0.0), noise, problem)
        assert bool((state.var > 0).all())
    assert bool((state.s < 1e6).all())


HYPER = doubles(learning_rate=0.05, prior_precision=1.0, noise_precision=4.0)


def test_one_round_of_learnt_scales(draw):
    """Scales are learnt when epochs end."""
    problem = Problem(Mlp((2,)), GaussianLikelihood(), 2)
    kappa, method = 0.3, HierarchicalVadam(global_scale=0.3)
    state = method.init(problem, {"theta": draw(9)})
    state = state._replace(
        local_precision=draw(9).exp(),
        global_precision=draw().exp(),
        weights=state.weights._replace(var=draw(9).exp()),
    )
    new = method.learn(state, None, HYPER, {}, problem)
    E = state.weights.mu.square() + state.weights.var
    local = 2 / (2 / (1 + state.local_precision) + state.global_precision * E)
    whole = 10 / (2 / (1 / kappa**2 + state.global_precision) + (local * E).sum())
    torch.testing.assert_close(new.local_precision, local, rtol=1e-12, atol=0)
    torch.testing.assert_close(new.global_precision, whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(new.alpha, local * whole, rtol=1e-12, atol=0)
    ard = HierarchicalVadam(scales="ard").learn(state, None, HYPER, {}, problem)
    torch.testing.assert_close(ard.alpha, 1 / E, rtol=1e-12, atol=0)
    assert [method.due(StepCounters(n, n // 3, n % 3 == 0, 3.0)) for n in (1, 2, 3)] == [
        (),
        (),
        ("learn",),
    ]


@pytest.mark.parametrize(
    ("optimizer", "scales", "shares"),
    [
        ("vogn", "ard", (0, 0.5)),
        ("vogn", "horseshoe", (0, 0.75)),
        ("vadam", "horseshoe", (0.75, 1)),
    ],
)
def test_learnt_scales_shrink_what_does_not_count_and_leave_the_rest(
    draw, optimizer, scales, shares
):
    """As a share of the least-squares sizes, whose standard error is 0.065.

    Vadam's variances are too wide for it.

    Sixty rows, twelve inputs of which two count, noise of standard deviation 0.5; each update is
    an epoch. The first takes the precision that is given.
    """
    x, problem = draw(60, 12), Problem(LinearModel(bias=False), GaussianLikelihood(), 12)
    batch = batch_of(x, 2 * x[:, 0] - 3 * x[:, 5] + 0.5 * draw(60), 60)
    method = HierarchicalVadam(scales=scales, optimizer=optimizer, samples=4)
    state = method.init(problem, {"theta": draw(12)})
    noise = {"theta": draw(4, 12)}
    plain = METHODS.get(optimizer)(samples=4).step(state.weights, batch, HYPER, noise, problem)
    assert torch.equal(method.step(state, batch, HYPER, noise, problem).weights.mu, plain.mu)

    step = TracedFunction(
        lambda *given: method.learn(method.step(*given, problem), *given[1:], problem)
    )
    for _ in range(700):
        state = step(state, batch, HYPER, {"theta": draw(4, 12)})
    mean, count = method.posterior(state).loc, torch.tensor([0, 5])
    others = torch.ones(12, dtype=torch.bool).index_fill(0, count, False)
    assert (mean[count] - torch.tensor([2.0, -3.0]).double()).abs().max() < 0.25
    share = (
        mean[others].abs().mean() / torch.linalg.lstsq(x, batch.y).solution[others].abs().mean()
    )
    assert shares[0] < share < shares[1]
