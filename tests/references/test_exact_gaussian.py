"""The certificate: what it says of the optimum, and of what is not the optimum."""

import numpy as np
import pytest
import torch

from bdl.errors import InputError
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.metrics.predictions import as_tensors
from bdl.models.likelihoods import Bernoulli, GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.references import exact
from bdl.references.exact import (
    LIMITS,
    ConjugateReference,
    ExactGaussianReference,
    OptimumCertificate,
    certify_optimum,
)

RNG = np.random.default_rng(0)
ROWS, DIM = 50, 3
X = torch.from_numpy(RNG.standard_normal((ROWS, DIM)))
Y = torch.from_numpy(
    (RNG.random(ROWS) < 1 / (1 + np.exp(-X.numpy() @ [1, -2, 0.5]))).astype(float)
)
PROBLEM = Problem(LinearModel(), Bernoulli(), DIM, prior=GaussianPrior(1e-5))
HYPER = as_tensors({"prior_precision": 0.1})


@pytest.fixture(scope="module")
def q():
    return ExactGaussian().fit(PROBLEM, X, Y, HYPER)


def test_the_optimum_keeps_every_limit(q):
    certificate = certify_optimum(PROBLEM, q, X, Y, HYPER)
    assert certificate.admit() is certificate
    truth = ExactGaussianReference().fit(PROBLEM, X, Y, HYPER)
    torch.testing.assert_close(truth.mean, q.mean(), rtol=0, atol=0)
    torch.testing.assert_close(truth.covariance, q.covariance(), rtol=0, atol=0)


def test_a_known_optimum():
    """With Gaussian targets it is the posterior, and the negative ELBO is minus the log-evidence."""
    problem, hyper = (
        Problem(LinearModel(), GaussianLikelihood(), DIM),
        HYPER | as_tensors({"noise_precision": 2.0}),
    )
    y = X @ torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64) + 0.3
    found, known = (
        own.fit(problem, X, y, hyper) for own in (ExactGaussianReference(), ConjugateReference())
    )
    torch.testing.assert_close(found.mean, known.mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.covariance, known.covariance, rtol=1e-10, atol=1e-12)
    design = problem.model.design(X)
    covariance = 10 * design @ design.T + 0.5 * torch.eye(ROWS).double()
    evidence = torch.distributions.MultivariateNormal(
        torch.zeros(ROWS).double(), covariance
    ).log_prob(y)
    found = certify_optimum(problem, ExactGaussian().fit(problem, X, y, hyper), X, y, hyper)
    assert found.neg_elbo == pytest.approx(-float(evidence), rel=1e-10)


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda q: q._replace(loc=q.loc + 1e-6), "gradient"),
        (lambda q: q._replace(scale_tril=q.scale_tril * (1 + 1e-6)), "gradient"),
        (
            lambda q: q._replace(loc=q.sample(torch.full((DIM + 1,), 1e-6).double())),
            "mean_identity",
        ),
        (lambda q: q._replace(scale_tril=q.scale_tril * (1 + 1e-6)), "covariance_identity"),
    ],
)
def test_a_millionth_beside_the_optimum_is_refused(q, change, broken):
    certificate = certify_optimum(PROBLEM, change(q), X, Y, HYPER)
    assert 10 * LIMITS[broken] < getattr(certificate, broken) < 1e-4
    with pytest.raises(
        InputError, match=r"^reference exact-gaussian refused: gradient is .* above 1e-08; raise"
    ):
        certificate.admit()


def test_the_identities_are_in_units_of_the_posterior(q):
    """A mean that is off by a hundredth of a standard deviation, along an axis of the posterior, has that error."""
    step = torch.tensor([0.01, 0, 0, 0], dtype=torch.float64)
    found = certify_optimum(PROBLEM, q._replace(loc=q.sample(step)), X, Y, HYPER)
    assert found.mean_identity == pytest.approx(0.01, rel=0.02)
    wider = certify_optimum(PROBLEM, q._replace(scale_tril=1.01 * q.scale_tril), X, Y, HYPER)
    # (1.01)^2 - 1 = 0.0201, and what the wider posterior does to the curvature
    assert 0.015 < wider.covariance_identity < 0.03


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_is_held(name):
    good = OptimumCertificate(100.0, 1e-12, 1e-12, 1e-12, 1e-15).admit()
    for bad in (2 * LIMITS[name], float("nan")):
        with pytest.raises(InputError, match=f"^reference exact-gaussian refused: {name} is "):
            good._replace(**{name: bad}).admit()


def test_a_coarse_rule_shows_in_the_certificate(q, monkeypatch):
    """With steps of 1.2 spreads of 6 for the outputs, halving them moves the ELBO."""
    wide = PROBLEM, q._replace(scale_tril=2 * torch.eye(DIM + 1).double()), 3 * X, Y, HYPER
    fine = certify_optimum(*wide)
    monkeypatch.setattr("bdl.models.linear.STEP", 1.2)
    monkeypatch.setattr("bdl.models.linear.STEP_TIMES_SPREAD", 20.0)
    assert fine.quadrature < 1e-12 < LIMITS["quadrature"] < certify_optimum(*wide).quadrature


def test_the_same_fit_is_made_once(monkeypatch):
    """Whoever asks, with equal content; other labels or precisions are other fits."""
    fits, fit = [], ExactGaussian.fit
    monkeypatch.setattr(
        ExactGaussian, "fit", lambda self, *given: fits.append(1) or fit(self, *given)
    )
    exact._OPTIMA.clear()
    copy = (
        Problem(LinearModel(), Bernoulli(), DIM, prior=GaussianPrior(1e-5)),
        X.clone(),
        Y.clone(),
        dict(HYPER),
    )
    first, again = (
        ExactGaussianReference().fit(*given).mean for given in ((PROBLEM, X, Y, HYPER), copy)
    )
    assert len(fits) == 1
    assert torch.equal(first, again)
    for given in (
        (PROBLEM, X, 1 - Y, HYPER),
        (PROBLEM, X, Y, as_tensors({"prior_precision": 0.2})),
        (Problem(LinearModel(), Bernoulli(), DIM), X, Y, HYPER),
    ):
        assert not torch.equal(ExactGaussianReference().fit(*given).mean, first)
    assert len(fits) == 4
