"""The VIFA gradients against autograd of the exact negative ELBO."""

from itertools import combinations

import pytest
import torch
from torch import Tensor

from bdl.methods.vifa import elbo_gradients
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import DiagonalGaussian, FactorAnalysis, kl_divergence

from .targets import linear_gaussian, sigma_points

LIKELIHOODS = {
    "gaussian": (Gaussian(), 1, lambda y: y),
    "bernoulli": (Bernoulli(), 1, lambda y: (y > 0).double()),
    "categorical": (Categorical(), 3, lambda y: (y > -0.5).long() + (y > 0.5).long()),
}

SEED = 5


def variational(draw, dim: int, rank: int) -> dict[str, Tensor]:
    """Parameters far from the initial ones: psi from about 0.1 to 10."""
    return {"c": draw(dim), "F": draw(dim, rank), "gamma": draw(dim)}


def negative_elbo(params, batches: Batch, hyper, noise, problem: Problem) -> Tensor:
    """Reparametrised -E_q[log p(D | theta)] for the given noise, plus KL(q || prior) in closed form."""
    c, F, gamma = params["c"], params["F"], params["gamma"]
    fit = torch.zeros((), dtype=torch.float64)
    for h, z, x, y in zip(noise["h"], noise["z"], batches.x, batches.y, strict=True):
        theta = c + F @ h + gamma.exp().sqrt() * z
        fit = fit - problem.log_likelihood(theta, batches._replace(x=x, y=y), hyper) / len(batches.x)
    precision = problem.prior_precision(hyper).expand(problem.dim)
    prior = DiagonalGaussian(torch.zeros_like(c), 1 / precision)
    return fit + kl_divergence(FactorAnalysis(c, F, gamma.exp()), prior)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("n_batches", [1, 4])
@pytest.mark.parametrize("rank", [1, 3, None], ids=["K=1", "K=3", "K=D"])
def test_equal_autograd_of_the_negative_elbo(draw, rank, n_batches, bias_precision, likelihood):
    family, d_out, labels = LIKELIHOODS[likelihood]
    problem = Problem(Mlp(hidden=(3,)), family, 2, d_out, GaussianPrior(bias_precision))
    rank = rank or problem.dim
    params = variational(draw, problem.dim, rank)
    noise = {"h": draw(n_batches, rank), "z": draw(n_batches, problem.dim)}
    n, unit = torch.tensor([40.0, 2.5], dtype=torch.float64)
    batches = Batch(draw(n_batches, 5, 2), labels(draw(n_batches, 5)), n, unit)
    hyper = {name: draw().exp() for name in problem.hyper}

    actual = elbo_gradients(params, batches, hyper, noise, problem)
    expected = torch.func.grad(negative_elbo)(params, batches, hyper, noise, problem)
    assert set(actual) == set(expected)
    for name in expected:
        assert actual[name].shape == params[name].shape
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("size", [2, 5])
def test_average_over_noise_and_minibatches_is_the_gradient_of_kl_to_the_posterior(draw, rank, bias_precision, size):
    """J and KL(q || p(theta | D)) differ by log p(D), so the expected estimate is exactly its gradient.

    The expectation is a finite sum: sigma points for the noise, and all minibatches of one size.
    """
    target = linear_gaussian(n=5, bias_precision=bias_precision)
    params, points = variational(draw, 3, rank), sigma_points(rank, 3)
    rows = torch.tensor(list(combinations(range(5), size)))
    n_points = len(points["h"])
    noise = {name: value.repeat(len(rows), 1) for name, value in points.items()}
    rows = rows.repeat_interleave(n_points, dim=0)
    batches = target.data._replace(x=target.data.x[rows], y=target.data.y[rows])

    def divergence(params):
        q = FactorAnalysis(params["c"], params["F"], params["gamma"].exp())
        return kl_divergence(q, target.posterior)

    actual = elbo_gradients(params, batches, target.hyper, noise, target.problem)
    for name, expected in torch.func.grad(divergence)(params).items():
        torch.testing.assert_close(actual[name], expected, rtol=1e-10, atol=1e-10)


def test_several_minibatches_are_averaged(draw):
    """Entropy and prior count once; each minibatch brings its own noise."""
    problem, rank = Problem(Linear(), Gaussian(), 2), 2
    params, hyper = variational(draw, 3, rank), {name: draw().exp() for name in problem.hyper}
    noise, one = {"h": draw(3, rank), "z": draw(3, 3)}, torch.tensor(7.0, dtype=torch.float64)
    batches = Batch(draw(3, 5, 2), draw(3, 5), one, one)
    each = [
        elbo_gradients(
            params,
            batches._replace(x=batches.x[i : i + 1], y=batches.y[i : i + 1]),
            hyper,
            {name: value[i : i + 1] for name, value in noise.items()},
            problem,
        )
        for i in range(3)
    ]
    together = elbo_gradients(params, batches, hyper, noise, problem)
    for name, value in together.items():
        torch.testing.assert_close(value, sum(grads[name] for grads in each) / 3, rtol=1e-12, atol=1e-12)


def test_by_hand_in_one_dimension():
    """No data in effect (N = 0), K = D = 1, F = 1, psi = 1, alpha = 3, c = 2: S = 2, so C = 1 / 2.

    dJ/dc = 3 * 2, dJ/dF = 3 - 1/2, dJ/dgamma = (3 + 1/2 - 1) / 2.
    """
    zero, one = torch.zeros(1), torch.ones(1)
    problem = Problem(Mlp(hidden=()), Gaussian(), 0)
    batches = Batch(torch.zeros(1, 2, 0), torch.ones(1, 2), torch.tensor(0.0), torch.tensor(1.0))
    hyper = {"prior_precision": torch.tensor(3.0), "noise_precision": torch.tensor(1.0)}
    noise = {"h": one[None], "z": one[None]}
    params = {"c": 2 * one, "F": one[:, None], "gamma": zero}
    grads = elbo_gradients(params, batches, hyper, noise, problem)
    assert {name: value.item() for name, value in grads.items()} == {"c": 6.0, "F": 2.5, "gamma": 1.25}
