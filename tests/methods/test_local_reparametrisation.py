"""Draws of outputs in place of weights: closed forms, the same mean of gradients, and less variance."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import softplus

from bdl.errors import InputError
from bdl.methods import local_reparametrisation as local
from bdl.methods.bbb import BayesByBackprop, elbo_gradients, local_gradients
from bdl.models.heavy_tails import StudentTPrior
from bdl.models.likelihoods import Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Batch, Problem
from bdl.models.unit import Unit

from .targets import linear_gaussian, normals

NETWORK = Problem(Mlp(hidden=(4, 3), activation="tanh"), Categorical(), 2, 3)
LOCAL = BayesByBackprop(samples=3, local_reparametrisation=True)


@pytest.fixture
def draw():
    generator = torch.Generator().manual_seed(5)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def batch(draw):
    return Batch(draw(6, 2), torch.tensor([0.0, 1, 2, 0, 1, 2]).double(), *torch.tensor([30.0, 1.0]).double())


@pytest.mark.parametrize(
    ("method", "problem", "message"),
    [
        (LOCAL, Problem(Unit(), Gaussian(), 2), "needs dense layers, not Unit: use linear or mlp, or leave it out"),
        (LOCAL, replace(NETWORK, prior=StudentTPrior()), "needs a Gaussian prior and a Gaussian posterior"),
        (replace(LOCAL, degrees=3.0), NETWORK, "needs a Gaussian prior and a Gaussian posterior: leave it out"),
    ],
)
def test_what_does_not_fit_is_refused(method, problem, message):
    with pytest.raises(InputError, match=message) as caught:
        method.check(problem)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_expected_gradients_on_a_linear_regression_are_the_closed_form(draw, bias_precision):
    """As those of draws of weights: one unit, whose square has the mean of the draws -1 and 1."""
    target = linear_gaussian(n=5, bias_precision=bias_precision)
    params, z = {"mu": draw(3), "rho": draw(3)}, torch.tensor([-1.0, 1.0]).double().view(2, 1, 1).expand(2, 5, 1)
    batch = target.data
    found = local_gradients(params, batch, target.hyper, z, target.problem)
    P, sigma = torch.linalg.inv(target.posterior.covariance()), softplus(params["rho"])
    torch.testing.assert_close(found["mu"], P @ (params["mu"] - target.posterior.mean()), rtol=1e-9, atol=1e-9)
    expected = (sigma * P.diagonal() - 1 / sigma) * torch.sigmoid(params["rho"])
    torch.testing.assert_close(found["rho"], expected, rtol=1e-9, atol=1e-9)


def test_outputs_have_the_moments_of_those_of_drawn_weights(draw):
    """One layer of two outputs, by hand: means M a + b and variances V a^2 + v."""
    problem, x = Problem(Linear(), Categorical(), 2, 2), draw(3, 2)
    mu, var = draw(6), draw(6).square()
    mean = x @ mu[:4].view(2, 2).T + mu[4:]
    sd = (x.square() @ var[:4].view(2, 2).T + var[4:]).sqrt()
    for z in (torch.zeros(3, 2).double(), draw(3, 2)):
        torch.testing.assert_close(local.outputs(mu, var, x, z, problem), mean + sd * z)


def test_the_same_mean_and_less_variance(draw, batch):
    """Each component of the gradient within five standard errors, 4000 draws of either kind."""
    params = {"mu": draw(NETWORK.dim), "rho": draw(NETWORK.dim) - 1}
    hyper = {"prior_precision": torch.tensor(2.0).double()}

    def gradients(estimate, *shape):
        found = torch.func.vmap(lambda z: estimate(params, batch, hyper, z, NETWORK))(draw(4000, 1, *shape))
        return torch.cat([found["mu"], found["rho"]], 1)

    weights, outputs = gradients(elbo_gradients, NETWORK.dim), gradients(local_gradients, 6, 10)
    error = ((weights.var(0) + outputs.var(0)) / 4000).sqrt()
    assert ((weights.mean(0) - outputs.mean(0)).abs() < 5 * error).all()
    assert outputs.var(0).sum() < 0.5 * weights.var(0).sum()


def test_no_inputs_and_no_bias_leave_finite_gradients(draw):
    problem, one = Problem(Linear(bias=False), Gaussian(), 2), torch.ones(()).double()
    batch, hyper = Batch(torch.zeros(2, 2).double(), draw(2), one, one), {"noise_precision": one}
    found = local.gradients(draw(2), one.expand(2), batch, hyper, draw(1, 2, 1), problem)
    assert all(torch.equal(part, torch.zeros(2).double()) for part in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_are_normal_and_of_the_key(dtype):
    keys = torch.tensor([[0.3, -1.2], [0.3, -1.3]], dtype=dtype)
    first, other = (local.draws(key, 50, 40, NETWORK) for key in keys)
    assert first.shape == (50, 40, 4 + 3 + 3)
    assert first.dtype == dtype
    assert torch.equal(first, local.draws(keys[0], 50, 40, NETWORK))
    both = torch.stack([first.flatten(), other.flatten()])
    assert (both.mean(1).abs() < 5 / 20_000**0.5).all()
    assert (torch.cov(both) - torch.eye(2, dtype=dtype)).abs().max() < 5 * (2 / 20_000) ** 0.5


def test_an_update_moves_by_the_local_gradients(draw, batch):
    state = LOCAL.init(NETWORK, normals(LOCAL.init_noise(NETWORK), torch.Generator().manual_seed(0)))
    hyper = {"prior_precision": torch.tensor(2.0).double(), "learning_rate": torch.tensor(0.1).double()}
    noise = {"key": draw(*LOCAL.step_noise(NETWORK)["key"])}
    z = local.draws(noise["key"], 3, 6, NETWORK)
    grads = local_gradients(state.params, batch, hyper, z, NETWORK)
    after = LOCAL.step(state, batch, hyper, noise, NETWORK)
    for name in ("mu", "rho"):  # Adam's first step goes as far as its rate, against the gradient
        torch.testing.assert_close(
            after.params[name] - state.params[name], -0.1 * grads[name].sign(), rtol=1e-4, atol=0
        )
