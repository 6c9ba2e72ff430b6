"""Expectations over outputs against integrals by other means, and the law of the outputs against covariances."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from bdl.errors import InputError
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.linear import (
    check_glm,
    expectation,
    expected_derivatives,
    expected_log_likelihood,
    is_glm,
    outputs,
)
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, FactorAnalysis, FullGaussian, FullPrecision, LowRankPrecision

D, N = 4, 30
GENERATOR = torch.Generator().manual_seed(0)
X, LOC, SQUARE = (torch.randn(*shape, generator=GENERATOR).double() for shape in ((N, D - 1), (D,), (D, D)))
TRIL = SQUARE.tril(-1) + SQUARE.diagonal().abs().add(0.3).diag()
POSITIVE = LOC.square() + 0.1
GAUSSIANS = [
    DiagonalGaussian(LOC, POSITIVE),
    FullGaussian(LOC, TRIL),
    FullPrecision(LOC, TRIL),
    FactorAnalysis(LOC, SQUARE[:, :2], POSITIVE),
    LowRankPrecision(LOC, SQUARE[:, :2], POSITIVE),
]
LOGISTIC = Problem(Linear(), Bernoulli(), D - 1)


def logsigmoid(f):
    return -np.logaddexp(0, -f)


def sigmoid_slope(f):
    return special.expit(f) * special.expit(-f)


def integral(function, centre, spread):
    """E[function(f)] by adaptive quadrature, told where the density and the function bend."""
    bends = [(f - centre) / spread for f in (-30, -5, -1, 0, 1, 5, 30)]
    inner = sorted({*(-10.0, -6.0, -3.0, 0.0, 3.0, 6.0, 10.0), *(b for b in bends if abs(b) < 10)})
    return sum(
        integrate.quad(lambda z: stats.norm.pdf(z) * function(centre + spread * z), a, b, epsabs=1e-15, epsrel=1e-12)[0]
        for a, b in pairwise(inner)
    )


@pytest.mark.parametrize("spread", [1e-3, 0.3, 1, 3, 8, 15, 50, 200])
def test_the_log_likelihood_of_a_label_and_its_derivatives(spread):
    """At any spread, where Gauss-Hermite quadrature with 200 nodes has errors of up to 1e-2."""
    centres = [-40.0, -3.0, 0.0, 0.5, 7.0]
    found = expected_derivatives(
        torch.nn.functional.logsigmoid, torch.tensor(centres).double(), torch.full((5,), spread, dtype=torch.float64)
    )
    first, second = (lambda f: special.expit(-f)), (lambda f: -sigmoid_slope(f))
    for values, function in zip(found, (logsigmoid, first, second), strict=True):
        expected = [integral(function, centre, spread) for centre in centres]
        np.testing.assert_allclose(values, expected, rtol=1e-11, atol=1e-13 * max(1, spread))


def test_spreads_of_all_sizes_together():
    """The step is that of the widest; a spread of 0 is a point, also for the derivatives."""
    centre, spread = torch.tensor([[1, 1, -2], [0, 20, 0.5]], dtype=torch.float64)
    found = expected_derivatives(torch.nn.functional.logsigmoid, centre, spread)
    assert float(found.value[0]) == pytest.approx(logsigmoid(1.0), rel=1e-14)
    assert float(found.first[0]) == pytest.approx(special.expit(-1.0), rel=1e-14)
    assert float(found.second[0]) == pytest.approx(-sigmoid_slope(1.0), rel=1e-14)
    assert float(found.value[1]) == pytest.approx(integral(logsigmoid, 1.0, 20.0), rel=1e-12)


def test_polynomials():
    """E[f^4] = m^4 + 6 m^2 s^2 + 3 s^4."""
    centre, spread = torch.tensor([0.0, 2.0, -3.0]).double(), torch.tensor([1.0, 0.5, 4.0]).double()
    expected = centre**4 + 6 * centre**2 * spread**2 + 3 * spread**4
    torch.testing.assert_close(expectation(lambda f: f**4, centre, spread), expected, rtol=1e-12, atol=0)


def test_it_is_differentiable_in_the_spread():
    """dE[v(f)] / ds = s E[v''(f)] (Price)."""
    centre = torch.tensor([0.3, -2.0], dtype=torch.float64)
    spread = torch.tensor([0.7, 5.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(expectation(torch.nn.functional.logsigmoid, centre, spread).sum(), spread)
    second = expected_derivatives(torch.nn.functional.logsigmoid, centre, spread.detach()).second
    torch.testing.assert_close(slope, spread.detach() * second, rtol=1e-11, atol=0)


def test_many_rows_are_summed_in_pieces(monkeypatch):
    centre = torch.linspace(-5, 5, 100).double()
    whole = expectation(torch.sigmoid, centre, torch.ones_like(centre))
    monkeypatch.setattr("bdl.models.linear.VALUES_AT_ONCE", 700)
    torch.testing.assert_close(expectation(torch.sigmoid, centre, torch.ones_like(centre)), whole, rtol=1e-14, atol=0)


def test_a_finer_rule_gives_the_same():
    centre, spread = torch.linspace(-5, 5, 11).double(), torch.full((11,), 12.0, dtype=torch.float64)
    fine = expectation(torch.nn.functional.logsigmoid, centre, spread, finer=2)
    torch.testing.assert_close(expectation(torch.nn.functional.logsigmoid, centre, spread), fine, rtol=1e-13, atol=0)


def test_what_is_not_finite_stays_alone():
    """A descent that leaps out of all bounds gets no number there, and no endless sum."""
    found = expectation(torch.sigmoid, torch.zeros(2).double(), torch.tensor([1.0, math.nan]).double())
    assert float(found[0]) == pytest.approx(0.5, rel=1e-14)
    assert found[1].isnan()


@pytest.mark.parametrize("q", GAUSSIANS, ids=lambda q: type(q).__name__)
@pytest.mark.parametrize("bias", [True, False])
def test_the_law_of_outputs(q, bias):
    problem = Problem(Linear(bias), Bernoulli(), D - bias)
    x = X if bias else torch.cat([X, X[:, :1].square()], 1)
    design = problem.model.design(x)
    centre, spread = outputs(problem, q, x)
    torch.testing.assert_close(centre, design @ q.mean())
    torch.testing.assert_close(spread.square(), torch.einsum("ni,ij,nj->n", design, q.covariance(), design))


def test_a_gaussian_likelihood_has_a_closed_form():
    """E[log N(y; f, 1 / beta)] = log N(y; m, 1 / beta) - beta s^2 / 2."""
    hyper = {"noise_precision": torch.tensor(2.5, dtype=torch.float64)}
    q, y = GAUSSIANS[1], X[:, 0] - 1
    centre, spread = outputs(LOGISTIC, q, X)
    expected = stats.norm.logpdf(y, centre, 2.5**-0.5).sum() - 0.5 * 2.5 * float(spread.square().sum())
    found = expected_log_likelihood(Problem(Linear(), Gaussian(), D - 1), q, X, y, hyper)
    assert float(found) == pytest.approx(expected, rel=1e-12)


def test_it_is_what_samples_average_to():
    """Within four standard errors of 20,000 draws."""
    q, y = GAUSSIANS[3], (X[:, 0] > 0).double()
    noise = torch.randn(20_000, q.noise_dim, generator=torch.Generator().manual_seed(1)).double()
    f = q.sample(noise) @ LOGISTIC.model.design(X).T
    drawn = torch.nn.functional.logsigmoid((2 * y - 1) * f).sum(1)
    found = expected_log_likelihood(LOGISTIC, q, X, y, {})
    assert float(found) == pytest.approx(float(drawn.mean()), abs=4 * float(drawn.std()) / math.sqrt(20_000))


@pytest.mark.parametrize(
    "problem",
    [Problem(Mlp(), Bernoulli(), D), Problem(Linear(), Categorical(), D, 3)],
    ids=["a network", "three outputs"],
)
def test_what_has_no_quadrature_is_refused(problem):
    assert is_glm(LOGISTIC)
    assert not is_glm(problem)
    check_glm("this", LOGISTIC)
    with pytest.raises(InputError, match=r"^this needs a linear model with one output: its ELBO is a sum of integrals"):
        check_glm("this", problem)
