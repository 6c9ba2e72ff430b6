"""Bayes by Backprop and full-covariance VI against autograd, closed forms, and the best of their Gaussians."""

from functools import partial
from itertools import combinations

import pytest
import torch
from torch.nn.functional import softplus

from bdl.methods import bbb, cholesky_vi
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.cholesky_vi import CholeskyVi
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import DiagonalGaussian, FullGaussian, kl_divergence
from bdl.training.traced import Repeated

from .targets import linear_gaussian, normals, repeat, sigma_points

LIKELIHOODS = {
    "gaussian": (Gaussian(), 1, lambda y: y),
    "bernoulli": (Bernoulli(), 1, lambda y: (y > 0).double()),
    "categorical": (Categorical(), 3, lambda y: (y > -0.5).long() + (y > 0.5).long()),
}
GRADIENTS = {"bbb": bbb.elbo_gradients, "cholesky-vi": cholesky_vi.elbo_gradients}
PARAMS = {
    "bbb": lambda draw, dim: {"mu": draw(dim), "rho": draw(dim)},
    "cholesky-vi": lambda draw, dim: {"m": draw(dim), "A": draw(dim, dim).tril()},
}
each = pytest.mark.parametrize("name", GRADIENTS)

SEED = 5


def posterior(params):
    if "mu" in params:
        return DiagonalGaussian(params["mu"], softplus(params["rho"]).square())
    return FullGaussian(params["m"], params["A"].tril(-1) + params["A"].diagonal().exp().diag())


@each
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("samples", [1, 4])
def test_gradients_equal_autograd_of_the_negative_elbo(draw, name, samples, bias_precision, likelihood):
    """The KL divergence by the general formula of two Gaussians; sigma from about 0.1 to 2."""
    family, d_out, labels = LIKELIHOODS[likelihood]
    problem = Problem(Mlp(hidden=(3,)), family, 2, d_out, GaussianPrior(bias_precision))
    params, z = PARAMS[name](draw, problem.dim), draw(samples, problem.dim)
    batch = Batch(draw(5, 2), labels(draw(5)), *torch.tensor([40.0, 2.5], dtype=torch.float64))
    hyper = {own: draw().exp() for own in problem.hyper}

    def negative_elbo(params):
        q = posterior(params)
        fit = sum(problem.log_likelihood(q.sample(row), batch, hyper) for row in z) / samples
        alpha = problem.prior_precision(hyper).expand(problem.dim)
        return kl_divergence(q, DiagonalGaussian(torch.zeros_like(alpha), 1 / alpha)) - fit

    actual, expected = GRADIENTS[name](params, batch, hyper, z, problem), torch.func.grad(negative_elbo)(params)
    assert set(actual) == set(params)
    for own in expected:
        torch.testing.assert_close(actual[own], expected[own], rtol=1e-10, atol=1e-10)


@each
@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("size", [2, 5])
def test_expected_gradients_on_a_linear_regression_are_the_closed_form(draw, name, size, bias_precision):
    """For the exact posterior N(m, P^-1) they are P (mu - m), and for the spread

    (sigma diag(P) - 1 / sigma) sigmoid(rho), or tril(P L) - diag(1 / L_ii) where the covariance is full. The
    expectation is a finite sum: sigma points for the noise, and all minibatches of one size.
    """
    target = linear_gaussian(n=5, bias_precision=bias_precision)
    params, rows = PARAMS[name](draw, 3), torch.tensor(list(combinations(range(5), size)))
    parts = [
        GRADIENTS[name](params, target.data._replace(x=x, y=y), target.hyper, sigma_points(0, 3)["z"], target.problem)
        for x, y in zip(target.data.x[rows], target.data.y[rows], strict=True)
    ]
    P = torch.linalg.inv(target.posterior.covariance())
    mean, spread = params.values()
    if name == "bbb":
        by_spread = (softplus(spread) * P.diagonal() - 1 / softplus(spread)) * torch.sigmoid(spread)
    else:
        L = cholesky_vi.factor(spread)
        by_factor = (P @ L).tril() - (1 / L.diagonal()).diag()
        by_spread = by_factor.tril(-1) + (by_factor.diagonal() * L.diagonal()).diag()
    for own, value in zip(params, (P @ (mean - target.posterior.loc), by_spread), strict=True):
        average = torch.stack([grads[own] for grads in parts]).mean(0)
        torch.testing.assert_close(average, value, rtol=1e-10, atol=1e-10)


@each
@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_converges_to_the_best_gaussian_for_a_linear_regression(name, bias_precision):
    """The exact mean, and the covariance, or the diagonal of the precision; to rounding, as there is no noise.

    The curvature in the mean is P, with eigenvalues up to 24. Half the entropy would give half the covariance.
    """
    target = linear_gaussian(seed=4, d_in=3, bias_precision=bias_precision)
    points, method = sigma_points(0, 4)["z"], {"bbb": BayesByBackprop, "cholesky-vi": CholeskyVi}[name](1.0)
    state = method.init(target.problem, normals(method.init_noise(target.problem), torch.Generator().manual_seed(0)))
    gradients = Repeated(partial(GRADIENTS[name], problem=target.problem))
    for _ in range(1000):  # plain descent, which unlike Adam comes to rest
        grads = gradients(state.params, target.data, target.hyper, points)
        state = state._replace(params={own: state.params[own] - 0.05 * grad for own, grad in grads.items()})
    q = method.posterior(state).check()
    torch.testing.assert_close(q.mean(), target.posterior.loc, rtol=0, atol=1e-11)
    if name == "bbb":
        torch.testing.assert_close(1 / q.variance(), target.posterior.precision_diagonal(), rtol=1e-12, atol=0)
    else:
        torch.testing.assert_close(q.covariance(), target.posterior.covariance(), rtol=0, atol=1e-11)


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


def test_adam_leaves_the_upper_triangle_zero(draw):
    problem, method = Problem(Linear(), Bernoulli(), 3), CholeskyVi(samples=2)
    batch = Batch(draw(5, 3), (draw(5) > 0).double(), *torch.tensor([40.0, 1.0], dtype=torch.float64))
    hyper = {name: torch.tensor(0.1).double() for name in ("learning_rate", "prior_precision")}
    state = method.init(problem, {"theta": draw(4)})
    for _ in range(5):
        state = method.step(state, repeat(batch, 1), hyper, {"z": draw(2, 4)}, problem)
    assert not state.params["A"].triu(1).any()
    assert state.params["A"].tril(-1).any()


@pytest.mark.parametrize(
    ("method", "scale", "deviation"),
    [
        (BayesByBackprop(), 0.0, 0.313261688),  # log(1 + 1 / e)
        (BayesByBackprop(initial_scale=0.2, initial_rho=0.0), 0.2, 0.693147181),
        (CholeskyVi(), 0.0, 0.3),
        (CholeskyVi(initial_scale=0.2, initial_std=2.0), 0.2, 2.0),
    ],
)
def test_initial_state(method, scale, deviation):
    noise = {"theta": torch.tensor([1.0, -2.0, 3.0])}
    q = method.posterior(method.init(Problem(Linear(), Gaussian(), 2), noise))
    torch.testing.assert_close(q.mean(), scale * noise["theta"])
    torch.testing.assert_close(q.covariance(), deviation**2 * torch.eye(3))
