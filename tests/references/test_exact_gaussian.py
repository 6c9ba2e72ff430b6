"""The certificate: what it says of the optimum, and of what is not the optimum."""

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.models.likelihoods import Bernoulli, Categorical, Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.references import exact_gaussian
from bdl.references.exact import ConjugateReference
from bdl.references.exact_gaussian import (
    LIMITS,
    ExactGaussianReference,
    OptimumCertificate,
    certify_optimum,
)

RNG = np.random.default_rng(0)
ROWS, DIM = 50, 3
X = torch.from_numpy(RNG.standard_normal((ROWS, DIM)))
Y = torch.from_numpy((RNG.random(ROWS) < 1 / (1 + np.exp(-X.numpy() @ [1, -2, 0.5]))).astype(float))
PROBLEM = Problem(Linear(), Bernoulli(), DIM, prior=GaussianPrior(1e-5))
HYPER = {"prior_precision": torch.tensor(0.1, dtype=torch.float64)}
GOOD = OptimumCertificate(100.0, 1e-12, 1e-12, 1e-12, 1e-15)


def test_the_optimum_keeps_every_limit():
    q = ExactGaussian().fit(PROBLEM, X, Y, HYPER)
    certificate = certify_optimum(PROBLEM, q, X, Y, HYPER)
    assert certificate.admit() is certificate
    truth = ExactGaussianReference().fit(PROBLEM, X, Y, HYPER)
    torch.testing.assert_close(truth.mean, q.mean(), rtol=0, atol=0)
    torch.testing.assert_close(truth.covariance, q.covariance(), rtol=0, atol=0)


def test_a_known_optimum():
    """With Gaussian targets it is the posterior, and the negative ELBO is minus the log-evidence."""
    problem = Problem(Linear(), Gaussian(), DIM)
    hyper = HYPER | {"noise_precision": torch.tensor(2.0, dtype=torch.float64)}
    y = X @ torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64) + 0.3
    truth, exact = (
        reference.fit(problem, X, y, hyper) for reference in (ExactGaussianReference(), ConjugateReference())
    )
    torch.testing.assert_close(truth.mean, exact.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(truth.covariance, exact.covariance, rtol=1e-10, atol=1e-12)
    design = problem.model.design(X)
    marginal = torch.distributions.MultivariateNormal(
        torch.zeros(ROWS).double(), 10 * design @ design.T + 0.5 * torch.eye(ROWS).double()
    )
    q = ExactGaussian().fit(problem, X, y, hyper)
    found = certify_optimum(problem, q, X, y, hyper)
    assert found.neg_elbo == pytest.approx(-float(marginal.log_prob(y)), rel=1e-10)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda q: q._replace(loc=q.loc + 1e-6), "gradient"),
        (lambda q: q._replace(scale_tril=q.scale_tril * (1 + 1e-6)), "gradient"),
        (lambda q: q._replace(loc=q.sample(torch.full((DIM + 1,), 1e-6).double())), "mean_identity"),
        (lambda q: q._replace(scale_tril=q.scale_tril * (1 + 1e-6)), "covariance_identity"),
    ],
)
def test_a_millionth_beside_the_optimum_is_refused(change, broken):
    q = change(ExactGaussian().fit(PROBLEM, X, Y, HYPER))
    certificate = certify_optimum(PROBLEM, q, X, Y, HYPER)
    assert 10 * LIMITS[broken] < getattr(certificate, broken) < 1e-4
    with pytest.raises(InputError, match=r"^reference exact-gaussian refused: gradient is .* above 1e-08; raise"):
        certificate.admit()


def test_the_identities_are_in_units_of_the_posterior():
    """A mean that is off by a hundredth of a standard deviation, along an axis of the posterior, has that error."""
    q = ExactGaussian().fit(PROBLEM, X, Y, HYPER)
    step = torch.tensor([0.01, 0, 0, 0], dtype=torch.float64)
    found = certify_optimum(PROBLEM, q._replace(loc=q.sample(step)), X, Y, HYPER)
    assert found.mean_identity == pytest.approx(0.01, rel=0.02)
    wider = certify_optimum(PROBLEM, q._replace(scale_tril=1.01 * q.scale_tril), X, Y, HYPER)
    # (1.01)^2 - 1 = 0.0201, and what the wider posterior does to the curvature
    assert 0.015 < wider.covariance_identity < 0.03


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_held(name):
    GOOD.admit()
    for bad in (2 * LIMITS[name], float("nan")):
        with pytest.raises(InputError, match=f"^reference exact-gaussian refused: {name} is "):
            GOOD._replace(**{name: bad}).admit()


def test_a_coarse_rule_shows_in_the_certificate(monkeypatch):
    """With steps of 1.2 spreads of 6 for the outputs, halving them moves the ELBO."""
    wide = PROBLEM, ExactGaussian().fit(PROBLEM, 3 * X, Y, HYPER)._replace(scale_tril=2 * torch.eye(DIM + 1).double())
    fine = certify_optimum(*wide, 3 * X, Y, HYPER)
    monkeypatch.setattr("bdl.models.linear.STEP", 1.2)
    monkeypatch.setattr("bdl.models.linear.STEP_TIMES_SPREAD", 20.0)
    coarse = certify_optimum(*wide, 3 * X, Y, HYPER)
    assert fine.quadrature < 1e-12 < LIMITS["quadrature"] < coarse.quadrature


def test_the_same_fit_is_made_once(monkeypatch):
    """Whoever asks, with equal content; other labels or precisions are other fits."""
    fits = []
    fit = ExactGaussian.fit
    monkeypatch.setattr(ExactGaussian, "fit", lambda self, *given: fits.append(1) or fit(self, *given))
    exact_gaussian._optimum.cache_clear()
    first = ExactGaussianReference().fit(PROBLEM, X, Y, HYPER)
    again = ExactGaussianReference().fit(
        Problem(Linear(), Bernoulli(), DIM, prior=GaussianPrior(1e-5)), X.clone(), Y.clone(), dict(HYPER)
    )
    assert len(fits) == 1
    assert torch.equal(first.mean, again.mean)
    for given in (
        (PROBLEM, X, 1 - Y, HYPER),
        (PROBLEM, X, Y, {"prior_precision": torch.tensor(0.2).double()}),
        (Problem(Linear(), Bernoulli(), DIM), X, Y, HYPER),
    ):
        assert not torch.equal(ExactGaussianReference().fit(*given).mean, first.mean)
    assert len(fits) == 4


@pytest.mark.parametrize(
    "problem", [Problem(Mlp(), Bernoulli(), DIM), Problem(Linear(), Categorical(), DIM, 3)], ids=["network", "classes"]
)
def test_what_has_no_quadrature_is_refused(problem):
    with pytest.raises(InputError, match=r"^reference exact-gaussian needs a linear model with one output"):
        ExactGaussianReference().check(problem)
