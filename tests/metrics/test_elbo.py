"""Scores of densities: the evidence and its lower bound, log-losses by quadrature, and importance weights."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.metrics.elbo import (
    NegElbo,
    NegElboPrinted,
    NllByQuadrature,
    NllPrinted,
    PriorKl,
    probability_of_one,
)
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.predictions import Draws, as_tensors, draw_samples
from bdl.metrics.weights import Ess, KHat, LogEvidence, NegLogJoint
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.modules import Module
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior, StudentTPrior
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, Empirical, FullGaussian, Point, Weighted
from bdl.posteriors.tensors import as_type
from bdl.rng import trial_keys

from .fits import KEY, examples, fit, normal, tensor

N, D = 40, 4  # three weights and a bias
ALPHA, BETA, UNIT, ORIGIN = 0.7, 2.0, 3.0, -5.0
HYPER = {"prior_precision": ALPHA, "noise_precision": BETA}
X = normal(0, N, D - 1)
DESIGN = torch.cat([X, torch.ones(N, 1, dtype=torch.float64)], 1)
Y = ORIGIN + UNIT * (X @ normal(1, D - 1) + 0.4 * normal(2, N))
LABELS = (X[:, 0] + 0.5 * normal(3, N) > 0).double()

REGRESSION = Problem(LinearModel(), GaussianLikelihood(), D - 1)
DRAWN = Problem(Module("torch.nn:Linear"), GaussianLikelihood(), D - 1)
"""The same, as a model of which nothing is known: an expectation is a mean over draws."""
LOGISTIC = Problem(LinearModel(), Bernoulli(), D - 1)


def fitted(posterior: object, problem: Problem = REGRESSION, **changes: object) -> Evaluation:
    """Evaluate a posterior at rows that train and test."""
    rows = examples(X, Y, UNIT, ORIGIN) if problem.likelihood.fits(0) else examples(X, LABELS)
    return fit(
        posterior,
        problem,
        **({"hyper": HYPER, "training": lambda: rows, "test": lambda: rows} | changes),
    )


def exact(
    problem: Problem = REGRESSION, x: Tensor = X, y: Tensor = (Y - ORIGIN) / UNIT
) -> FullGaussian:
    """Return the posterior of linear regression, of standardised targets."""
    hyper = as_tensors({"prior_precision": ALPHA, "noise_precision": BETA * UNIT**2})
    return Conjugate().fit(problem, x, y, hyper)


@pytest.mark.parametrize("bias_precision", [None, 1e-3])
def test_the_true_posterior_gives_the_evidence(bias_precision):
    """Of targets in original units: y ~ N(origin, unit^2 A diag(1/alpha) A^T + I/beta)."""
    problem = replace(REGRESSION, prior=GaussianPrior(bias_precision))
    variances = 1 / tensor(ALPHA, ALPHA, ALPHA, bias_precision or ALPHA)
    covariance = UNIT**2 * DESIGN * variances @ DESIGN.mT + torch.eye(N).double() / BETA
    evidence = stats.multivariate_normal(np.full(N, ORIGIN), covariance.numpy()).logpdf(Y.numpy())
    evaluation = fitted(exact(problem), problem)
    assert NegElbo()(evaluation) == {"": pytest.approx(-evidence / N, rel=1e-10)}
    assert LogEvidence()(evaluation) == {"": pytest.approx(evidence, rel=1e-10)}


def test_another_gaussian_gives_the_closed_form():
    """KL of independent normals, and E_q (y - A theta)^2 = (y - A m)^2 + A diag(v) A^T.

    By draws within its error.
    """
    mean, variance = exact().loc + 0.05 * normal(5, D), 0.002 * normal(6, D).exp()
    squares = (Y - ORIGIN - UNIT * DESIGN @ mean).square() + UNIT**2 * DESIGN.square() @ variance
    likelihood = 0.5 * (N * math.log(BETA / (2 * math.pi)) - BETA * squares.sum())
    divergence = 0.5 * (ALPHA * (variance + mean.square()) - 1 - (ALPHA * variance).log()).sum()
    expected = float(divergence - likelihood) / N
    posterior = DiagonalGaussian(mean, variance)
    assert PriorKl()(fitted(posterior)) == pytest.approx(float(divergence) / N, rel=1e-12)
    assert NegElbo()(fitted(posterior)) == {"": pytest.approx(expected, rel=1e-12)}
    found = NegElbo(4000)(fitted(posterior, DRAWN))
    assert found[""] == pytest.approx(expected, abs=4 * found["mcse"])


def test_quadrature_is_what_draws_estimate_for_labels():
    """Under a posterior with correlations, for which outputs deviate by about 6."""
    posterior = FullGaussian(normal(7, D), 3 * (torch.eye(D) + 0.5).double().tril())
    found, drawn = (
        NegElbo(4000)(fitted(posterior, replace(LOGISTIC, model=own.model)))
        for own in (LOGISTIC, DRAWN)
    )
    assert found == {"": pytest.approx(drawn[""], abs=4 * drawn["mcse"])}


def test_the_standard_error_of_draws_is_that_of_repetitions():
    """The deviation of 40 scores, known to 11 %, is within 4.5 errors of what each says of itself."""
    posterior = DiagonalGaussian(exact().loc, torch.full((D,), 0.01).double())
    keys = trial_keys([(number,) for number in range(40)], "predict")
    repeated = [NegElbo(50)(fitted(posterior, DRAWN, key=key)) for key in keys]
    scores, errors = (np.array([found[part] for found in repeated]) for part in ("", "mcse"))
    assert scores.std(ddof=1) == pytest.approx(
        np.sqrt(np.mean(errors**2)), rel=4.5 / math.sqrt(2 * 39)
    )


def test_its_draws_are_not_those_of_predictions():
    evaluation = fitted(exact(), DRAWN, samples=30)
    own = NegElbo(30)(evaluation)["mcse"] * N * math.sqrt(30)
    assert own != pytest.approx(
        evaluation.predictions.sample_log_likelihood.std().item(), rel=1e-3
    )


@pytest.mark.parametrize("problem", [REGRESSION, DRAWN])
def test_the_printed_bound_lacks_the_constant_of_the_bias(problem):
    """KL holds -(1/2) log 1e-5 = 5.7565 nats for a bias of prior precision 1e-5.

    Both scores have the same draws.
    """
    evaluation = fitted(exact(), replace(problem, prior=GaussianPrior(1e-5)))
    whole, printed = NegElbo()(evaluation), NegElboPrinted()(evaluation)
    assert whole[""] - printed[""] == pytest.approx(5.7564627 / N, rel=1e-6)
    assert whole.keys() == printed.keys()


WIDE = FullGaussian(normal(2, D), 2 * (normal(3, D, D).tril(-1) + torch.eye(D).double()))


def outputs() -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations under `WIDE`."""
    return (DESIGN @ WIDE.mean()).numpy(), (
        DESIGN @ WIDE.covariance() @ DESIGN.mT
    ).diagonal().sqrt().numpy()


def integral(centre: float, spread: float) -> float:
    """E[sigmoid(f)] by adaptive quadrature."""

    def integrand(z: float) -> float:
        return stats.norm.pdf(z) * special.expit(centre + spread * z)

    return integrate.quad(integrand, -12, 12, epsabs=1e-14, points=[-centre / spread])[0]


def test_log_losses_are_of_integrals_and_of_their_approximation():
    p = np.array([integral(*pair) for pair in zip(*outputs(), strict=True)])
    expected = -np.mean(np.where(LABELS == 1, np.log(p), np.log1p(-p)))
    evaluation, single = fitted(WIDE, LOGISTIC), fitted(as_type(WIDE, torch.float32), LOGISTIC)
    assert NllByQuadrature()(evaluation) == pytest.approx(expected, rel=1e-10)
    assert NllByQuadrature()(single) == pytest.approx(expected, rel=1e-6)
    p = probability_of_one(*map(torch.from_numpy, outputs()))
    printed = -float(torch.where(LABELS == 1, p, 1 - p).log().mean())
    assert (
        NllPrinted()(evaluation)
        == pytest.approx(printed, rel=1e-12)
        == pytest.approx(expected, abs=1e-3)
    )


@pytest.mark.parametrize("spread", [0.1, 3.0, 20.0])
def test_the_approximation_is_near_the_integral(spread):
    """To 3e-4 in the probability, its known accuracy, from end to end."""
    centre = torch.linspace(-30, 30, 25).double()
    found = probability_of_one(centre, torch.full_like(centre, spread))
    np.testing.assert_allclose(
        found, [integral(c, spread) for c in centre.tolist()], rtol=0, atol=3e-4
    )


def test_the_tail_of_the_approximation_falls_as_a_logistic_one():
    """log E[sigmoid(f)] is about centre + spread^2 / 2 from 0.98 spread^2 + 4 below 0 on.

    Normal tails are smaller.
    """
    found = probability_of_one(tensor(-9.92, -30, -200), tensor(2, 2, 2))
    np.testing.assert_allclose(found.log(), [-7.92, -28, -198], rtol=1e-8)


def test_the_printed_log_loss_is_cut_off():
    """A row that is wrong with certainty costs -log of the precision, 36 nats."""
    certain = DiagonalGaussian(tensor(1e4, 0, 0, 0), torch.full((D,), 1e-8).double())
    rows = examples(X, (X[:, 0] < 0).double())
    assert NllPrinted()(fitted(certain, LOGISTIC, test=lambda: rows)) == pytest.approx(
        52 * math.log(2), rel=1e-12
    )


def weighted(*weights: float) -> Weighted:
    return Weighted(normal(3, len(weights), D), tensor(*weights).log() - 500)


def test_weights_give_their_effective_size_the_evidence_and_its_error():
    """(1 + 2 + 3)^2 / (1 + 4 + 9).

    The mean in original units, and its standard error (divisor 3) over the mean.
    """
    assert Ess()(fitted(weighted(1, 2, 3))) == pytest.approx(36 / 14, rel=1e-12)
    found = LogEvidence()(fitted(weighted(1, 2, 3)))
    assert found[""] == pytest.approx(math.log(2) - 500 - N * math.log(UNIT), rel=1e-12)
    assert found["mcse"] == pytest.approx(math.sqrt((1 + 0 + 1) / 3 / 3) / 2, rel=1e-12)
    assert LogEvidence()(fitted(weighted(2, 2, 2)))["mcse"] == pytest.approx(0, abs=1e-6)


def test_a_gaussian_at_the_mode_gives_laplaces_formula():
    """Logistic regression: log p(D, mode) + (D log 2 pi - log |H|) / 2, the prior normalised."""
    mode, factor = normal(4, D), torch.eye(D, dtype=torch.float64) + 0.1 * normal(5, D, D)
    hessian = factor @ factor.mT
    log_likelihood = torch.nn.functional.logsigmoid((2 * LABELS - 1) * (DESIGN @ mode)).sum()
    joint = log_likelihood - 0.5 * (ALPHA * mode.square() - math.log(ALPHA / (2 * math.pi))).sum()
    expected = joint + 0.5 * (D * math.log(2 * math.pi) - torch.linalg.slogdet(hessian).logabsdet)
    found = LogEvidence()(
        fitted(FullGaussian.from_covariance(mode, torch.linalg.inv(hessian)), LOGISTIC)
    )
    assert found[""] == pytest.approx(expected.item(), rel=1e-10)


def negative_log_joint(theta: Tensor) -> float:
    """Of targets in original units, per row.

    The prior is that of the parameters as the model has them.
    """
    likelihood = (
        stats.norm((ORIGIN + UNIT * DESIGN @ theta).numpy(), BETA**-0.5).logpdf(Y.numpy()).sum()
    )
    return -(likelihood + stats.norm(0, ALPHA**-0.5).logpdf(theta.numpy()).sum()) / N


def test_log_joint_density_of_vectors_is_their_mean_and_of_a_gaussian_its_expectation():
    """Of a few vectors each counts once.

    E[theta^T A theta] has the closed form m^T A m + tr(A S).
    """
    vectors, variance = normal(6, 3, D), tensor(0.1, 0.2, 0.3, 0.4)
    each = [negative_log_joint(one) for one in vectors]
    assert NegLogJoint()(fitted(Point(vectors[0]))) == pytest.approx(each[0], rel=1e-12)
    assert NegLogJoint()(fitted(Empirical(vectors))) == pytest.approx(sum(each) / 3, rel=1e-12)
    curvature = BETA * UNIT**2 * DESIGN.square().sum(0) + ALPHA
    found = NegLogJoint(samples=200_000)(fitted(DiagonalGaussian(vectors[0], variance)))
    assert found == pytest.approx(each[0] + float(curvature @ variance) / (2 * N), rel=5e-3)


@pytest.fixture(scope="module")
def many():
    """Evaluate posteriors of 31 parameters.

    Give the exact one as well, of targets in another unit.
    """
    pytest.importorskip("arviz_stats")
    x, problem = normal(6, 80, 30), Problem(LinearModel(), GaussianLikelihood(), 30)
    y = x @ normal(7, 30) + 0.4 * normal(8, 80)
    rows = examples(x, ORIGIN + UNIT * y, UNIT, ORIGIN)
    return exact(problem, x, y), lambda posterior: fit(
        posterior, problem, hyper=HYPER, training=lambda: rows
    )


def test_k_tells_the_posterior_from_one_of_half_its_covariance(many):
    exact, evaluated = many
    for scale, low, high in ((1, -0.5, 0.5), (0.99, -0.5, 0.5), (0.5**0.5, 0.7, 2)):
        assert low < KHat()(evaluated(FullGaussian(exact.loc, exact.scale_tril * scale))) < high


def test_k_grows_beyond_the_ratios_that_float64_holds(many):
    """Far from the mean the logarithms of ratios go like the distance: k as well, less what is not linear."""
    exact, evaluated = many
    near, far = (
        KHat()(evaluated(FullGaussian(exact.loc + c, exact.scale_tril * 0.7))) for c in (10.0, 1e4)
    )
    assert near > 0.7
    assert far == pytest.approx(1000 * near, rel=0.02)


def test_k_is_that_of_the_posteriors_density(many):
    """The joint density is the posterior's but for a constant, which ratios may have."""
    arviz = pytest.importorskip("arviz_stats.base").array_stats
    exact, evaluated = many
    q = DiagonalGaussian(exact.loc, exact.precision_diagonal().reciprocal())
    theta = torch.cat(list(draw_samples(q, Draws(500, KEY, step=4))))
    _, expected = arviz.psislw((q.log_prob(theta) - exact.log_prob(theta)).numpy())
    assert KHat(samples=500)(evaluated(q)) == pytest.approx(float(expected), abs=1e-6)


VECTORS = Empirical(torch.zeros(2, D))


@pytest.mark.parametrize(
    ("score", "posterior", "problem", "reason"),
    [
        (
            NegElbo(),
            VECTORS,
            REGRESSION,
            "^neg_elbo: Empirical is not Gaussian: leave the metric out$",
        ),
        (
            LogEvidence(),
            VECTORS,
            REGRESSION,
            "^log_evidence: Empirical is neither weighted nor Gaussian: leave",
        ),
        (Ess(), VECTORS, REGRESSION, "^ess: Empirical has no weights: leave the metric out$"),
        (KHat(), VECTORS, REGRESSION, "no density"),
        (KHat(), Point(torch.zeros(D)), REGRESSION, "no density"),
        (
            NegLogJoint(),
            VECTORS,
            replace(REGRESSION, prior=StudentTPrior()),
            "prior StudentTPrior has no precision",
        ),
        (NllByQuadrature(), VECTORS, LOGISTIC, "^test_nll: Empirical is not Gaussian"),
        (
            NllByQuadrature(),
            WIDE,
            replace(LOGISTIC, model=Mlp()),
            "^test_nll needs a linear model",
        ),
        (
            NllPrinted(),
            WIDE,
            replace(LOGISTIC, likelihood=Categorical(), d_out=3),
            "^test_nll_printed needs .* 'berno",
        ),
    ],
)
def test_what_has_no_score(score, posterior, problem, reason):
    with pytest.raises(InputError, match=reason):
        score(fitted(posterior, problem))


def test_a_stream_has_no_rows():
    with pytest.raises(
        InputError, match="a stream has no rows to predict: leave out metrics of predictions"
    ):
        NegElbo()(fit(exact()))


def test_a_mixture_that_rounding_makes_negative_leaves_the_tail():
    found = probability_of_one(tensor(-52.3, 52.3), tensor(6.75, 6.75))
    assert torch.isfinite(found).all()
    assert 0 < found[0] < 1e-12
    assert found[1] == pytest.approx(1 - float(found[0]))
