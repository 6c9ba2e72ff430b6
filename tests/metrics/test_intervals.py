"""Scores of mixtures of normals against scoringrules, scipy, quadrature and closed forms."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.distributions import Normal

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.targets import Mixture, crps
from bdl.models.likelihoods import Bernoulli, Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian
from bdl.posteriors.predictive import MeanVariance, Outputs

from .fits import examples, fit, normal

S, N = 7, 40


def answered(law: Normal, y: Tensor) -> Evaluation:
    """Evaluate mixtures of S normals, (n, S), at targets (n,)."""
    rows = examples(torch.arange(float(len(y))).unsqueeze(-1), y)
    answer = MeanVariance(law.mean.T, law.variance.T)
    return fit(lambda x: answer, Problem(Linear(), Gaussian(), 1), test=lambda: rows)


def score(name: str, evaluation: Evaluation, **settings: float) -> float:
    return METRICS.build(name, settings)(evaluation)


@pytest.fixture(params=range(4))
def law(request) -> Normal:
    """Return components that are near or far from one another, with deviations from a hundredth to a hundred."""
    return Normal(3 * normal(request.param, N, S), (1.5 * normal(request.param + 10, N, S)).exp())


@pytest.fixture
def y() -> Tensor:
    """Return targets of which some are far beyond all components."""
    return 5 * normal(20, N) * torch.linspace(0.1, 30, N, dtype=torch.float64)


def test_crps_is_that_of_scoringrules(law, y):
    scoringrules = pytest.importorskip("scoringrules")
    expected = scoringrules.crps_mixnorm(y.numpy(), law.mean.numpy(), law.stddev.numpy())
    np.testing.assert_allclose(crps(law, y).numpy(), expected, rtol=1e-10)
    assert score("crps", answered(law, y)) == pytest.approx(expected.mean(), rel=1e-10)


def test_crps_is_the_integral_of_squared_errors_of_the_distribution_function():
    mean, sd, at = np.array([-1.0, 0.5, 4.0]), np.array([0.5, 2.0, 1.0]), 1.3

    def squared(t: float) -> float:
        return (stats.norm(mean, sd).cdf(t).mean() - (t >= at)) ** 2

    parts = [integrate.quad(squared, *ends, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for ends in ((-20, at), (at, 25))]
    law = Normal(torch.from_numpy(mean)[None], torch.from_numpy(sd)[None])
    assert crps(law, torch.tensor([at], dtype=torch.float64)).item() == pytest.approx(sum(parts), rel=1e-10)


def test_crps_of_one_normal_and_of_a_point():
    """Of a standard normal (sqrt(2) - 1) / sqrt(pi) at its centre; of a point the distance."""
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    assert crps(Normal(0 * one, one), zero).item() == pytest.approx((math.sqrt(2) - 1) / math.sqrt(math.pi), rel=1e-14)
    assert crps(Normal(3 * one, 1e-9 * one), zero).item() == pytest.approx(3, rel=1e-8)


def test_transforms_are_distribution_functions(law, y):
    expected = stats.norm(law.mean.numpy(), law.stddev.numpy()).cdf(y.numpy()[:, None]).mean(1)
    np.testing.assert_allclose(Mixture.of(law).cdf(y).numpy(), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("p", [0.025, 0.3, 0.95])
def test_quantiles_invert_the_distribution_function(law, p):
    mixed = Mixture.of(law)
    np.testing.assert_allclose(mixed.cdf(mixed.icdf(p)).numpy(), p, rtol=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_targets_within_the_interval_are_counted(law, level):
    """Targets near the ends of the intervals; the ends by a root finder of scipy."""
    tails, components = ((1 - level) / 2, (1 + level) / 2), stats.norm(law.mean.numpy(), law.stddev.numpy())
    ends = np.array([[_root(components, i, p) for i in range(N)] for p in tails])
    shares = np.linspace(-0.2, 1.2, N)
    y = torch.from_numpy(ends[0] + shares * (ends[1] - ends[0]))
    evaluation = answered(law, y)
    expected = ((shares > 0) & (shares < 1)).mean()
    assert score("coverage", evaluation, level=level) == pytest.approx(expected, rel=1e-14)
    assert score("interval_width", evaluation, level=level) == pytest.approx((ends[1] - ends[0]).mean(), rel=1e-10)


def _root(components: object, row: int, p: float) -> float:
    from scipy.optimize import brentq

    return brentq(lambda t: components.cdf(t)[row].mean() - p, -1e3, 1e3, xtol=1e-13, rtol=1e-14)


def test_width_of_one_normal():
    one = torch.ones(3, 1, dtype=torch.float64)
    expected = 2 * 2.5 * stats.norm.ppf(0.975)
    assert score("interval_width", answered(Normal(one, 2.5 * one), one[:, 0]), level=0.95) == pytest.approx(
        expected, rel=1e-12
    )


def at_transforms(u: np.ndarray) -> Evaluation:
    """Evaluate a standard normal at targets that have these transforms."""
    zero = torch.zeros(len(u), 1, dtype=torch.float64)
    return answered(Normal(zero, zero + 1), torch.from_numpy(stats.norm.ppf(u)))


@pytest.mark.parametrize("n", [1, 2, 13])
def test_distance_of_transforms_is_the_area_between_distribution_functions(n):
    """By sums of |F_n(t) - t| between all places where the integrand has a kink."""
    u = np.sort(np.random.default_rng(n).uniform(size=n) ** 1.7)

    def gap(t: float) -> float:
        return abs((u <= t).mean() - t)

    kinks = np.unique(np.concatenate([[0, 1], u, np.arange(n) / n]))
    # linear between kinks: the value in the middle counts
    area = sum((b - a) * gap((a + b) / 2) for a, b in pairwise(kinks))
    assert score("pit_distance", at_transforms(u)) == pytest.approx(area, rel=1e-10)


def test_distance_of_transforms_at_its_ends():
    """Evenly spaced ones are 1 / 4n away, which nothing is nearer; all at one side half a unit."""
    even = (np.arange(20) + 0.5) / 20
    assert score("pit_distance", at_transforms(even)) == pytest.approx(1 / 80, rel=1e-10)
    assert score("pit_distance", at_transforms(np.full(5, 1e-12))) == pytest.approx(0.5, rel=1e-9)


def test_components_are_those_of_the_predictions():
    """Of samples of a posterior, in units of 10 around 5: the same draws, averaged, are the predictions."""
    rows = examples(normal(0, N, 2), 5 + 10 * normal(1, N), 10.0, 5.0)
    posterior = DiagonalGaussian(normal(2, 3), normal(3, 3).exp())
    evaluation = fit(
        *(posterior, Problem(Linear(), Gaussian(), 2)), test=lambda: rows, samples=S, hyper={"noise_precision": 0.02}
    )
    assert evaluation.components.mean.shape == (N, S)
    torch.testing.assert_close(evaluation.components.mean.mean(1), evaluation.predictions.mean, rtol=1e-13, atol=0)
    densities = Mixture.of(evaluation.components).log_prob(rows.y)
    torch.testing.assert_close(densities, evaluation.predictions.log_likelihood, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["crps", "coverage", "interval_width", "pit_distance"])
def test_other_distributions_are_refused(name):
    rows, answer = examples(torch.zeros(3, 1), torch.ones(3)), Outputs(torch.zeros(2, 3, 1, dtype=torch.float64))
    evaluation = fit(lambda x: answer, Problem(Linear(), Bernoulli(), 1, 1), test=lambda: rows)
    with pytest.raises(
        InputError, match=f"{name}: the likelihood predicts Bernoulli, not Normal: leave the metric out"
    ):
        score(name, evaluation)
