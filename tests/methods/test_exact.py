"""The best Gaussians, of any covariance, of independent parameters and of few factors: conditions of an optimum.

That they are the exact posterior of a linear regression, where the family has it, is in the
contract.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeResult
from scipy.stats import ortho_group

from bdl.errors import InputError
from bdl.methods import exact_gaussian, fa_optimum
from bdl.methods.conjugate import Conjugate
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.methods.fa_optimum import (
    FactorAnalysisElbo,
    FactorAnalysisOptimum,
    closest_factor_analysis,
)
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.linear import expected_log_likelihood, prior_precision
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, FactorAnalysis, FullGaussian, kl_divergence

from .targets import assert_same, doubles, fit, linear_gaussian

RNG = np.random.default_rng(0)
ROWS, DIM = 80, 6
X = torch.from_numpy(RNG.standard_normal((ROWS, DIM)) + 0.8 * RNG.standard_normal((ROWS, 1)))
Y = torch.from_numpy(
    (RNG.random(ROWS) < 1 / (1 + np.exp(-X.numpy() @ [1, -2, 0.5, 0, 0, 1]))).astype(float)
)
WEAK, MIDDLE, STRONG = (doubles(prior_precision=alpha) for alpha in (1e-5, 0.5, 3.0))


def logistic(x, bias_precision=1e-5):
    return Problem(LinearModel(), Bernoulli(), x.shape[1], prior=GaussianPrior(bias_precision))


def separable(rows=60):
    """Two rows alone have a feature, and the same label: nothing but a wide prior bounds its coefficient."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, 3))
    x[:, 2] = 0
    x[:2, 2] = 0.1
    labels = rng.random(rows) < 1 / (1 + np.exp(-x[:, 0]))
    labels[:2] = True
    return torch.from_numpy(x), torch.from_numpy(labels.astype(float))


def assert_stationary(q, problem, x, y, given):
    """The gradient of the negative ELBO vanishes, by autograd: of mean, lower factor, or logarithms of variances."""
    at = type(q)(*(part.clone().requires_grad_() for part in q))
    gamma = prior_precision(problem, given)
    prior = DiagonalGaussian(torch.zeros_like(gamma), gamma.reciprocal())
    value = kl_divergence(at, prior) - expected_log_likelihood(problem, at, x, y, given)
    slopes = dict(zip(q._fields, torch.autograd.grad(value, list(at)), strict=True))
    slopes = {
        name: slope * getattr(q, name) if name in ("var", "diag") else slope
        for name, slope in slopes.items()
    }
    if isinstance(q, FullGaussian):
        slopes["scale_tril"] = slopes["scale_tril"].tril()
    limit = 1e-3 if isinstance(q, FactorAnalysis) else 1e-8 * float(value.detach())
    assert float(torch.cat([slope.flatten() for slope in slopes.values()]).norm()) < limit


@pytest.mark.parametrize("structure", ["full", "diagonal"])
@pytest.mark.parametrize(
    ("x", "y", "given"),
    [
        pytest.param(X, Y, WEAK, id="wide"),
        pytest.param(X, Y, STRONG, id="narrow"),
        pytest.param(*separable(), WEAK, id="separable"),
        pytest.param(
            torch.cat([X, torch.zeros(ROWS, 1)], 1), Y, STRONG, id="one constant input, as in a1a"
        ),
    ],
)
def test_the_gradient_vanishes_at_the_best_gaussian(structure, x, y, given):
    problem = logistic(x)
    assert_stationary(ExactGaussian(structure).fit(problem, x, y, given), problem, x, y, given)


def test_gaussian_targets_give_the_mean_field_closed_form():
    """The mean of the exact posterior, and the reciprocals of the diagonal of its precision."""
    target = linear_gaussian(bias_precision=0.01)
    precision = torch.linalg.inv(target.posterior.covariance())
    expected = DiagonalGaussian(target.posterior.mean(), precision.diagonal().reciprocal())
    assert_same(fit(ExactGaussian("diagonal"), target), expected, rtol=1e-11)


def test_a_wide_posterior_is_found_where_full_steps_diverge(monkeypatch):
    """An output deviates by more than 10, and with rho = 1 throughout the climb ends elsewhere."""
    x, y = separable()
    problem = logistic(x)
    q, design = ExactGaussian().fit(problem, x, y, WEAK), problem.model.design(x)
    assert float(torch.einsum("ni,ij,nj->n", design, q.covariance(), design).max().sqrt()) > 10
    full_steps = exact_gaussian._step_towards
    monkeypatch.setattr(exact_gaussian, "_step_towards", lambda now, share: full_steps(now, 1.0))
    with pytest.raises(InputError, match="exact-gaussian has not converged"):
        ExactGaussian().fit(problem, x, y, WEAK)


def test_data_without_an_optimum_are_refused():
    x = X.index_fill(0, torch.tensor(0), torch.nan)
    with pytest.raises(InputError, match=r"^exact-gaussian has not converged .*check the data$"):
        ExactGaussian().fit(logistic(x), x, Y, WEAK)


@pytest.mark.parametrize(
    ("prior", "noise", "name"), [(0, 1, "prior"), (-1, 1, "prior"), (1, float("nan"), "noise")]
)
def test_a_precision_that_cannot_be_is_refused(prior, noise, name):
    ones, given = (
        torch.ones(3, 1, dtype=torch.float64),
        doubles(prior_precision=prior, noise_precision=noise),
    )
    with pytest.raises(InputError, match=f"{name}_precision is .*: give a positive number"):
        Conjugate().fit(Problem(LinearModel(), GaussianLikelihood(), 1), ones, ones[:, 0], given)


def test_the_closest_of_few_factors_recovers_a_member_of_the_family():
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    diag = torch.rand(8, generator=generator, dtype=torch.float64) + 0.1
    exact = FactorAnalysis(torch.arange(8, dtype=torch.float64), factors, diag)
    found = closest_factor_analysis(exact.mean(), torch.linalg.inv(exact.covariance()), 2)
    assert_same(found, exact, rtol=1e-4, atol=1e-5)
    assert float(kl_divergence(found, exact)) < 1e-8


@pytest.mark.parametrize(("latent_dim", "slack"), [(1, 1e-9), (2, 5e-6)])
def test_the_closest_of_few_factors_is_not_beaten_nearby(latent_dim, slack):
    """At a minimum of KL(q || p), no small change of F or psi lowers it.

    With two factors a psi goes to zero. The descent sees the determinant in the form of factors,
    which then has lost digits, and ends within 2e-6 nats of the minimum; the divergence here is
    that of dense covariances, which is exact.
    """
    rotation, values = ortho_group.rvs(6, random_state=0), np.geomspace(1e-3, 1, 6)
    mean, covariance = (
        torch.zeros(6, dtype=torch.float64),
        torch.from_numpy(rotation * values @ rotation.T),
    )
    exact = FullGaussian.from_covariance(mean, 0.5 * (covariance + covariance.T))
    found = closest_factor_analysis(mean, torch.linalg.inv(covariance), latent_dim)

    def divergence(factors, diag):
        dense = FactorAnalysis(mean, factors, diag).covariance()
        return kl_divergence(FullGaussian.from_covariance(mean, dense), exact)

    floor = divergence(found.factors, found.diag)
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        change = 1e-3 * torch.randn(6, 1 + latent_dim, generator=generator, dtype=torch.float64)
        factors = found.factors + found.diag.sqrt().unsqueeze(1) * change[:, 1:]
        assert divergence(factors, found.diag * change[:, 0].exp()) > floor - slack


@pytest.mark.parametrize("rank", [1, 2])
def test_the_best_elbo_of_a_linear_regression_is_closest_to_its_posterior(rank):
    y = X @ torch.tensor([1.0, 0.3, -1.0, 2.0, 0.0, 0.5], dtype=torch.float64) + 0.2
    problem, given = (
        Problem(LinearModel(bias=False), GaussianLikelihood(), DIM),
        MIDDLE | doubles(noise_precision=2.0),
    )
    found, expected = (
        kind(rank).fit(problem, X, y, given)
        for kind in (FactorAnalysisElbo, FactorAnalysisOptimum)
    )
    # the search ends where derivatives are small, and its last step depends on how the processor
    # rounds
    torch.testing.assert_close(found.mean(), expected.mean(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.covariance(), expected.covariance(), rtol=1e-4, atol=1e-6)


def test_the_best_elbo_of_all_factors_is_that_of_the_best_gaussian():
    """DIM factors and a diagonal reach every covariance of DIM parameters, and almost every one of DIM + 1."""
    problem = logistic(X, None)
    found, exact = (
        FactorAnalysisElbo(DIM).fit(problem, X, Y, MIDDLE),
        ExactGaussian().fit(problem, X, Y, MIDDLE),
    )
    assert_same(found, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 3])
def test_the_gradient_vanishes_at_the_best_elbo_of_few_factors(rank):
    problem = logistic(X)
    assert_stationary(FactorAnalysisElbo(rank).fit(problem, X, Y, MIDDLE), problem, X, Y, MIDDLE)


@pytest.mark.parametrize("steep", [0, 1, 5, 6])
def test_a_failed_line_search_is_taken_up_again_where_it_ended(monkeypatch, steep):
    """The best of two descents is, five times at most.

    Each descent of the stub goes down by one.
    """
    begun = []

    def minimise(cost, start, options, bounds):
        begun.append(start[0])
        return OptimizeResult(
            x=start - 1, fun=start[0], jac=np.array([1.0 if len(begun) < 2 + steep else 1e-4])
        )

    monkeypatch.setattr(fa_optimum, "minimise", minimise)
    starts = [torch.tensor([value], dtype=torch.float64) for value in (7.0, 5.0)]
    if steep <= 5:
        assert fa_optimum.minimise_from_starts(lambda x: x, starts, []) == 4 - steep
    else:
        with pytest.raises(InputError, match="fa-elbo has not converged"):
            fa_optimum.minimise_from_starts(lambda x: x, starts, [])
    assert begun == [7, *range(5, 4 - min(steep, 5), -1)]
