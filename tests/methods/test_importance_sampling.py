"""Importance sampling against conjugate closed forms, and where its weights are known."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.importance_sampling import ImportanceSampling, student
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import FullGaussian, Weighted

from .targets import Target, linear_gaussian

LOGISTIC = Problem(Linear(bias=False), Bernoulli(), 2)


def fit(method: ImportanceSampling, target: Target, seed: int = 0) -> Weighted:
    """Fit a target, with the noise precision in the unit of its data."""
    return method.fit(target.problem, target.data.x, target.data.y, model_units(target), seed)


def model_units(target: Target) -> dict[str, Tensor]:
    return target.hyper | {"noise_precision": target.hyper["noise_precision"] * target.data.y_unit**2}


def log_evidence(target: Target) -> float:
    """Of y ~ N(0, X diag(1 / alpha) X^T + I / beta)."""
    design, hyper = target.problem.model.design(target.data.x), model_units(target)
    alpha = target.problem.prior_precision(hyper).expand(target.problem.dim)
    covariance = design / alpha @ design.T + torch.eye(len(design)) / hyper["noise_precision"]
    return stats.multivariate_normal(cov=covariance.numpy()).logpdf(target.data.y.numpy())


def hyper(alpha: float) -> dict[str, Tensor]:
    return {"prior_precision": torch.tensor(alpha, dtype=torch.float64)}


METHODS = {
    "prior": ImportanceSampling(200_000, "prior"),
    "laplace": ImportanceSampling(20_000, "laplace", 5),
    "variational": ImportanceSampling(20_000, "variational", 30),
}


@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("proposal", METHODS)
def test_moments_and_evidence_of_a_linear_regression(proposal, bias_precision):
    """Within 4.5 standard errors by the delta method, of the means, the second moments and the evidence."""
    target = linear_gaussian(n=5, bias_precision=bias_precision)
    q = fit(METHODS[proposal], target).check()
    assert q.effective_size() > 1000
    exact = target.posterior
    whitened = exact.whiten(q.draws - exact.mean())
    products = whitened.unsqueeze(1) * whitened.unsqueeze(2) - torch.eye(3)  # of mean 0, as the whitened draws
    for values in (whitened, products.reshape(-1, 9)):
        error = (q.weights().square() @ values.square()).sqrt()
        assert (q.weights() @ values / error).abs().max() < 4.5
    error = float((1 / q.effective_size() - 1 / len(q.draws)).sqrt())
    assert float(q.log_evidence()) == pytest.approx(log_evidence(target), abs=4.5 * error)


def test_size_of_draws_from_a_wider_gaussian():
    """With infinitely many degrees of freedom the proposal would be the posterior, and every draw would count.

    The effective share tends to 1 / E_q[r^2] with r = p / q, which for N(0, 1) against Student's t is an integral.
    """
    alpha, degrees, samples = 3.0, 4, 100_000
    nothing = torch.zeros(5, 1, dtype=torch.float64)
    problem = Problem(Linear(bias=False), Bernoulli(), 1)
    q = ImportanceSampling(samples, "laplace", degrees).fit(problem, nothing, nothing[:, 0], hyper(alpha), 1)
    points = np.linspace(-12, 12, 20_001)
    square = np.trapezoid(stats.norm.pdf(points) ** 2 / stats.t(degrees).pdf(points), points)
    # the standard error of the share is about that of a mean of r^2, below 2 / sqrt(S)
    assert float(q.effective_size()) / samples == pytest.approx(1 / square, abs=9 / math.sqrt(samples))
    assert float(q.log_evidence()) == pytest.approx(5 * math.log(0.5), abs=4.5 * 8e-4)


def test_all_draws_count_if_the_proposal_is_the_posterior():
    """Inputs of zero say nothing of the weights: the likelihood of each draw is 2^-n."""
    nothing = torch.zeros(7, 2, dtype=torch.float64)
    q = ImportanceSampling(1000, "prior").fit(LOGISTIC, nothing, nothing[:, 0], hyper(4.0), 0)
    assert float(q.effective_size()) == pytest.approx(1000, rel=1e-12)
    assert float(q.log_evidence()) == pytest.approx(-7 * math.log(2), rel=1e-12)
    errors = torch.tensor([0.5 / math.sqrt(1000), 0.25 / math.sqrt(500)])
    assert (q.mean().abs() / errors[0]).max() < 4.5
    assert ((q.variance() - 0.25).abs() / errors[1]).max() < 4.5


def test_one_draw_counts_if_the_data_say_much_more_than_the_prior():
    """Its likelihood is e^1000 times that of the next; no weight overflows, and the mean is that draw."""
    x = torch.ones(1000, 2, dtype=torch.float64)
    problem = Problem(Linear(bias=False), Gaussian(), 2)
    given = hyper(1.0) | {"noise_precision": torch.tensor(1e4, dtype=torch.float64)}
    q = ImportanceSampling(20, "prior").fit(problem, x, 9 * x[:, 0], given, 0).check()
    assert float(q.effective_size()) == pytest.approx(1, abs=1e-9)
    best = (q.draws.sum(1) - 9).abs().argmin()
    torch.testing.assert_close(q.mean(), q.draws[best])


def test_the_variational_proposal_is_nearer_to_a_skewed_posterior():
    x = torch.tensor([[1, 0.2], [-0.5, -1], [2, 1], [-1, 0.3]], dtype=torch.float64)
    y = torch.tensor([1.0, 0, 1, 0], dtype=torch.float64)
    sizes = {
        name: float(ImportanceSampling(20_000, name, 10).fit(LOGISTIC, x, y, hyper(0.01), 0).effective_size())
        for name in ("laplace", "variational")
    }
    assert sizes["variational"] > 1.5 * sizes["laplace"]


def test_other_draws_for_other_seeds():
    target, method = linear_gaussian(), ImportanceSampling(50)
    assert torch.equal(fit(method, target, 3).draws, fit(method, target, 3).draws)
    assert not torch.equal(fit(method, target, 3).draws, fit(method, target, 4).draws)


@pytest.mark.parametrize("degrees", [1, 7])
def test_student_has_its_density_and_its_law(degrees):
    """The density by scipy's formula, and the law of a direction by Kolmogorov and Smirnov's test."""
    tril = torch.tensor([[2.0, 0.0], [-1.0, 0.5]], dtype=torch.float64)
    shape = FullGaussian(torch.tensor([3.0, -4.0], dtype=torch.float64), tril)
    theta, log_density = student(shape, degrees, 5000, torch.Generator().manual_seed(0))
    scipy = stats.multivariate_t(shape.loc.numpy(), shape.covariance().numpy(), df=degrees)
    np.testing.assert_allclose(log_density, scipy.logpdf(theta.numpy()), rtol=1e-10)
    direction = torch.tensor([0.3, 1.7], dtype=torch.float64)
    scaled = (theta - shape.loc) @ direction / (direction @ shape.covariance() @ direction).sqrt()
    assert stats.kstest(scaled.numpy(), stats.t(degrees).cdf).pvalue > 1e-5


def test_any_prior_and_model_will_do_for_draws_from_the_prior():
    network = Problem(Mlp((3,)), Gaussian(), 2, prior=GaussianPrior(0.5))
    ImportanceSampling(proposal="prior").check(network)
    ImportanceSampling(proposal="laplace").check(network)
    with pytest.raises(InputError, match="linear model with one output"):
        ImportanceSampling(proposal="variational").check(network)


@pytest.mark.parametrize("proposal", ["prior", "laplace"])
def test_data_that_are_not_finite_are_refused(proposal):
    x = torch.full((3, 2), torch.nan, dtype=torch.float64)
    with pytest.raises(InputError, match="not finite") as caught:
        ImportanceSampling(10, proposal).fit(LOGISTIC, x, torch.ones(3).double(), hyper(1.0), 0)
    assert "\n" not in str(caught.value)
