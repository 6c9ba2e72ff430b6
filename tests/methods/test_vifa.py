"""VIFA: initial state, clipping, learning rates, and what its settings mean."""

import math

import pytest
import torch

from bdl.methods.vifa import Vifa, elbo_gradients
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import FactorAnalysis

from .targets import linear_gaussian, normals, repeat

GROUPS = ("c", "F", "gamma")


@pytest.fixture
def target():
    return linear_gaussian()


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(4)


def moved(target, method, generator, rate: float):
    """Gradients at a state, and the change of each parameter group in one step from it."""
    problem = target.problem
    state = method.init(problem, normals(method.init_noise(problem), generator))
    batches = repeat(target.data, method.batches_per_step)
    noise = normals(method.step_noise(problem), generator)
    hyper = target.hyper | {"learning_rate": torch.tensor(rate, dtype=torch.float64)}
    grads = elbo_gradients(state.params, batches, hyper, noise, problem)
    after = method.step(state, batches, hyper, noise, problem)
    return grads, {name: after.params[name] - state.params[name] for name in GROUPS}


@pytest.mark.parametrize(("rank", "std"), [(1, 1.0), (2, 0.5), (5, 3.0)])
def test_initial_state(generator, rank, std):
    """c = 0, psi = std^2, and the F of noise = F R with F^T F = I and R upper triangular."""
    problem, method = Problem(Linear(), Gaussian(), d_in=4), Vifa(latent_dim=rank, initial_std=std)
    shapes = method.init_noise(problem)
    assert shapes == {"F": (5, rank)}
    noise = normals(shapes, generator)
    loc, factors, diag = method.posterior(method.init(problem, noise))
    assert torch.equal(loc, torch.zeros(5, dtype=torch.float64))
    torch.testing.assert_close(diag, torch.full((5,), std**2, dtype=torch.float64), rtol=1e-14, atol=0)
    torch.testing.assert_close(factors.T @ factors, torch.eye(rank, dtype=torch.float64), rtol=0, atol=1e-14)
    upper = factors.T @ noise["F"]
    torch.testing.assert_close(upper.tril(-1), torch.zeros_like(upper), rtol=0, atol=1e-14)
    torch.testing.assert_close(factors @ upper, noise["F"], rtol=0, atol=1e-14)


def test_names_and_shapes(target):
    method = Vifa(latent_dim=2, gradients_per_update=7)
    assert method.hyper == ("learning_rate",)
    assert method.batches_per_step == 7
    assert method.step_noise(target.problem) == {"h": (7, 2), "z": (7, 3)}


def test_posterior_exponentiates_gamma(target, generator):
    method = Vifa(latent_dim=2)
    state = method.init(target.problem, normals(method.init_noise(target.problem), generator))
    gamma = torch.tensor([0.0, math.log(2), -1.0], dtype=torch.float64)
    posterior = method.posterior(state._replace(params=state.params | {"gamma": gamma}))
    assert isinstance(posterior, FactorAnalysis)
    expected = torch.tensor([1.0, 2.0, math.exp(-1)], dtype=torch.float64)
    torch.testing.assert_close(posterior.diag, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("fraction", [0.99, 1.01])
def test_each_group_is_clipped_by_its_own_norm(target, group, fraction):
    """The limit lies just below, then just above, the norm of one group; a joint norm would exceed both."""

    def run(limit: float):
        method = Vifa(latent_dim=2, max_grad_norm=limit, optimizer="sgd")
        return moved(target, method, torch.Generator().manual_seed(4), rate=1.0)

    limit = fraction * run(1.0)[0][group].norm().item()
    grads, steps = run(limit)
    for name in GROUPS:
        expected = -grads[name] * min(1.0, limit / grads[name].norm().item())
        torch.testing.assert_close(steps[name], expected, rtol=1e-12, atol=1e-12)


def test_infinite_max_grad_norm_means_no_clipping(target, generator):
    method = Vifa(max_grad_norm=math.inf, optimizer="sgd")
    grads, steps = moved(target, method, generator, rate=1.0)
    for name in GROUPS:
        torch.testing.assert_close(steps[name], -grads[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("optimizer", "limit", "rtol"), [("sgd", 1e9, 1e-12), ("adam", 1e-2, 1e-3)])
def test_learning_rate_factors(target, generator, optimizer, limit, rtol):
    """The first step of Adam is the learning rate times the sign of the gradient, whatever the clipping."""
    method = Vifa(max_grad_norm=limit, optimizer=optimizer, lr_factors=(1.0, 0.5, 3.0))
    grads, steps = moved(target, method, generator, rate=0.1)
    for name, rate in zip(GROUPS, (0.1, 0.05, 0.3), strict=True):
        direction = grads[name] if optimizer == "sgd" else grads[name].sign()
        torch.testing.assert_close(steps[name], -rate * direction, rtol=rtol, atol=1e-12 * (optimizer == "sgd"))
