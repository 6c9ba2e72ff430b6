"""Laplace's approximation against closed forms and derivatives by other means."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from bdl.errors import InputError
from bdl.methods.laplace import Laplace
from bdl.models.joint import log_joint, whole
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem

from .targets import linear_gaussian

RNG = np.random.default_rng(0)
ROWS, DIM = 80, 3
X = torch.from_numpy(RNG.standard_normal((ROWS, DIM)) + 0.8 * RNG.standard_normal((ROWS, 1)))
Y = torch.from_numpy((RNG.random(ROWS) < 1 / (1 + np.exp(-X.numpy() @ [1, -2, 0.5]))).astype(float))
HYPER = {"prior_precision": torch.tensor(0.3, dtype=torch.float64)}


class Scales:
    """A prior over scales and normals, which has no precision."""

    hyper = ()

    def latent_dim(self, dim):
        return 2 * dim


def derivatives(problem, q, y=Y):
    """Gradient and Hessian of log p(D, theta) at the mean, by automatic differentiation of the whole."""
    density = partial(log_joint, problem=problem, batch=whole(X, y), hyper=HYPER)

    def height(theta):
        return density(theta.unsqueeze(0)).squeeze(0)

    return torch.func.grad(height)(q.mean()), torch.func.hessian(height)(q.mean())


@pytest.mark.parametrize("bias_precision", [None, 1e-6])
def test_gaussian_targets_give_the_exact_posterior(bias_precision):
    target = linear_gaussian(bias_precision=bias_precision)
    units = {"noise_precision": target.data.y_unit**2}
    given = {name: value * units.get(name, 1) for name, value in target.hyper.items()}
    found = Laplace().fit(target.problem, target.data.x, target.data.y, given)
    torch.testing.assert_close(found.mean(), target.posterior.mean(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.covariance(), target.posterior.covariance(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("problem", "y"),
    [
        (Problem(Linear(), Bernoulli(), DIM, prior=GaussianPrior(1e-5)), Y),
        (Problem(Linear(), Categorical(), DIM, 3), Y + (X[:, 0] > 1)),
        (Problem(Mlp((2,), "tanh"), Bernoulli(), DIM), Y),
    ],
    ids=["logistic", "softmax", "network"],
)
def test_it_is_the_mode_and_the_curvature_there(problem, y):
    found = Laplace().fit(problem, X, y, HYPER, seed=3)
    gradient, hessian = derivatives(problem, found, y)
    deviations = found.variance().sqrt()
    assert float((gradient * deviations).abs().max()) < 1e-9
    product = -hessian @ found.covariance()
    torch.testing.assert_close(product, torch.eye(problem.dim).double(), rtol=0, atol=1e-8)


def test_the_mode_of_logistic_regression_is_that_of_another_optimiser():
    problem = Problem(Linear(bias=False), Bernoulli(), DIM)
    x, signs = X.numpy(), 2 * Y.numpy() - 1

    def loss(theta):
        return np.logaddexp(0, -signs * (x @ theta)).sum() + 0.15 * theta @ theta

    expected = minimize(loss, np.zeros(DIM), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).x
    np.testing.assert_allclose(Laplace().fit(problem, X, Y, HYPER).mean(), expected, atol=1e-6)


def test_a_network_starts_where_its_seed_says():
    """Modes of a network are many; units may be permuted, and signs changed."""
    problem = Problem(Mlp((2,), "tanh"), Bernoulli(), DIM)
    first, again, other = (Laplace().fit(problem, X, Y, HYPER, seed).mean() for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem(Mlp((50, 50)), Bernoulli(), DIM), "laplace forms the Hessian of 2801 parameters: use a model of 2000"),
        (Problem(Linear(), Gaussian(), DIM, prior=Scales()), "laplace needs a prior on the parameters themselves"),
    ],
    ids=["a large network", "latent scales"],
)
def test_refusals(problem, message):
    with pytest.raises(InputError, match=f"^{message}"):
        Laplace().check(problem)


def test_data_without_a_mode_are_refused():
    x = X.clone()
    x[0, 0] = torch.inf
    with pytest.raises(InputError, match="is not finite") as caught:
        Laplace().fit(Problem(Linear(), Bernoulli(), DIM), x, Y, HYPER)
    assert "\n" not in str(caught.value)
