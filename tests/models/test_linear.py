"""Generalised linear models: expectations against integrals by other means, the bound, and the evidence."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from sklearn.linear_model import BayesianRidge
from torch.nn.functional import logsigmoid

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.linear import (
    Spectrum,
    best_precisions,
    check_glm,
    elbo,
    expectation,
    expected_derivatives,
    expected_log_likelihood,
    log_evidence,
    output_moments,
)
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import (
    DiagonalGaussian,
    FactorAnalysis,
    FullGaussian,
    FullPrecision,
    LowRankPrecision,
    kl_divergence,
)

D, N = 4, 30
GENERATOR = torch.Generator().manual_seed(0)
X, LOC, SQUARE = (
    torch.randn(*shape, generator=GENERATOR).double() for shape in ((N, D - 1), (D,), (D, D))
)
TRIL = SQUARE.tril(-1) + SQUARE.diagonal().abs().add(0.3).diag()
POSITIVE = LOC.square() + 0.1
GAUSSIANS = [
    DiagonalGaussian(LOC, POSITIVE),
    FullGaussian(LOC, TRIL),
    FullPrecision(LOC, TRIL),
    FactorAnalysis(LOC, SQUARE[:, :2], POSITIVE),
    LowRankPrecision(LOC, SQUARE[:, :2], POSITIVE),
]
LOGISTIC = Problem(LinearModel(), Bernoulli(), D - 1, prior=GaussianPrior(0.01))


def log_sigmoid(f):
    return -np.logaddexp(0, -f)


def sigmoid_slope(f):
    return special.expit(f) * special.expit(-f)


def integral(function, centre, spread):
    """E[function(f)] by adaptive quadrature, told where the density and the function bend."""
    bends = [(f - centre) / spread for f in (-30, -5, -1, 0, 1, 5, 30)]
    inner = sorted({*(-10.0, -6.0, -3.0, 0.0, 3.0, 6.0, 10.0), *(b for b in bends if abs(b) < 10)})
    return sum(
        integrate.quad(
            lambda z: stats.norm.pdf(z) * function(centre + spread * z),
            a,
            b,
            epsabs=1e-15,
            epsrel=1e-12,
        )[0]
        for a, b in pairwise(inner)
    )


@pytest.mark.parametrize("spread", [1e-3, 1, 8, 50, 200])
def test_the_log_likelihood_of_a_label_and_its_derivatives(spread):
    """At any spread, where Gauss-Hermite quadrature with 200 nodes has errors of up to 1e-2."""
    centres = [-40.0, 0.0, 0.5, 7.0]
    found = expected_derivatives(
        logsigmoid, torch.tensor(centres).double(), torch.full((4,), spread, dtype=torch.float64)
    )
    first, second = (lambda f: special.expit(-f)), (lambda f: -sigmoid_slope(f))
    for values, function in zip(found, (log_sigmoid, first, second), strict=True):
        expected = [integral(function, centre, spread) for centre in centres]
        np.testing.assert_allclose(values, expected, rtol=1e-11, atol=1e-13 * max(1, spread))


def test_spreads_of_all_sizes_together():
    """The step is that of the widest; a spread of 0 is a point, also for the derivatives."""
    found = expected_derivatives(
        logsigmoid, *torch.tensor([[1, 1, -2], [0, 20, 0.5]], dtype=torch.float64)
    )
    at_a_point = [float(part[0]) for part in found]
    assert at_a_point == pytest.approx(
        [log_sigmoid(1.0), special.expit(-1.0), -sigmoid_slope(1.0)], rel=1e-14
    )
    assert float(found.value[1]) == pytest.approx(integral(log_sigmoid, 1.0, 20.0), rel=1e-12)


def test_polynomials_in_pieces_or_not(monkeypatch):
    """E[f^4] = m^4 + 6 m^2 s^2 + 3 s^4."""
    centre, spread = torch.linspace(-5, 5, 100).double(), torch.linspace(0.5, 4, 100).double()
    expected = centre**4 + 6 * centre**2 * spread**2 + 3 * spread**4
    for at_once in (1 << 22, 700):
        monkeypatch.setattr("bdl.models.linear.VALUES_AT_ONCE", at_once)
        torch.testing.assert_close(
            expectation(lambda f: f**4, centre, spread), expected, rtol=1e-12, atol=0
        )


def test_expectations_are_differentiable_in_the_spread():
    """dE[v(f)] / ds = s E[v''(f)] (Price). A finer rule gives the same."""
    centre = torch.tensor([0.3, -2.0], dtype=torch.float64)
    spread = torch.tensor([0.7, 5.0], dtype=torch.float64, requires_grad=True)
    values = expectation(logsigmoid, centre, spread)
    (slope,) = torch.autograd.grad(values.sum(), spread)
    second = expected_derivatives(logsigmoid, centre, spread.detach()).second
    torch.testing.assert_close(slope, spread.detach() * second, rtol=1e-11, atol=0)
    torch.testing.assert_close(
        expectation(logsigmoid, centre, spread, finer=2), values, rtol=1e-13, atol=0
    )


def test_what_is_not_finite_stays_alone():
    """A descent that leaps out of all bounds gets no number there, and no endless sum."""
    found = expectation(
        torch.sigmoid, torch.zeros(2).double(), torch.tensor([1.0, math.nan]).double()
    )
    assert float(found[0]) == pytest.approx(0.5, rel=1e-14)
    assert found[1].isnan()


@pytest.mark.parametrize("q", GAUSSIANS, ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("bias", [True, False])
def test_the_law_of_outputs(q, bias):
    problem = Problem(LinearModel(bias), Bernoulli(), D - bias)
    x = X if bias else torch.cat([X, X[:, :1].square()], 1)
    design = problem.model.design(x)
    centre, spread = output_moments(problem, q, x)
    torch.testing.assert_close(centre, design @ q.mean())
    torch.testing.assert_close(
        spread.square(), torch.einsum("ni,ij,nj->n", design, q.covariance(), design)
    )


def test_a_gaussian_likelihood_has_a_closed_form():
    """E[log N(y; f, 1 / beta)] = log N(y; m, 1 / beta) - beta s^2 / 2."""
    hyper = {"noise_precision": torch.tensor(2.5, dtype=torch.float64)}
    q, y = GAUSSIANS[1], X[:, 0] - 1
    centre, spread = output_moments(LOGISTIC, q, X)
    expected = stats.norm.logpdf(y, centre, 2.5**-0.5).sum() - 0.5 * 2.5 * float(
        spread.square().sum()
    )
    found = expected_log_likelihood(
        Problem(LinearModel(), GaussianLikelihood(), D - 1), q, X, y, hyper
    )
    assert float(found) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "problem",
    [Problem(Mlp(), Bernoulli(), D), Problem(LinearModel(), Categorical(), D, 3)],
    ids=["a network", "three outputs"],
)
def test_what_has_no_quadrature_is_refused(problem):
    check_glm("this", LOGISTIC)
    with pytest.raises(
        InputError,
        match=r"^this needs a linear model with one output: its ELBO is a sum of integrals",
    ):
        check_glm("this", problem)


def test_derivatives_of_the_bound():
    """By the mean it is the slope; by L with S = L L^T it is tril(L^{-T} - H L)."""
    hyper, y = (
        {"prior_precision": torch.tensor(2.0, dtype=torch.float64)},
        (X[:, 0] > 0.2).double(),
    )
    q = FullGaussian(LOC.clone().requires_grad_(), TRIL.clone().requires_grad_())
    prior = DiagonalGaussian(torch.zeros(D).double(), torch.tensor([0.5, 0.5, 0.5, 100]).double())
    value = expected_log_likelihood(LOGISTIC, q, X, y, hyper) - kl_divergence(q, prior)
    by_mean, by_factor = torch.autograd.grad(value, list(q))
    found = elbo(LOGISTIC, FullGaussian(LOC, TRIL), X, y, hyper)
    torch.testing.assert_close(found.value, value.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(found.slope, by_mean, rtol=1e-11, atol=1e-11)
    expected = (torch.linalg.inv(TRIL).mT - found.curvature @ TRIL).tril()
    torch.testing.assert_close(by_factor.tril(), expected, rtol=1e-10, atol=1e-10)


RNG = np.random.default_rng(0)
DESIGN = RNG.standard_normal((60, 4))
Y = DESIGN @ [1.0, -0.5, 0.2, 0.0] + 0.7 * RNG.standard_normal(60)


@pytest.mark.parametrize("rows", [60, 3])
def test_the_evidence_is_the_density_of_the_targets(rows):
    x, y = DESIGN[:rows], Y[:rows]
    expected = stats.multivariate_normal(cov=x @ x.T / 2.0 + np.eye(rows) / 5.0).logpdf(y)
    assert log_evidence(Spectrum.of(x, y), 2.0, 5.0) == pytest.approx(expected, rel=1e-12)


def test_the_maximum_of_the_evidence_is_that_of_scikit_learn():
    flat = {"alpha_1": 0, "alpha_2": 0, "lambda_1": 0, "lambda_2": 0}
    ridge = BayesianRidge(fit_intercept=False, tol=1e-12, max_iter=10_000, **flat).fit(DESIGN, Y)
    np.testing.assert_allclose(
        best_precisions(DESIGN, Y), (ridge.lambda_, ridge.alpha_), rtol=1e-4
    )


def test_a_precision_that_is_given_stays():
    alpha, beta = best_precisions(DESIGN, Y, noise_precision=3.0)
    found = Spectrum.of(DESIGN, Y)
    assert beta == pytest.approx(3.0)
    assert log_evidence(found, alpha, 3.0) >= max(
        log_evidence(found, alpha * f, 3.0) for f in (0.99, 1.01)
    )
    assert best_precisions(DESIGN, Y, 2.0, 3.0) == pytest.approx((2.0, 3.0))


@pytest.mark.parametrize("y", [DESIGN @ [1.0, 1.0, 1.0, 1.0], np.zeros(60)])
def test_targets_without_noise_have_a_finite_precision(y):
    assert np.isfinite(best_precisions(DESIGN, y)).all()
