"""The best Gaussian: closed forms where there are, the conditions of an optimum where there are none."""

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.methods import exact_gaussian
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.methods.fa_optimum import FactorAnalysisElbo
from bdl.models.likelihoods import Bernoulli, Categorical
from bdl.models.linear import elbo, expected_log_likelihood, prior_precision
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, FactorAnalysis, FullGaussian, kl_divergence

from .targets import fit, linear_gaussian

RNG = np.random.default_rng(0)
ROWS, DIM = 80, 6
X = torch.from_numpy(RNG.standard_normal((ROWS, DIM)) + 0.8 * RNG.standard_normal((ROWS, 1)))
Y = torch.from_numpy((RNG.random(ROWS) < 1 / (1 + np.exp(-X.numpy() @ [1, -2, 0.5, 0, 0, 1]))).astype(float))
PROBLEM = Problem(Linear(), Bernoulli(), DIM, prior=GaussianPrior(1e-5))
STRUCTURES = ["full", "diagonal"]


def hyper(alpha):
    return {"prior_precision": torch.tensor(alpha, dtype=torch.float64)}


WEAK = hyper(1e-5)


def separable(rows=60):
    """Two rows alone have a feature, and the same label: nothing but a wide prior bounds its coefficient."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, 3))
    x[:, 2] = 0
    x[:2, 2] = 0.1
    labels = rng.random(rows) < 1 / (1 + np.exp(-x[:, 0]))
    labels[:2] = True
    return torch.from_numpy(x), torch.from_numpy(labels.astype(float))


def negative_elbo(q, x, y, given):
    """Differentiable, unlike `bdl.models.linear`."""
    problem = Problem(Linear(), Bernoulli(), x.shape[1], prior=PROBLEM.prior)
    gamma = prior_precision(problem, given)
    prior = DiagonalGaussian(torch.zeros_like(gamma), gamma.reciprocal())
    return kl_divergence(q, prior) - expected_log_likelihood(problem, q, x, y, given)


def fit_target(structure):
    target = linear_gaussian(bias_precision=0.01)
    return target, fit(ExactGaussian(structure), target)


def test_gaussian_targets_give_the_exact_posterior():
    target, found = fit_target("full")
    torch.testing.assert_close(found.mean(), target.posterior.mean(), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(found.covariance(), target.posterior.covariance(), rtol=1e-11, atol=1e-12)


def test_gaussian_targets_give_the_mean_field_closed_form():
    """The mean of the exact posterior, and the reciprocals of the diagonal of its precision."""
    target, found = fit_target("diagonal")
    assert isinstance(found, DiagonalGaussian)
    torch.testing.assert_close(found.mean(), target.posterior.mean(), rtol=1e-11, atol=1e-12)
    precision = torch.linalg.inv(target.posterior.covariance())
    torch.testing.assert_close(found.variance(), precision.diagonal().reciprocal(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize(
    ("x", "y", "given"), [(X, Y, WEAK), (X, Y, hyper(3.0)), (*separable(), WEAK)], ids=["wide", "narrow", "separable"]
)
def test_the_gradient_vanishes(structure, x, y, given):
    """By automatic differentiation, of mean and Cholesky factor, or variances in units of themselves."""
    problem = Problem(Linear(), Bernoulli(), x.shape[1], prior=PROBLEM.prior)
    q = ExactGaussian(structure).fit(problem, x, y, given)
    at = type(q)(*(part.clone().requires_grad_() for part in q))
    value = negative_elbo(at, x, y, given)
    by_mean, by_scale = torch.autograd.grad(value, list(at))
    by_scale = by_scale * q.var if isinstance(q, DiagonalGaussian) else by_scale.tril()
    assert float(torch.cat([by_mean, by_scale.flatten()]).norm()) < 1e-8 * float(value.detach())


def test_a_wide_posterior_is_found_where_full_steps_diverge(monkeypatch):
    """An output deviates by more than 10, and with rho = 1 throughout the climb ends elsewhere."""
    x, y = separable()
    problem = Problem(Linear(), Bernoulli(), 3, prior=PROBLEM.prior)
    q = ExactGaussian().fit(problem, x, y, WEAK)
    design = problem.model.design(x)
    assert float(torch.einsum("ni,ij,nj->n", design, q.covariance(), design).max().sqrt()) > 10
    full_steps = exact_gaussian._ahead
    monkeypatch.setattr(exact_gaussian, "_ahead", lambda now, share: full_steps(now, 1.0))
    with pytest.raises(InputError, match="exact-gaussian has not converged"):
        ExactGaussian().fit(problem, x, y, WEAK)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_nearby_posteriors_are_worse(structure):
    """Changes by a hundredth of a standard deviation cost some 1e-4 nats, in whatever direction."""
    q = ExactGaussian(structure).fit(PROBLEM, X, Y, WEAK)
    best = float(elbo(PROBLEM, q, X, Y, WEAK).value)
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        signs = torch.randn(DIM + 1, generator=generator).double().sign()
        moved = q._replace(loc=q.sample(0.01 * signs))
        scaled = type(q)(q[0], q[1] * (1 + 0.01 * signs))
        for other in (moved, scaled):
            assert 1e-5 < best - float(elbo(PROBLEM, other, X, Y, WEAK).value) < 1e-2


def test_the_best_of_all_is_better_than_the_best_of_few_factors():
    """And those are better than independent parameters; nats."""
    given = hyper(0.5)
    problem = Problem(Linear(), Bernoulli(), DIM)
    fits = [
        ExactGaussian("diagonal").fit(problem, X, Y, given),
        FactorAnalysisElbo(1).fit(problem, X, Y, given),
        FactorAnalysisElbo(3).fit(problem, X, Y, given),
        ExactGaussian("full").fit(problem, X, Y, given),
    ]
    values = [float(elbo(problem, q, X, Y, given).value) for q in fits]
    assert values == sorted(values)
    assert isinstance(fits[1], FactorAnalysis)
    assert isinstance(fits[3], FullGaussian)


def test_a_feature_that_never_varies_keeps_its_prior():
    """As in a1a: its coefficient is 0, with the prior's variance, and nothing else changes."""
    wide = torch.cat([X, torch.zeros(ROWS, 1).double()], 1)
    given = hyper(2.8072)
    found = ExactGaussian().fit(Problem(Linear(), Bernoulli(), DIM + 1, prior=PROBLEM.prior), wide, Y, given)
    without = ExactGaussian().fit(PROBLEM, X, Y, given)
    kept = torch.tensor([*range(DIM), DIM + 1])
    assert float(found.variance()[DIM]) == pytest.approx(1 / 2.8072, rel=1e-12)
    assert abs(float(found.mean()[DIM])) < 1e-12
    torch.testing.assert_close(found.mean()[kept], without.mean(), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.covariance()[kept][:, kept], without.covariance(), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "problem", [Problem(Mlp(), Bernoulli(), DIM), Problem(Linear(), Categorical(), DIM, 3)], ids=["network", "classes"]
)
def test_what_has_no_quadrature_is_refused(problem):
    with pytest.raises(InputError, match=r"^exact-gaussian needs a linear model with one output"):
        ExactGaussian().check(problem)


def test_no_optimum_is_refused():
    """A value that is not a number, on the first row."""
    x = X.clone()
    x[0, 0] = torch.nan
    with pytest.raises(InputError, match=r"^exact-gaussian has not converged .*check the data$"):
        ExactGaussian().fit(PROBLEM, x, Y, WEAK)
