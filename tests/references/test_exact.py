"""Exact references against closed forms, scikit-learn, quadrature by others, and what none of them can know."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import polygamma
from sklearn.linear_model import BayesianRidge
from torch.distributions import Normal

from bdl.data import load_dataset
from bdl.errors import InputError
from bdl.metrics.predictions import as_tensors
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.mode import laplace
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import StudentTPrior
from bdl.models.problem import Problem
from bdl.plan.planning import list_tasks
from bdl.plan.reference_posteriors import compute_truth
from bdl.references import REFERENCES, exact
from bdl.references.exact import BayesianRidgeReference, GridReference, integrate_moments
from bdl.spec import load_benchmark

LOGISTIC = Problem(LinearModel(bias=False), Bernoulli(), 2)
FEW_X = torch.tensor([[1, 0.2], [-0.5, -1], [2, 1], [-1, 0.3]], dtype=torch.float64)
FEW_Y = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64)
"""Separable: without a prior there is no posterior."""


def log_joint(theta, x, alpha):
    """log p(y | theta) + log p(theta) of logistic regression, up to a constant, in numpy: (..., D) -> (...)."""
    losses = np.logaddexp(0, (1 - 2 * FEW_Y.numpy()) * (theta @ x.numpy().T)).sum(-1)
    return -losses - 0.5 * alpha * np.square(theta).sum(-1)


def test_moments_of_two_dependent_coordinates():
    """z = A g for independent log-gamma g: skewed, and correlated by A diag(trigamma) A^T.

    Cut off 30 nats below the peak, in a tail e^(a z), moments lack about 30^2 e^-30 = 1e-10 at
    most.
    """
    mixing = torch.tensor([[1.0, 0.4], [-0.3, 0.8]], dtype=torch.float64)
    inverse, shapes = torch.linalg.inv(mixing), torch.tensor([1.5, 4.0], dtype=torch.float64)

    def log_density(z):
        g = z @ inverse.T
        return (shapes * g - g.exp()).sum(-1)

    mean, covariance = integrate_moments(log_density, 2)
    expected = mixing @ torch.diag(torch.from_numpy(polygamma(1, shapes.numpy()))) @ mixing.T
    torch.testing.assert_close(mean, mixing @ torch.digamma(shapes), rtol=0, atol=1e-10)
    torch.testing.assert_close(covariance, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("centres", "mean", "variance"), [((20, 20), 20, 1), ((0, 6), 3, 10)])
def test_a_grid_in_the_wrong_place_is_widened_and_a_second_mode_counts(centres, mean, variance):
    """Of equal parts of N(a, 1) and N(b, 1)."""
    laws = [
        Normal(torch.tensor(centre).double(), torch.tensor(1.0).double()) for centre in centres
    ]
    found = integrate_moments(
        lambda z: torch.logaddexp(*(law.log_prob(z.squeeze(-1)) for law in laws)), 1
    )
    assert [*map(float, found)] == pytest.approx([mean, variance], abs=1e-11)


def test_a_grid_of_one_parameter_against_adaptive_quadrature():
    problem, x, alpha = Problem(LinearModel(bias=False), Bernoulli(), 1), FEW_X[:, :1], 0.01
    truth = GridReference().fit(problem, x, FEW_Y, as_tensors({"prior_precision": alpha}))

    def integral(power, centre=0.0):
        def integrand(t):
            return (t - centre) ** power * math.exp(log_joint(np.array([t]), x, alpha))

        return sum(
            quad(integrand, a, b, epsabs=0, epsrel=1e-12, limit=200)[0]
            for a, b in ((-30, 5), (5, 120))
        )

    mean = integral(1) / integral(0)
    assert float(truth.mean) == pytest.approx(mean, rel=1e-10)
    assert float(truth.covariance) == pytest.approx(integral(2, mean) / integral(0), rel=1e-9)


def test_a_grid_for_a_strongly_skewed_posterior():
    """Separable data and a weak prior: the mean is far from the mode.

    By sums along the axes of the parameters.
    """
    truth = GridReference().fit(LOGISTIC, FEW_X, FEW_Y, as_tensors({"prior_precision": 0.01}))
    mode, _ = laplace(truth.log_density, torch.zeros(2, dtype=torch.float64))
    assert float((truth.mean[0] - mode[0]) / truth.covariance[0, 0].sqrt()) > 0.8
    axis = np.linspace(-50, 110, 801)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    density = log_joint(theta, FEW_X, 0.01)
    weights = np.exp(density - density.max())
    np.testing.assert_allclose(truth.mean, weights @ theta / weights.sum(), rtol=1e-9)
    np.testing.assert_allclose(
        truth.covariance, np.cov(theta.T, aweights=weights, ddof=0), rtol=1e-8
    )
    some = np.random.default_rng(2).standard_normal((7, 2)) * 4
    ours = truth.log_density(torch.from_numpy(some)).numpy()
    np.testing.assert_allclose(np.diff(ours), np.diff(log_joint(some, FEW_X, 0.01)), rtol=1e-12)


def test_a_grid_has_as_many_points_as_its_limit_and_no_more(monkeypatch):
    ends = torch.tensor([[1.0, 1.5], [0.5, 1.0]])
    monkeypatch.setattr(exact, "MOST_POINTS", 24)
    points = exact._lay_grid(ends, 0.5)
    assert points.shape == (6, 4, 2)
    assert points[0, 0].tolist() == [-1.0, -0.5]
    assert points[-1, -1].tolist() == [1.5, 1.0]
    monkeypatch.setattr(exact, "MOST_POINTS", 23)
    with pytest.raises(InputError, match="for 23 points: raise prior_precision"):
        exact._lay_grid(ends, 0.5)


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
        integrate_moments(lambda z: density(z.squeeze(-1)), 1)


RIDGE = Problem(LinearModel(), GaussianLikelihood(), 3)


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    x = x - x.mean(0)
    y = 5 + x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    return x, y + 0.3 * torch.randn(40, generator=generator, dtype=torch.float64)


def test_bayesian_ridge_is_scikit_learns_with_the_papers_names(data):
    x, y = data
    ridge = BayesianRidge().fit(x.numpy(), y.numpy())
    alpha, beta = ridge.lambda_, ridge.alpha_
    truth = BayesianRidgeReference().fit(RIDGE, x, y, {})
    assert truth.hyper == {"prior_precision": alpha, "noise_precision": beta}
    assert beta == pytest.approx(1 / 0.3**2, rel=0.5)
    assert truth.mean.tolist() == [*ridge.coef_, ridge.intercept_]
    # sigma_ is (beta X_c' X_c + alpha I)^-1: the covariance that the penalised weights have when x
    # is centred
    closed = torch.linalg.inv(beta * x.T @ x + alpha * torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(truth.covariance, closed, rtol=1e-9, atol=1e-12)


def test_a_penalised_bias_shrinks_by_what_the_formula_says(data):
    """With centred inputs the bias is N beta / (N beta + alpha) of the mean target."""
    free, shrunk = (
        BayesianRidgeReference(bias).fit(RIDGE, *data, {}) for bias in ("unpenalised", "penalised")
    )
    alpha, beta = (free.hyper[name] for name in ("prior_precision", "noise_precision"))
    assert shrunk.hyper == free.hyper
    assert float(shrunk.mean[3] / free.mean[3]) == pytest.approx(
        40 * beta / (40 * beta + alpha), rel=1e-10
    )
    torch.testing.assert_close(shrunk.mean[:3], free.mean[:3])
    torch.testing.assert_close(shrunk.covariance[:3, :3], free.covariance)


def test_constant_targets_are_refused(data):
    with pytest.raises(InputError, match="targets are constant"):
        BayesianRidgeReference().fit(RIDGE, data[0], torch.ones(40).double(), {})


REFUSED = {
    "conjugate": (Problem(LinearModel(), Bernoulli(), 3), "no closed form"),
    "bayesian-ridge": (
        Problem(LinearModel(bias=False), GaussianLikelihood(), 3),
        "give the linear model its bias",
    ),
    "grid": (Problem(LinearModel(), Bernoulli(), 2), "room for two parameters: the model has 3"),
    "exact-gaussian": (
        Problem(Mlp(), Bernoulli(), 3),
        "^reference exact-gaussian needs a linear model",
    ),
    "nuts": (
        Problem(LinearModel(), Categorical(), 3),
        "nuts samples linear models with a gaussian or bernoulli likeli",
    ),
    "network-mcmc": (
        Problem(Mlp(), GaussianLikelihood(), 3, prior=StudentTPrior()),
        "models with a gaussian prior",
    ),
}


@pytest.mark.parametrize("name", REFERENCES.names())
def test_what_a_reference_cannot_know_is_refused(name):
    problem, reason = REFUSED[name]
    with pytest.raises(InputError, match=reason):
        REFERENCES.build(name, {}).check(problem)


@pytest.mark.data
@pytest.mark.parametrize(
    ("dataset", "printed"),
    [
        ("energy", (0.0608, 0.1246)),
        ("boston", (0.2859, 0.0429)),
        ("concrete", (0.0254, 0.0101)),
        ("yacht", (0.0291, 0.0114)),
    ],
)
def test_precisions_are_those_of_the_thesis(dataset, printed):
    """Table 5.3 (Brownlie 2022), to the printed digits."""
    try:
        load_dataset(dataset)
    except InputError as error:
        pytest.skip(str(error))
    (cell,) = list_tasks(load_benchmark("uci-linear-posterior").select([dataset], ["vifa"]))
    found = compute_truth(cell, 0).hyper
    assert (
        tuple(round(found[name], 4) for name in ("prior_precision", "noise_precision")) == printed
    )
