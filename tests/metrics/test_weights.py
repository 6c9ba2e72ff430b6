"""Effective sample sizes and evidences against closed forms."""

import math
import sys

import pytest
import torch
from scipy import stats

from bdl.errors import InputError
from bdl.metrics.predictions import Draws, sampled
from bdl.metrics.weights import Ess, KHat, LogEvidence, NegLogJoint
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior, StudentTPrior
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical, FullGaussian, Point, Weighted

from .fits import KEY, examples, fit, normal

N, D = 40, 4  # three weights and a bias
ALPHA, BETA, UNIT, ORIGIN = 0.7, 2.0, 3.0, -5.0
HYPER = {"prior_precision": ALPHA, "noise_precision": BETA}
X = normal(0, N, D - 1)
Y = ORIGIN + UNIT * (X @ normal(1, D - 1) + 0.4 * normal(2, N))
DESIGN = torch.cat([X, torch.ones(N, 1, dtype=torch.float64)], 1)
PROBLEM = Problem(Linear(), Gaussian(), D - 1)


def evaluated(posterior, problem=PROBLEM, y=Y, unit=UNIT, origin=ORIGIN, **changes):
    return fit(posterior, problem, **({"hyper": HYPER, "training": lambda: examples(X, y, unit, origin)} | changes))


def weighted(weights) -> Weighted:
    weights = torch.tensor(weights, dtype=torch.float64)
    return Weighted(normal(3, len(weights), D), weights.log() - 500)


def test_effective_size():
    """(1 + 2 + 3)^2 / (1 + 4 + 9)."""
    assert Ess()(evaluated(weighted([1, 2, 3]))) == pytest.approx(36 / 14, rel=1e-12)


@pytest.mark.parametrize("posterior", [Empirical(torch.zeros(3, D)), DiagonalGaussian(torch.zeros(D), torch.ones(D))])
def test_without_weights_there_is_no_effective_size(posterior):
    with pytest.raises(InputError, match=f"ess: {type(posterior).__name__} has no weights: leave the metric out"):
        Ess()(evaluated(posterior))


@pytest.mark.parametrize("bias_precision", [None, 1e-3])
def test_a_gaussian_that_is_the_posterior_gives_the_evidence(bias_precision):
    """Of targets in original units: y ~ N(origin, unit^2 X diag(1 / alpha) X^T + I / beta)."""
    problem = Problem(Linear(), Gaussian(), D - 1, prior=GaussianPrior(bias_precision))
    alpha = torch.full((D,), ALPHA, dtype=torch.float64)
    alpha[-1] = bias_precision or ALPHA
    noise = BETA * UNIT**2
    covariance = torch.linalg.inv(alpha.diag() + noise * DESIGN.mT @ DESIGN)
    mean = noise * covariance @ DESIGN.mT @ ((Y - ORIGIN) / UNIT)
    posterior = FullGaussian.from_covariance(mean, 0.5 * (covariance + covariance.mT))
    marginal = UNIT**2 * DESIGN / alpha @ DESIGN.mT + torch.eye(N, dtype=torch.float64) / BETA
    expected = stats.multivariate_normal(torch.full((N,), ORIGIN).numpy(), marginal.numpy()).logpdf(Y.numpy())
    assert LogEvidence()(evaluated(posterior, problem)) == {"": pytest.approx(expected, rel=1e-10)}


def test_a_gaussian_at_the_mode_gives_laplaces_formula():
    """Logistic regression: log p(D, mode) + (D log 2 pi - log |H|) / 2, the prior normalised."""
    labels, mode = (Y > ORIGIN).double(), normal(4, D)
    factor = torch.eye(D, dtype=torch.float64) + 0.1 * normal(5, D, D)
    hessian = factor @ factor.mT
    q = FullGaussian.from_covariance(mode, torch.linalg.inv(hessian))
    signs = (2 * labels - 1) * (DESIGN @ mode)
    joint = -torch.log1p((-signs).exp()).sum() - 0.5 * (ALPHA * mode.square() - math.log(ALPHA / (2 * math.pi))).sum()
    expected = joint + 0.5 * (D * math.log(2 * math.pi) - torch.linalg.slogdet(hessian).logabsdet)
    found = LogEvidence()(
        evaluated(q, Problem(Linear(), Bernoulli(), D - 1), labels, 1.0, 0.0, hyper={"prior_precision": ALPHA})
    )
    assert found[""] == pytest.approx(expected.item(), rel=1e-10)


def test_weights_give_the_evidence_and_its_error():
    """The mean of 1, 2 and 3 in original units, and the standard error of that mean (divisor 3) over the mean."""
    found = LogEvidence()(evaluated(weighted([1, 2, 3])))
    assert found[""] == pytest.approx(math.log(2) - 500 - N * math.log(UNIT), rel=1e-12)
    assert found["mcse"] == pytest.approx(math.sqrt((1 + 0 + 1) / 3 / 3) / 2, rel=1e-12)
    assert LogEvidence()(evaluated(weighted([2, 2, 2])))["mcse"] == pytest.approx(0, abs=1e-6)


def test_what_has_no_evidence_is_refused():
    with pytest.raises(InputError, match="log_evidence: Empirical is neither weighted nor Gaussian: leave it out"):
        LogEvidence()(evaluated(Empirical(torch.zeros(2, D))))
    with pytest.raises(InputError, match="a stream has no rows to predict"):
        LogEvidence()(fit(weighted([1, 2])))


@pytest.fixture(scope="module")
def wide():
    """Evaluate posteriors of 31 parameters; give the exact one as well, of targets in another unit."""
    x, inputs = normal(6, 80, 30), 30
    design = torch.cat([x, torch.ones(80, 1, dtype=torch.float64)], 1)
    y = x @ normal(7, inputs) + 0.4 * normal(8, 80)
    noise = BETA * UNIT**2
    covariance = torch.linalg.inv(ALPHA * torch.eye(inputs + 1, dtype=torch.float64) + noise * design.mT @ design)
    exact = FullGaussian.from_covariance(noise * covariance @ design.mT @ y, 0.5 * (covariance + covariance.mT))
    problem = Problem(Linear(), Gaussian(), inputs)
    given = {"hyper": HYPER, "training": lambda: examples(x, ORIGIN + UNIT * y, UNIT, ORIGIN)}
    return exact, lambda posterior: fit(posterior, problem, **given)


def test_k_tells_the_posterior_from_one_of_half_its_covariance(wide):
    pytest.importorskip("arviz_stats")
    exact, evaluated = wide
    assert KHat()(evaluated(exact)) < 0.5
    assert KHat()(evaluated(FullGaussian(exact.loc, exact.scale_tril * 0.99))) < 0.5
    assert KHat()(evaluated(FullGaussian(exact.loc, exact.scale_tril * 0.5**0.5))) > 0.7


def test_k_grows_beyond_the_ratios_that_float64_holds(wide):
    """Far from the mean the logarithms of ratios go like the distance: k as well, less what is not linear."""
    pytest.importorskip("arviz_stats")
    exact, evaluated = wide
    near, far = (KHat()(evaluated(FullGaussian(exact.loc + c, exact.scale_tril * 0.7))) for c in (10.0, 1e4))
    assert near > 0.7
    assert far == pytest.approx(1000 * near, rel=0.02)


def test_k_is_that_of_the_posteriors_density(wide):
    """The joint density is the posterior's but for a constant, which ratios may have."""
    stats = pytest.importorskip("arviz_stats.base").array_stats
    exact, evaluated = wide
    q = DiagonalGaussian(exact.loc, exact.precision_diagonal().reciprocal())
    theta = torch.cat(list(sampled(q, Draws(500, KEY, step=4))))
    _, expected = stats.psislw((q.log_prob(theta) - exact.log_prob(theta)).numpy())
    assert KHat(samples=500)(evaluated(q)) == pytest.approx(float(expected), abs=1e-6)


def test_without_a_density_there_is_no_k(wide, monkeypatch):
    exact, evaluated = wide
    for posterior, reason in ((Empirical(exact.loc.unsqueeze(0)), "no density"), (Point(exact.loc), "no density")):
        with pytest.raises(InputError, match=reason):
            KHat()(evaluated(posterior))
    monkeypatch.setitem(sys.modules, "arviz_stats.base", None)
    with pytest.raises(InputError, match=r"k_hat needs arviz_stats.base \(.*\): pip install 'bdl-bench\[mcmc\]'"):
        KHat()(evaluated(exact))


def negative_log_joint(theta: torch.Tensor) -> float:
    """Of targets in original units, per row; the prior is that of the parameters as the model has them."""
    fitted = ORIGIN + UNIT * DESIGN @ theta
    likelihood = stats.norm(fitted.numpy(), BETA**-0.5).logpdf(Y.numpy()).sum()
    return -(likelihood + stats.norm(0, ALPHA**-0.5).logpdf(theta.numpy()).sum()) / N


def test_log_joint_density_of_a_point():
    theta = normal(5, D)
    assert NegLogJoint()(evaluated(Point(theta))) == pytest.approx(negative_log_joint(theta), rel=1e-12)


def test_log_joint_density_of_vectors_is_their_mean_and_of_a_gaussian_its_expectation():
    """Of a few vectors each counts once; E[theta^T A theta] has the closed form m^T A m + tr(A S)."""
    vectors = normal(6, 3, D)
    each = [negative_log_joint(one) for one in vectors]
    assert NegLogJoint()(evaluated(Empirical(vectors))) == pytest.approx(sum(each) / 3, rel=1e-12)
    variance = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    curvature = BETA * UNIT**2 * DESIGN.square().sum(0) + ALPHA
    expected = negative_log_joint(vectors[0]) + float(curvature @ variance) / (2 * N)
    found = NegLogJoint(samples=200_000)(evaluated(DiagonalGaussian(vectors[0], variance)))
    assert found == pytest.approx(expected, rel=5e-3)


def test_log_joint_density_needs_a_prior_with_a_precision():
    problem = Problem(Linear(), Gaussian(), D - 1, prior=StudentTPrior())
    with pytest.raises(InputError, match="neg_log_joint: prior StudentTPrior has no precision: leave the metric out"):
        NegLogJoint()(evaluated(Point(normal(5, D)), problem))
