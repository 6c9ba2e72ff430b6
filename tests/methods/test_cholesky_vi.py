"""Full-covariance variational inference against autograd, closed forms, and the posterior of a linear regression."""

from functools import partial
from itertools import combinations

import pytest
import torch

from bdl.methods.cholesky_vi import CholeskyVi, elbo_gradients, factor
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import DiagonalGaussian, FullGaussian, kl_divergence
from bdl.training.traced import Repeated

from .targets import linear_gaussian, normals, repeat

LIKELIHOODS = {"gaussian": (Gaussian(), lambda y: y), "bernoulli": (Bernoulli(), lambda y: (y > 0).double())}

SEED = 5


def sigma_points(dim: int) -> torch.Tensor:
    """2 D values of mean 0 and covariance I: averages over them are exact for a quadratic log-likelihood."""
    points = dim**0.5 * torch.eye(dim, dtype=torch.float64)
    return torch.cat([points, -points])


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("samples", [1, 4])
def test_gradients_equal_autograd_of_the_negative_elbo(draw, samples, bias_precision, likelihood):
    """The KL divergence by the general formula of two Gaussians; the entropy with it."""
    family, labels = LIKELIHOODS[likelihood]
    problem = Problem(Mlp(hidden=(3,)), family, 2, prior=GaussianPrior(bias_precision))
    dim = problem.dim
    params, z = {"m": draw(dim), "A": draw(dim, dim).tril()}, draw(samples, dim)
    batch = Batch(draw(5, 2), labels(draw(5)), *torch.tensor([40.0, 2.5], dtype=torch.float64))
    hyper = {name: draw().exp() for name in problem.hyper}

    def negative_elbo(params):
        A = params["A"]
        q = FullGaussian(params["m"], A.tril(-1) + A.diagonal().exp().diag())
        fit = sum(problem.log_likelihood(q.sample(row), batch, hyper) for row in z) / samples
        alpha = problem.prior_precision(hyper).expand(dim)
        return kl_divergence(q, DiagonalGaussian(torch.zeros_like(alpha), 1 / alpha)) - fit

    actual = elbo_gradients(params, batch, hyper, z, problem)
    expected = torch.func.grad(negative_elbo)(params)
    assert set(actual) == {"m", "A"}
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("size", [2, 5])
def test_expected_gradients_on_a_linear_regression_are_the_closed_form(draw, size):
    """P (m - mean) and tril(P L) - diag(1 / L_ii), for the exact posterior N(mean, P^-1).

    The expectation is a finite sum: sigma points for the noise, and all minibatches of one size.
    """
    target = linear_gaussian(n=5, bias_precision=0.2)
    params, rows = {"m": draw(3), "A": draw(3, 3).tril()}, torch.tensor(list(combinations(range(5), size)))
    each = [
        elbo_gradients(params, target.data._replace(x=x, y=y), target.hyper, sigma_points(3), target.problem)
        for x, y in zip(target.data.x[rows], target.data.y[rows], strict=True)
    ]
    P, L = torch.linalg.inv(target.posterior.covariance()), factor(params["A"])
    by_factor = (P @ L).tril() - (1 / L.diagonal()).diag()
    expected = {
        "m": P @ (params["m"] - target.posterior.loc),
        "A": by_factor.tril(-1) + (by_factor.diagonal() * L.diagonal()).diag(),
    }
    for name, value in expected.items():
        average = torch.stack([grads[name] for grads in each]).mean(0)
        torch.testing.assert_close(average, value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_converges_to_the_posterior_of_a_linear_regression(bias_precision):
    """Mean and covariance both, to rounding, as there is no noise; half the entropy would give half the covariance."""
    target = linear_gaussian(seed=4, d_in=3, bias_precision=bias_precision)
    points = sigma_points(4)
    method = CholeskyVi(initial_scale=1.0)
    state = method.init(target.problem, normals(method.init_noise(target.problem), torch.Generator().manual_seed(0)))
    gradients = Repeated(partial(elbo_gradients, problem=target.problem))
    for _ in range(1000):  # plain descent, which unlike Adam comes to rest
        grads = gradients(state.params, target.data, target.hyper, points)
        state = state._replace(params={name: state.params[name] - 0.05 * grad for name, grad in grads.items()})
    q = method.posterior(state).check()
    torch.testing.assert_close(q.mean(), target.posterior.loc, rtol=0, atol=1e-11)
    torch.testing.assert_close(q.covariance(), target.posterior.covariance(), rtol=0, atol=1e-11)


def test_adam_leaves_the_upper_triangle_zero(draw):
    problem, method = Problem(Linear(), Bernoulli(), 3), CholeskyVi(samples=2)
    batch = Batch(draw(5, 3), (draw(5) > 0).double(), *torch.tensor([40.0, 1.0], dtype=torch.float64))
    hyper = {name: torch.tensor(0.1).double() for name in ("learning_rate", "prior_precision")}
    state = method.init(problem, {"theta": draw(4)})
    for _ in range(5):
        state = method.step(state, repeat(batch, 1), hyper, {"z": draw(2, 4)}, problem)
    assert not state.params["A"].triu(1).any()
    assert state.params["A"].tril(-1).any()


def test_initial_state():
    problem = Problem(Linear(), Gaussian(), 2)
    noise = {"theta": torch.tensor([1.0, -2.0, 3.0])}
    q = CholeskyVi().posterior(CholeskyVi().init(problem, noise))
    assert q.mean().tolist() == [0, 0, 0]
    torch.testing.assert_close(q.covariance(), 0.09 * torch.eye(3))
    other = CholeskyVi(initial_scale=0.2, initial_std=2.0)
    q = other.posterior(other.init(problem, noise))
    torch.testing.assert_close(q.mean(), 0.2 * noise["theta"])
    torch.testing.assert_close(q.covariance(), 4 * torch.eye(3))
