"""Importance sampling and moment matching: conjugate closed forms, a grid, and where the weights are known."""

import numpy as np
import pytest
import torch
from scipy import stats

from bdl.errors import InputError
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.methods.importance_sampling import ImportanceSampling, MomentMatching, draw_student_t
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.posteriors import FullGaussian
from bdl.references.exact import GridReference

from .targets import doubles, fit, linear_gaussian, model_units

LOGISTIC = Problem(LinearModel(bias=False), Bernoulli(), 2)
METHODS = {
    "prior": ImportanceSampling(200_000, "prior"),
    "laplace": ImportanceSampling(20_000, "laplace", 5),
    "variational": ImportanceSampling(20_000, "variational", 30),
}


@pytest.mark.parametrize("proposal", METHODS)
def test_moments_and_evidence_of_a_linear_regression(proposal):
    """Within 4.5 standard errors by the delta method, of the means, the second moments and the evidence.

    The evidence is that of y ~ N(0, X diag(1 / alpha) X^T + I / beta).
    """
    target = linear_gaussian(n=5, bias_precision=0.2)
    q, exact = fit(METHODS[proposal], target).check(), target.posterior
    assert q.effective_size() > 1000
    whitened = exact.whiten(q.draws - exact.mean())
    products = whitened.unsqueeze(1) * whitened.unsqueeze(2) - torch.eye(
        3
    )  # of mean 0, as the whitened draws
    for values in (whitened, products.reshape(-1, 9)):
        error = (q.weights().square() @ values.square()).sqrt()
        assert (q.weights() @ values / error).abs().max() < 4.5
    hyper = model_units(target)
    covariance = target.design / target.problem.prior_precision(hyper) @ target.design.T
    covariance += torch.eye(5) / hyper["noise_precision"]
    evidence = stats.multivariate_normal(cov=covariance.numpy()).logpdf(target.data.y.numpy())
    error = float((1 / q.effective_size() - 1 / len(q.draws)).sqrt())
    assert float(q.log_evidence()) == pytest.approx(evidence, abs=4.5 * error)


def test_one_draw_counts_if_the_data_say_much_more_than_the_prior():
    """Its likelihood is e^1000 times that of the next.

    No weight overflows, and the mean is that draw.
    """
    x, problem = (
        torch.ones(1000, 2, dtype=torch.float64),
        Problem(LinearModel(bias=False), GaussianLikelihood(), 2),
    )
    given = doubles(prior_precision=1.0, noise_precision=1e4)
    q = ImportanceSampling(20, "prior").fit(problem, x, 9 * x[:, 0], given, 0).check()
    assert float(q.effective_size()) == pytest.approx(1, abs=1e-9)
    best = (q.draws.sum(1) - 9).abs().argmin()
    torch.testing.assert_close(q.mean(), q.draws[best])


@pytest.mark.parametrize("degrees", [1, 7])
def test_student_has_its_density_and_its_law(degrees):
    """The density by scipy's formula, and the law of a direction by Kolmogorov and Smirnov's test."""
    tril = torch.tensor([[2.0, 0.0], [-1.0, 0.5]], dtype=torch.float64)
    shape = FullGaussian(torch.tensor([3.0, -4.0], dtype=torch.float64), tril)
    theta, log_density = draw_student_t(shape, degrees, 5000, torch.Generator().manual_seed(0))
    scipy = stats.multivariate_t(shape.loc.numpy(), shape.covariance().numpy(), df=degrees)
    np.testing.assert_allclose(log_density, scipy.logpdf(theta.numpy()), rtol=1e-10)
    direction = torch.tensor([0.3, 1.7], dtype=torch.float64)
    scaled = (theta - shape.loc) @ direction / (direction @ shape.covariance() @ direction).sqrt()
    assert stats.kstest(scaled.numpy(), stats.t(degrees).cdf).pvalue > 1e-5


@pytest.mark.parametrize("proposal", ["prior", "laplace"])
def test_data_that_are_not_finite_are_refused(proposal):
    x = torch.full((3, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(InputError, match="not finite") as caught:
        ImportanceSampling(10, proposal).fit(
            LOGISTIC, x, torch.ones(3).double(), doubles(prior_precision=1.0), 0
        )
    assert "\n" not in str(caught.value)


def test_moments_of_a_skewed_posterior():
    """Of separable data.

    The mean is nearer to the truth than that of the best ELBO, the covariance wider, as its.

    With 200,000 draws, of which more than 40,000 count, a mean has an error of 0.005 standard
    deviations. The errors of products are larger than those of a Gaussian's, about 0.02 of the
    covariance. The variational proposal is nearer.
    """
    x = torch.tensor([[1, 0.2], [-0.5, -1], [2, 1], [-1, 0.3]], dtype=torch.float64)
    data = (
        LOGISTIC,
        x,
        torch.tensor([1.0, 0, 1, 0], dtype=torch.float64),
        doubles(prior_precision=0.01),
    )
    truth, narrow = GridReference().fit(*data), ExactGaussian().fit(*data)
    exact = FullGaussian.from_covariance(truth.mean, truth.covariance)
    for proposal in ("laplace", "variational"):
        q = MomentMatching(200_000, proposal).fit(*data, 0)
        assert exact.whiten(q.mean() - truth.mean).abs().max() < 4.5 * 0.005
        torch.testing.assert_close(
            q.covariance(), truth.covariance, rtol=0, atol=0.09 * float(truth.covariance.norm())
        )
        assert (narrow.variance() < 0.9 * q.variance()).all()
    mode, mean = (
        ImportanceSampling(20_000, name).fit(*data, 0).effective_size()
        for name in ("laplace", "variational")
    )
    assert mean > 1.5 * mode


def test_too_few_draws_are_refused():
    with pytest.raises(
        InputError, match=r"6 draws have an effective size of \d, which is below 2 for each"
    ) as caught:
        fit(MomentMatching(6), linear_gaussian())
    assert "\n" not in str(caught.value)
