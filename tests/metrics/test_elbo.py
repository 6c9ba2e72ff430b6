"""The evidence lower bound against closed forms."""

import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import Tensor

from bdl.errors import InputError
from bdl.metrics.elbo import NegElbo, NegElboPrinted, PriorKl
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.modules import Module
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical, FullGaussian
from bdl.rng import trial_keys

from .fits import examples, fit, normal

N, D = 40, 4  # three weights and a bias
ALPHA, BETA, UNIT, ORIGIN = 0.7, 2.0, 3.0, -5.0
HYPER = {"prior_precision": ALPHA, "noise_precision": BETA}
X = normal(0, N, D - 1)
Y = ORIGIN + UNIT * (X @ normal(1, D - 1) + 0.4 * normal(2, N))


def design() -> Tensor:
    """Inputs and the bias's column; Linear has weights first."""
    return torch.cat([X, torch.ones(N, 1, dtype=torch.float64)], 1)


def exact(problem: Problem) -> FullGaussian:
    """The posterior of conjugate linear regression on standardised targets."""
    precision = problem.prior_precision({"prior_precision": torch.tensor(ALPHA).double()}) * torch.ones(D).double()
    noise = BETA * UNIT**2
    inverse = precision.diag() + noise * design().mT @ design()
    covariance = torch.linalg.inv(inverse)
    mean = noise * covariance @ design().mT @ ((Y - ORIGIN) / UNIT)
    return FullGaussian.from_covariance(mean, 0.5 * (covariance + covariance.mT))


def scored(posterior: object, problem: Problem, samples: int, name: str = "fit") -> dict[str, float]:
    rows = examples(X, Y, UNIT, ORIGIN)
    key = trial_keys([(name,)], "predict")[0]
    evaluation = fit(posterior, problem, hyper=HYPER, training=lambda: rows, key=key)
    return dict(NegElbo(samples)(evaluation))


PROBLEM = Problem(Linear(), Gaussian(), D - 1)
DRAWN = Problem(Module("torch.nn:Linear"), Gaussian(), D - 1)
"""The same, as a model of which nothing is known: the expectation is a mean over draws."""


def by_hand(mean: Tensor, variance: Tensor) -> float:
    """KL of diagonal Gaussians, and E_q (y - A theta)^2 = (y - A m)^2 + A diag(v) A^T."""
    squares = (Y - ORIGIN - UNIT * design() @ mean).square() + UNIT**2 * design().square() @ variance
    likelihood = 0.5 * (N * math.log(BETA / (2 * math.pi)) - BETA * squares.sum())
    divergence = 0.5 * (ALPHA * (variance + mean.square()) - 1 - (ALPHA * variance).log()).sum()
    return float(divergence - likelihood) / N


@pytest.mark.parametrize("bias_precision", [None, 1e-3])
def test_the_true_posterior_gives_the_evidence(bias_precision):
    """Of targets in original units: y ~ N(origin, unit^2 A diag(1/alpha) A^T + I/beta)."""
    problem = Problem(Linear(), Gaussian(), D - 1, prior=GaussianPrior(bias_precision))
    variances = torch.full((D,), 1 / ALPHA, dtype=torch.float64)
    variances[-1] = 1 / (bias_precision or ALPHA)
    covariance = UNIT**2 * design() * variances @ design().mT + torch.eye(N).double() / BETA
    evidence = stats.multivariate_normal(torch.full((N,), ORIGIN).numpy(), covariance.numpy()).logpdf(Y.numpy())
    assert scored(exact(problem), problem, 2) == {"": pytest.approx(-evidence / N, rel=1e-10)}


def test_the_divergence_alone_is_that_of_independent_normals():
    """KL(N(m, s^2) || N(0, 1 / alpha)) is (alpha (m^2 + s^2) - 1 - log(alpha s^2)) / 2 for each parameter."""
    mean, variance = normal(5, D), normal(6, D).exp()
    found = PriorKl()(fit(DiagonalGaussian(mean, variance), PROBLEM, hyper=HYPER, training=lambda: examples(X, Y)))
    each = 0.5 * (ALPHA * (mean.square() + variance) - 1 - (ALPHA * variance).log())
    assert found == pytest.approx(float(each.sum()) / N, rel=1e-12)


def test_another_gaussian_gives_the_closed_form():
    mean, variance = exact(PROBLEM).loc + 0.05 * normal(5, D), 0.002 * normal(6, D).exp()
    posterior = DiagonalGaussian(mean, variance)
    assert scored(posterior, PROBLEM, 2) == {"": pytest.approx(by_hand(mean, variance), rel=1e-12)}
    found = scored(posterior, DRAWN, 4000)
    assert 0 < found["mcse"] < 0.01
    assert found[""] == pytest.approx(by_hand(mean, variance), abs=4 * found["mcse"])


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_quadrature_is_what_draws_estimate_for_labels(spread):
    """Under a posterior with correlations, for which outputs deviate by about twice the spread."""
    labels = (X[:, 0] > 0).double()
    root = spread * (torch.eye(D) + 0.5).double().tril()
    scores = [
        NegElbo(4000)(
            fit(
                FullGaussian(normal(7, D), root),
                Problem(model, Bernoulli(), D - 1, prior=GaussianPrior(1e-3)),
                hyper=HYPER,
                training=lambda: examples(X, labels),
            )
        )
        for model in (PROBLEM.model, DRAWN.model)
    ]
    assert set(scores[0]) == {""}
    assert scores[0][""] == pytest.approx(scores[1][""], abs=4 * scores[1]["mcse"])


def test_its_standard_error_is_that_of_repetitions():
    """The deviation of 40 scores, known to 11 %, is within 4.5 errors of what each says of itself."""
    posterior = DiagonalGaussian(exact(PROBLEM).loc, torch.full((D,), 0.01).double())
    repeated = [scored(posterior, DRAWN, 50, f"fit {i}") for i in range(40)]
    scores = torch.tensor([found[""] for found in repeated])
    errors = torch.tensor([found["mcse"] for found in repeated])
    assert scores.std().item() == pytest.approx(errors.square().mean().sqrt().item(), rel=4.5 / math.sqrt(2 * 39))


@pytest.mark.parametrize("problem", [PROBLEM, DRAWN])
def test_the_printed_score_lacks_the_constant_of_the_bias(problem):
    """KL holds -(1/2) log 1e-5 = 5.7565 nats for a bias of prior precision 1e-5; both scores have the same draws."""
    problem = replace(problem, prior=GaussianPrior(1e-5))
    rows = examples(X, Y, UNIT, ORIGIN)
    evaluation = fit(exact(problem), problem, hyper=HYPER, training=lambda: rows)
    whole, printed = NegElbo()(evaluation), NegElboPrinted()(evaluation)
    assert whole[""] - printed[""] == pytest.approx(5.7564627 / N, rel=1e-6)
    assert whole.keys() == printed.keys()


def test_without_a_bias_the_printed_score_is_the_score():
    problem = Problem(Linear(bias=False), Gaussian(), D - 1)
    posterior = DiagonalGaussian(normal(5, D - 1), torch.full((D - 1,), 0.01).double())
    evaluation = fit(posterior, problem, hyper=HYPER, training=lambda: examples(X, Y, UNIT, ORIGIN))
    assert NegElbo()(evaluation) == NegElboPrinted()(evaluation)


def test_labels_have_no_unit():
    """A posterior so narrow that it is a point: the expectation is the log-likelihood there."""
    theta, labels = normal(7, D), (X[:, 0] > 0).double()
    posterior = DiagonalGaussian(theta, torch.full((D,), 1e-16).double())
    problem = Problem(Linear(), Bernoulli(), D - 1)
    evaluation = fit(posterior, problem, hyper=HYPER, training=lambda: examples(X, labels))
    divergence = 0.5 * (ALPHA * (1e-16 + theta.square()) - 1 - math.log(ALPHA * 1e-16)).sum()
    signs = (2 * labels - 1) * (design() @ theta)
    expected = (divergence + torch.log1p((-signs).exp()).sum()).item() / N
    assert NegElbo()(evaluation)[""] == pytest.approx(expected, rel=1e-6)


def test_its_draws_are_not_those_of_predictions():
    rows = examples(X, Y, UNIT, ORIGIN)
    evaluation = fit(exact(PROBLEM), DRAWN, hyper=HYPER, training=lambda: rows, test=lambda: rows, samples=30)
    own = NegElbo(30)(evaluation)["mcse"] * N * math.sqrt(30)
    assert own != pytest.approx(evaluation.predictions.sample_log_likelihood.std().item(), rel=1e-3)


def test_what_is_not_gaussian_is_refused():
    with pytest.raises(InputError, match="neg_elbo: Empirical is not Gaussian: leave the metric out"):
        scored(Empirical(torch.zeros(2, D)), PROBLEM, 10)
    with pytest.raises(InputError, match="a stream has no rows to predict"):
        NegElbo()(fit(exact(PROBLEM)))
