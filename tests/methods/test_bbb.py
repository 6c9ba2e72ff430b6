"""Bayes by Backprop against autograd, closed forms, and the best diagonal Gaussian of a linear regression."""

from functools import partial
from itertools import combinations

import pytest
import torch
from torch.nn.functional import softplus

from bdl.methods.bbb import BayesByBackprop, elbo_gradients
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import DiagonalGaussian, kl_divergence
from bdl.training.traced import Repeated

from .targets import linear_gaussian, normals, repeat

LIKELIHOODS = {
    "gaussian": (Gaussian(), 1, lambda y: y),
    "bernoulli": (Bernoulli(), 1, lambda y: (y > 0).double()),
    "categorical": (Categorical(), 3, lambda y: (y > -0.5).long() + (y > 0.5).long()),
}

SEED = 5


def posterior(params) -> DiagonalGaussian:
    return DiagonalGaussian(params["mu"], softplus(params["rho"]).square())


def sigma_points(dim: int) -> torch.Tensor:
    """2 D values of mean 0 and covariance I: averages over them are exact for a quadratic log-likelihood."""
    points = dim**0.5 * torch.eye(dim, dtype=torch.float64)
    return torch.cat([points, -points])


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("samples", [1, 4])
def test_gradients_equal_autograd_of_the_negative_elbo(draw, samples, bias_precision, likelihood):
    """The KL divergence by the general formula of two Gaussians; sigma from about 0.1 to 2."""
    family, d_out, labels = LIKELIHOODS[likelihood]
    problem = Problem(Mlp(hidden=(3,)), family, 2, d_out, GaussianPrior(bias_precision))
    params, z = {"mu": draw(problem.dim), "rho": draw(problem.dim)}, draw(samples, problem.dim)
    n, unit = torch.tensor([40.0, 2.5], dtype=torch.float64)
    batch = Batch(draw(5, 2), labels(draw(5)), n, unit)
    hyper = {name: draw().exp() for name in problem.hyper}

    def negative_elbo(params):
        q = posterior(params)
        fit = sum(problem.log_likelihood(q.sample(row), batch, hyper) for row in z) / samples
        alpha = problem.prior_precision(hyper).expand(problem.dim)
        return kl_divergence(q, DiagonalGaussian(torch.zeros_like(alpha), 1 / alpha)) - fit

    actual = elbo_gradients(params, batch, hyper, z, problem)
    expected = torch.func.grad(negative_elbo)(params)
    assert set(actual) == {"mu", "rho"}
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("size", [2, 5])
def test_expected_gradients_on_a_linear_regression_are_the_closed_form(draw, size, bias_precision):
    """P (mu - m) and (sigma diag(P) - 1 / sigma) sigmoid(rho), for the exact posterior N(m, P^-1).

    The expectation is a finite sum: sigma points for the noise, and all minibatches of one size.
    """
    target = linear_gaussian(n=5, bias_precision=bias_precision)
    params, rows = {"mu": draw(3), "rho": draw(3)}, torch.tensor(list(combinations(range(5), size)))
    each = [
        elbo_gradients(params, target.data._replace(x=x, y=y), target.hyper, sigma_points(3), target.problem)
        for x, y in zip(target.data.x[rows], target.data.y[rows], strict=True)
    ]
    P, sigma = torch.linalg.inv(target.posterior.covariance()), softplus(params["rho"])
    expected = {
        "mu": P @ (params["mu"] - target.posterior.loc),
        "rho": (sigma * P.diagonal() - 1 / sigma) * torch.sigmoid(params["rho"]),
    }
    for name, value in expected.items():
        average = torch.stack([grads[name] for grads in each]).mean(0)
        torch.testing.assert_close(average, value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_converges_to_the_best_diagonal_gaussian(bias_precision):
    """KL(q || p) is least at the exact means and the diagonal of the exact precision; no noise, so to rounding.

    The curvature in mu is P, with eigenvalues up to 24; that in rho is below 2.
    """
    target = linear_gaussian(seed=4, d_in=3, bias_precision=bias_precision)
    points = sigma_points(4)
    method = BayesByBackprop(initial_scale=1.0)
    state = method.init(target.problem, normals(method.init_noise(target.problem), torch.Generator().manual_seed(0)))
    gradients = Repeated(partial(elbo_gradients, problem=target.problem))
    for _ in range(1000):  # plain descent, which unlike Adam comes to rest
        grads = gradients(state.params, target.data, target.hyper, points)
        state = state._replace(params={name: state.params[name] - 0.05 * grad for name, grad in grads.items()})
    q, precision = method.posterior(state), torch.linalg.inv(target.posterior.covariance())
    torch.testing.assert_close(q.mean(), target.posterior.loc, rtol=0, atol=1e-12)
    torch.testing.assert_close(1 / q.variance(), precision.diagonal(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("betas", [(0.9, 0.99), (0.8, 0.999)])
def test_steps_are_those_of_torch_adam(draw, betas):
    """Published code descends J / N: with eps times N that is the same path, step for step."""
    problem, method = Problem(Mlp(hidden=(3,)), Gaussian(), 2), BayesByBackprop(samples=3, betas=betas)
    batch = Batch(draw(5, 2), draw(5), *torch.tensor([40.0, 2.5], dtype=torch.float64))
    hyper = {name: draw().exp() for name in problem.hyper} | {"learning_rate": torch.tensor(0.05).double()}
    state = method.init(problem, normals(method.init_noise(problem), torch.Generator().manual_seed(1)))
    ours = {name: value.clone().requires_grad_() for name, value in state.params.items()}
    optimizer = torch.optim.Adam(ours.values(), lr=float(hyper["learning_rate"]), betas=betas, eps=1e-8 / 40)
    for _ in range(20):
        z = draw(3, problem.dim)
        state = method.step(state, repeat(batch, 1), hyper, {"z": z}, problem)
        theta = ours["mu"] + softplus(ours["rho"]) * z
        fit = sum(problem.log_likelihoods(row, batch, hyper).mean() for row in theta) / 3
        prior = DiagonalGaussian(torch.zeros(problem.dim).double(), 1 / hyper["prior_precision"].expand(problem.dim))
        optimizer.zero_grad()
        (kl_divergence(posterior(ours), prior) / 40 - fit).backward()
        optimizer.step()
    for name, value in ours.items():
        torch.testing.assert_close(state.params[name], value.detach(), rtol=1e-9, atol=1e-10)


def test_initial_state():
    problem = Problem(Linear(), Gaussian(), 2)
    noise = {"theta": torch.tensor([1.0, -2.0, 3.0])}
    q = BayesByBackprop().posterior(BayesByBackprop().init(problem, noise))
    assert q.mean().tolist() == [0, 0, 0]
    torch.testing.assert_close(q.variance().sqrt(), torch.full((3,), 0.313261688))  # log(1 + 1 / e)
    other = BayesByBackprop(initial_scale=0.2, initial_rho=0.0)
    q = other.posterior(other.init(problem, noise))
    torch.testing.assert_close(q.mean(), 0.2 * noise["theta"])
    torch.testing.assert_close(q.variance().sqrt(), torch.full((3,), 0.693147181))
