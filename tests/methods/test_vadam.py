"""Vadam, Vprop and VOGN: bad input, updates by hand, a fixed point, and what VOGN shares with natural gradients."""

import numpy as np
import pytest
import torch

from bdl.methods import METHODS
from bdl.methods.natural_gradient import NaturalGradient
from bdl.methods.vadam import Vadam, Vogn, Vprop, VpropRoot

from .targets import linear_gaussian, normals, repeat, repeated, sigma_points

ALPHA = np.array([1.5, 1.5, 0.2])
"""Prior precisions of the target with a bias of its own."""


def test_members_of_the_family():
    root = {"curvature": "mean", "denominator": "root", "betas": (0.0, 0.999), "bias_correction": False}
    assert METHODS.get("vadam")() == Vadam(
        curvature="mean", denominator="root", betas=(0.9, 0.999), bias_correction=True
    )
    assert METHODS.get("vprop-root")() == VpropRoot(**root)
    assert METHODS.get("vprop")() == Vprop(**{**root, "curvature": "total", "denominator": "plain"})
    assert METHODS.get("vogn")() == Vogn(**{**root, "curvature": "examples", "denominator": "plain"})


@pytest.mark.parametrize("initial_precision", [5.0, 0.5])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("name", ["vadam", "vprop", "vprop-root", "vogn"])
def test_three_updates_by_hand(name, momentum, initial_precision):
    """Gradients of a linear regression; 0.5 is below one of the prior's precisions, which holds then."""
    problem, data, hyper, _ = linear_gaussian(bias_precision=0.2)
    X, y, n = np.c_[data.x.numpy(), np.ones(12)], data.y.numpy(), 12
    method = METHODS.get(name)(
        betas=(momentum, 0.95), samples=2, initial_precision=initial_precision, initial_scale=0.5
    )
    given = hyper | {"learning_rate": torch.tensor(0.05, dtype=torch.float64)}
    generator = torch.Generator().manual_seed(0)
    state = method.init(problem, normals(method.init_noise(problem), generator))
    assert method.posterior(state).variance().tolist() == [1 / initial_precision] * 3
    c = 1 if name == "vprop" else n
    mu, m, s = state.mu.numpy(), np.zeros(3), (np.maximum(initial_precision, ALPHA) - ALPHA) / c
    for t in (1, 2, 3):
        noise = normals(method.step_noise(problem), generator)
        state = method.step(state, repeat(data, 1), given, noise, problem)
        w = mu + noise["theta"].numpy() / np.sqrt(c * s + ALPHA)
        each = -0.4 * 1.3**2 * (y - w @ X.T)[:, :, None] * X  # by sample and example
        g = each.mean(1) * (n / c)
        h = (each**2).mean((0, 1)) if name == "vogn" else (g**2).mean(0)
        m = momentum * m + (1 - momentum) * (g.mean(0) + ALPHA / c * mu)
        s = 0.95 * s + 0.05 * h
        corrected = (1 - momentum**t, 1 - 0.95**t) if name == "vadam" else (1, 1)
        r = s / corrected[1] if name in ("vprop", "vogn") else np.sqrt(s / corrected[1])
        mu = mu - 0.05 * m / corrected[0] / (r + ALPHA / c)
        q = method.posterior(state)
        np.testing.assert_allclose(q.mean(), mu, rtol=1e-11)
        np.testing.assert_allclose(q.variance(), 1 / (c * s + ALPHA), rtol=1e-12)  # not corrected


def test_vogn_is_the_natural_gradient_of_diagonal_precision():
    """P = N s + lambda, step for step, from minibatches of five rows."""
    problem, data, hyper, _ = linear_gaussian(bias_precision=0.2)
    vogn = Vogn(betas=(0.0, 0.9), samples=3, initial_precision=4.0, initial_scale=0.5)
    natural = NaturalGradient(
        structure="diagonal", samples=3, lr_factors=(1.0, 2.0), initial_precision=4.0, initial_scale=0.5
    )
    given = hyper | {"learning_rate": torch.tensor(0.05, dtype=torch.float64)}
    generator = torch.Generator().manual_seed(0)
    noise = normals(vogn.init_noise(problem), generator)
    ours, theirs = vogn.init(problem, noise), natural.init(problem, noise)
    for _ in range(50):
        rows = torch.randperm(12, generator=generator)[:5]
        batch, noise = repeat(data._replace(x=data.x[rows], y=data.y[rows]), 1), normals({"theta": (3, 3)}, generator)
        ours, theirs = (
            vogn.step(ours, batch, given, noise, problem),
            natural.step(theirs, batch, given, noise, problem),
        )
        for one, other in zip(vogn.posterior(ours), natural.posterior(theirs), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["vadam", "vprop", "vprop-root"])
def test_fixed_point_on_a_gaussian_target(name):
    """The exact mean, whatever the curvature, and s = E g^2 there, which with H = X^T X b / N solves

    s = (lambda mu / N)^2 + H^2 (1 / (N s + lambda)); all but for the units of vprop, whose s is N^2 times this.
    """
    problem, data, hyper, exact = linear_gaussian()
    points = sigma_points(0, 3)["z"]  # no noise: averages over them are exact for g and g^2
    method = METHODS.get(name)(
        betas=(0.9 if name == "vadam" else 0.0, 0.9), samples=len(points), initial_precision=5.0, initial_scale=0.0
    )
    given = hyper | {"learning_rate": torch.tensor(0.5 if name == "vprop" else 0.02).double()}
    state, step = method.init(problem, {"theta": torch.zeros(3).double()}), repeated(method, problem)
    for _ in range(3000):
        state = step(state, repeat(data, 1), given, {"theta": points})

    X, mu, n = np.c_[data.x.numpy(), np.ones(12)], exact.loc.numpy(), 12
    c = 1 if name == "vprop" else n
    H, s = 0.4 * 1.3**2 * X.T @ X / c, np.ones(3)
    for _ in range(3000):
        s = 0.5 * s + 0.5 * ((1.5 * mu / c) ** 2 + H**2 @ (1 / (c * s + 1.5)))
    np.testing.assert_allclose(state.mu, mu, rtol=1e-9)
    np.testing.assert_allclose(state.s, s, rtol=1e-9)
    np.testing.assert_allclose(method.posterior(state).variance(), 1 / (c * s + 1.5), rtol=1e-9)
