"""Moments by sums over a grid, against closed forms, quadrature by others, and sampling."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import digamma, polygamma

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.mode import laplace
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.references import exact
from bdl.references.certificate import certify, monte_carlo_errors
from bdl.references.exact import ConjugateReference, GridReference, moments
from bdl.references.mcmc import Regression, Settings, sample

LOGISTIC = Problem(Linear(bias=False), Bernoulli(), 2)
FEW_X = torch.tensor([[1, 0.2], [-0.5, -1], [2, 1], [-1, 0.3]], dtype=torch.float64)
FEW_Y = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64)
"""Separable: without a prior there is no posterior."""


def hyper(**values):
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def logistic_data(n=3000, theta=(10.7, 4.0)):
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], n)
    return x, (rng.random(n) < 1 / (1 + np.exp(-x @ theta))).astype(float)


def log_joint(theta, x, y, alpha):
    """log p(y | theta) + log p(theta) of logistic regression, up to a constant, in numpy: (..., D) -> (...)."""
    loss = sum(np.logaddexp(0, (1 - 2 * label) * (theta @ row)) for row, label in zip(x, y, strict=True))
    return -loss - 0.5 * alpha * np.square(theta).sum(-1)


def raw_grid_moments(low, high, points, *data):
    """Mean and covariance by sums over a grid along the axes of the parameters, theta itself as the coordinate."""
    axes = [np.linspace(a, b, points) for a, b in zip(low, high, strict=True)]
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    density = log_joint(theta, *data)
    weights = np.exp(density - density.max())
    mean = weights @ theta / weights.sum()
    return mean, np.cov(theta.T, aweights=weights, ddof=0)


def log_gamma(z, shape):
    """The log of a gamma variable, unnormalised: mean digamma(a), variance trigamma(a), skewed to the left.

    Cut off 30 nats below the peak, in a tail e^(a z), its moments lack about 30^2 e^-30 = 1e-10 at most.
    """
    return shape * z - z.exp()


def test_moments_of_a_log_gamma():
    mean, covariance = moments(lambda z: log_gamma(z.squeeze(-1), 2.0), 1)
    assert float(mean) == pytest.approx(digamma(2), abs=1e-10)
    assert float(covariance) == pytest.approx(float(polygamma(1, 2)), abs=1e-10)


def test_moments_of_two_dependent_coordinates():
    """z = A g for independent log-gamma g: skewed, and correlated by A diag(trigamma) A^T."""
    mixing = torch.tensor([[1.0, 0.4], [-0.3, 0.8]], dtype=torch.float64)
    inverse, shapes = torch.linalg.inv(mixing), torch.tensor([1.5, 4.0], dtype=torch.float64)
    mean, covariance = moments(lambda z: log_gamma(z @ inverse.T, shapes).sum(-1), 2)
    expected = mixing @ torch.diag(torch.from_numpy(polygamma(1, shapes.numpy()))) @ mixing.T
    torch.testing.assert_close(mean, mixing @ torch.digamma(shapes), rtol=0, atol=1e-10)
    torch.testing.assert_close(covariance, expected, rtol=0, atol=1e-10)


def test_a_grid_in_the_wrong_place_is_widened():
    mean, covariance = moments(lambda z: -0.5 * (z.squeeze(-1) - 20).square(), 1)
    assert float(mean) == pytest.approx(20, abs=1e-11)
    assert float(covariance) == pytest.approx(1, abs=1e-12)


def test_a_second_mode_counts():
    """Equal parts of N(0, 1) and N(6, 1): mean 3, variance 1 + 9."""
    normal = partial(torch.distributions.Normal, scale=torch.ones((), dtype=torch.float64))
    both = [normal(torch.tensor(centre, dtype=torch.float64)) for centre in (0, 6)]
    mean, covariance = moments(lambda z: torch.logaddexp(*(one.log_prob(z.squeeze(-1)) for one in both)), 1)
    assert float(mean) == pytest.approx(3, abs=1e-12)
    assert float(covariance) == pytest.approx(10, abs=1e-11)


def test_linear_regression_has_the_conjugate_posterior():
    rng = np.random.default_rng(1)
    x = rng.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 200)
    y = torch.from_numpy(x @ [7.0, -3.0] + 3 * rng.standard_normal(200))
    problem, values = Problem(Linear(bias=False), Gaussian(), 2), hyper(prior_precision=0.01, noise_precision=0.1)
    exact = ConjugateReference().fit(problem, torch.from_numpy(x), y, values)
    truth = GridReference().fit(problem, torch.from_numpy(x), y, values)
    torch.testing.assert_close(truth.mean, exact.mean, rtol=1e-10, atol=0)
    torch.testing.assert_close(truth.covariance, exact.covariance, rtol=1e-9, atol=0)
    assert truth.hyper == {}


def test_the_bias_has_its_own_precision():
    """One weight and a bias whose prior is so strong that it is its posterior."""
    problem = Problem(Linear(), Bernoulli(), 1, prior=GaussianPrior(1e8))
    truth = GridReference().fit(problem, FEW_X[:, :1], FEW_Y, hyper(prior_precision=1.0))
    assert float(truth.covariance[1, 1]) == pytest.approx(1e-8, rel=1e-6)


@pytest.mark.parametrize("alpha", [1.0, 0.01])
def test_one_parameter_against_adaptive_quadrature(alpha):
    x = FEW_X[:, :1]
    truth = GridReference().fit(Problem(Linear(bias=False), Bernoulli(), 1), x, FEW_Y, hyper(prior_precision=alpha))

    def integral(power, centre=0.0):
        def integrand(t):
            return (t - centre) ** power * math.exp(log_joint(np.array([t]), x.numpy(), FEW_Y.numpy(), alpha))

        return sum(quad(integrand, a, b, epsabs=0, epsrel=1e-12, limit=200)[0] for a, b in ((-30, 5), (5, 120)))

    mean = integral(1) / integral(0)
    assert float(truth.mean) == pytest.approx(mean, rel=1e-10)
    assert float(truth.covariance) == pytest.approx(integral(2, mean) / integral(0), rel=1e-9)


def test_a_strongly_skewed_posterior():
    """Separable data and a weak prior: the mean is far from the mode."""
    truth = GridReference().fit(LOGISTIC, FEW_X, FEW_Y, hyper(prior_precision=0.01))
    mode, _ = laplace(truth.log_density, torch.zeros(2, dtype=torch.float64))
    assert float((truth.mean[0] - mode[0]) / truth.covariance[0, 0].sqrt()) > 0.8
    mean, covariance = raw_grid_moments((-50, -50), (110, 110), 1601, FEW_X.numpy(), FEW_Y.numpy(), 0.01)
    np.testing.assert_allclose(truth.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(truth.covariance, covariance, rtol=1e-8)


def test_a_grid_has_as_many_points_as_its_limit_and_no_more(monkeypatch):
    ends = torch.tensor([[1.0, 1.5], [0.5, 1.0]])
    monkeypatch.setattr(exact, "MOST_POINTS", 24)
    points = exact._grid(ends, 0.5)
    assert points.shape == (6, 4, 2)
    assert points[0, 0].tolist() == [-1.0, -0.5]
    assert points[-1, -1].tolist() == [1.5, 1.0]
    monkeypatch.setattr(exact, "MOST_POINTS", 23)
    with pytest.raises(InputError, match="for 23 points: raise prior_precision"):
        exact._grid(ends, 0.5)


def test_many_rows():
    x, y = logistic_data()
    truth = GridReference().fit(LOGISTIC, torch.from_numpy(x), torch.from_numpy(y), hyper(prior_precision=0.01))
    sd = truth.covariance.diagonal().sqrt()
    low, high = (truth.mean - 8 * sd).numpy(), (truth.mean + 10 * sd).numpy()
    mean, covariance = raw_grid_moments(low, high, 150, x, y, 0.01)
    np.testing.assert_allclose(truth.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(truth.covariance, covariance, rtol=1e-8)


def test_half_the_step_changes_nothing(monkeypatch):
    values = hyper(prior_precision=0.1)
    one = GridReference().fit(LOGISTIC, FEW_X, FEW_Y, values)
    monkeypatch.setattr(exact, "STEP", exact.STEP / 8)
    monkeypatch.setattr("bdl.models.problem.CHUNK", 2**14)
    other = GridReference().fit(LOGISTIC, FEW_X, FEW_Y, values)
    torch.testing.assert_close(one.mean, other.mean, rtol=1e-10, atol=0)
    torch.testing.assert_close(one.covariance, other.covariance, rtol=1e-9, atol=0)


def test_the_log_density_is_that_of_the_data_and_the_prior():
    truth = GridReference().fit(LOGISTIC, FEW_X, FEW_Y, hyper(prior_precision=0.3))
    theta = np.random.default_rng(2).standard_normal((7, 2)) * 4
    ours = truth.log_density(torch.from_numpy(theta)).numpy()
    np.testing.assert_allclose(np.diff(ours), np.diff(log_joint(theta, FEW_X.numpy(), FEW_Y.numpy(), 0.3)), rtol=1e-12)


def test_more_than_two_parameters_are_refused():
    GridReference().check(LOGISTIC)
    with pytest.raises(InputError, match="room for two parameters: the model has 3"):
        GridReference().check(Problem(Linear(), Bernoulli(), 2))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"values": {"prior_precision": 0.0}}, r"not finite at \[0.0, 0.0\]: check the data and the precisions"),
        ({"values": {"prior_precision": -1.0}}, "not finite"),
        ({"x": FEW_X * float("nan")}, "not finite"),
        ({"values": {"prior_precision": 1e-9}}, "too skewed, or not smooth enough, for 4194304 points"),
    ],
)
def test_bad_posteriors_are_refused(spoil, message):
    given = {"x": FEW_X, "values": {"prior_precision": 1.0}} | spoil
    with pytest.raises(InputError, match=message) as caught:
        GridReference().fit(LOGISTIC, given["x"], FEW_Y, hyper(**given["values"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (lambda z: torch.where(z.abs() < 1, 0.0, -torch.inf), "not smooth enough"),
        (lambda z: torch.where(z < 3, -(z**2), torch.nan), "not finite on the grid"),
        (lambda z: torch.where(z < 3, -(z**2), torch.inf), "not finite on the grid"),
        (lambda z: -z.abs().log1p(), "not smooth enough"),
    ],
)
def test_densities_that_no_grid_can_sum_are_refused(density, message):
    with pytest.raises(InputError, match=message):
        moments(lambda z: density(z.squeeze(-1)), 1)


@pytest.mark.slow  # draws 20,000 times
def test_draws_have_the_same_moments():
    """At most 5 z-scores, t with 99 degrees of freedom: one beyond 4.5 has a probability of 1e-4."""
    for package in ("bambi", "nutpie"):
        pytest.importorskip(package)
    x, y = logistic_data(n=300, theta=(3.0, -1.0))
    drawn = sample(Regression(x, y, np.full(2, 0.01)), Settings(draws=4000, tune=1000, sampler="nutpie"))
    certify(drawn).admit()
    truth = GridReference().fit(LOGISTIC, torch.from_numpy(x), torch.from_numpy(y), hyper(prior_precision=0.01))
    pooled, errors, lower = drawn.theta.reshape(-1, 2), monte_carlo_errors(drawn.theta), np.tril_indices(2)
    assert (errors.mean < 0.03 * np.sqrt(truth.covariance.diagonal().numpy())).all()
    assert abs((pooled.mean(0) - truth.mean.numpy()) / errors.mean).max() < 4.5
    assert abs(((np.cov(pooled.T) - truth.covariance.numpy()) / errors.covariance)[lower]).max() < 4.5
