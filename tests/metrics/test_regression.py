"""Scores of targets that are numbers against scipy, quadrature and values worked out by hand."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, special, stats
from torch.distributions import Normal

from bdl.errors import InputError
from bdl.metrics import METRICS
from bdl.metrics.evaluation import Evaluation
from bdl.metrics.likelihoods import Nmll
from bdl.metrics.regression import Rmse, Spread
from bdl.metrics.targets import EqualMixture, crps
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.networks import LinearModel
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian
from bdl.posteriors.predictive import MeanVariance, Outputs

from .fits import answered, examples, fit, normal, regression, tensor

S, N = 7, 40
SLOPE = Problem(LinearModel(bias=False), GaussianLikelihood(), 1)


def score(name: str, evaluation: Evaluation, **settings: object) -> float:
    return METRICS.build(name, settings)(evaluation)


def test_rmse_is_of_the_mean_prediction():
    """Means are 2 and 5, errors 1 and -7: sqrt((1 + 49) / 2) = 5, two units of the standardised targets."""
    evaluation = regression(tensor([1, 4], [3, 6]), tensor(1, 12))
    tested = evaluation.tested._replace(y_unit=torch.tensor(2.5))
    evaluation = replace(evaluation, test=lambda: tested)
    assert Rmse()(evaluation) == pytest.approx(5, rel=1e-14)
    assert Rmse(standardised=True)(evaluation) == pytest.approx(2, rel=1e-12)


@pytest.mark.parametrize(("rows", "error"), [("test", 9.0), ("training", 1.0)])
def test_mse_of_one_pass_with_the_mean_parameters(rows, error):
    """f = 2 x at the mean, in units of 10 around 5: 25 for x = 1, whatever the variance of the posterior."""
    tested, trained = (examples(torch.ones(2, 1), tensor(y, y), 10.0, 5.0) for y in (22, 26))
    evaluation = fit(
        DiagonalGaussian(tensor(2), tensor(100)),
        SLOPE,
        test=lambda: tested,
        training=lambda: trained,
    )
    assert score("mse_at_mean", evaluation, rows=rows) == pytest.approx(error)


def test_scores_at_the_mean_are_those_of_a_point():
    """At a weight of 2 two rows of x = 1 are 3 off; samples, of variance 100, are all over."""
    tested, wide = (
        examples(torch.ones(2, 1), tensor(5, -1)),
        DiagonalGaussian(tensor(2), tensor(100)),
    )
    evaluation = fit(wide, SLOPE, test=lambda: tested, samples=50, hyper={"noise_precision": 1.0})
    assert Rmse(at="mean")(evaluation) == pytest.approx(3, rel=1e-6)
    assert Nmll(at="mean")(evaluation) == pytest.approx(
        0.5 * math.log(2 * math.pi) + 4.5, rel=1e-6
    )
    assert abs(Rmse()(evaluation) - 3) > 1e-3


@pytest.fixture(params=range(4))
def law(request) -> Normal:
    """Return components that are near or far from one another, with deviations from a hundredth to a hundred."""
    return Normal(3 * normal(request.param, N, S), (1.5 * normal(request.param + 10, N, S)).exp())


def test_crps_is_the_integral_of_squared_errors_of_the_distribution_function():
    """Of seven normals, and targets within and beyond them."""
    law, y = Normal(3 * normal(0, 6, S), normal(10, 6, S).exp()), 4 * normal(20, 6)

    def by_quadrature(mean: np.ndarray, sd: np.ndarray, at: float) -> float:
        def squared(t: float) -> float:
            return (special.ndtr((t - mean) / sd).mean() - (t >= at)) ** 2

        ends = (-100, at), (at, 100)
        return sum(
            integrate.quad(squared, *end, epsabs=1e-13, epsrel=1e-12, limit=500)[0] for end in ends
        )

    expected = [
        by_quadrature(*row)
        for row in zip(law.mean.numpy(), law.stddev.numpy(), y.tolist(), strict=True)
    ]
    np.testing.assert_allclose(crps(law, y), expected, rtol=1e-9)
    assert score("crps", answered(law, y)) == pytest.approx(np.mean(expected), rel=1e-9)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_targets_within_the_interval_are_counted(law, level):
    """Targets near the ends of the intervals; the ends by a root finder of scipy."""
    components = stats.norm(law.mean.numpy(), law.stddev.numpy())

    def quantile(row: int, p: float) -> float:
        return optimize.brentq(
            lambda t: components.cdf(t)[row].mean() - p, -1e3, 1e3, xtol=1e-13, rtol=1e-14
        )

    low, high = (
        np.array([quantile(row, (1 + side * level) / 2) for row in range(N)]) for side in (-1, 1)
    )
    shares = np.linspace(-0.2, 1.2, N)
    evaluation = answered(law, torch.from_numpy(low + shares * (high - low)))
    inside = ((shares > 0) & (shares < 1)).mean()
    assert score("coverage", evaluation, level=level) == pytest.approx(inside, rel=1e-14)
    assert score("interval_width", evaluation, level=level) == pytest.approx(
        (high - low).mean(), rel=1e-10
    )


@pytest.mark.parametrize("n", [1, 2, 13])
def test_distance_of_transforms_is_the_area_between_distribution_functions(n):
    """By sums of |F_n(t) - t| between all places where the integrand has a kink: linear, so that the middle counts."""
    u = np.sort(np.random.default_rng(n).uniform(size=n) ** 1.7)
    kinks = np.unique(np.concatenate([[0, 1], u, np.arange(n) / n]))
    area = sum((b - a) * abs((u <= (a + b) / 2).mean() - (a + b) / 2) for a, b in pairwise(kinks))
    zero = torch.zeros(n, 1, dtype=torch.float64)
    evaluation = answered(Normal(zero, zero + 1), torch.from_numpy(stats.norm.ppf(u)))
    assert score("pit_distance", evaluation) == pytest.approx(area, rel=1e-10)


def test_components_are_those_of_the_predictions():
    """Of samples of a posterior, in units of 10 around 5: the same draws, averaged, are the predictions."""
    rows = examples(normal(0, N, 2), 5 + 10 * normal(1, N), 10.0, 5.0)
    posterior, problem = (
        DiagonalGaussian(normal(2, 3), normal(3, 3).exp()),
        Problem(LinearModel(), GaussianLikelihood(), 2),
    )
    evaluation = fit(
        posterior, problem, test=lambda: rows, samples=S, hyper={"noise_precision": 0.02}
    )
    assert evaluation.components.mean.shape == (N, S)
    torch.testing.assert_close(
        evaluation.components.mean.mean(1), evaluation.predictions.mean, rtol=1e-13, atol=0
    )
    densities = EqualMixture.of(evaluation.components).log_prob(rows.y)
    torch.testing.assert_close(
        densities, evaluation.predictions.log_likelihood, rtol=1e-12, atol=0
    )


WEIGHT = DiagonalGaussian(tensor(1), tensor(4))
QUARTILE = 0.674490  # of the standard normal distribution


def spread(likelihood, low: float, high: float, posterior=WEIGHT, outputs=1) -> float:
    rows = examples(
        tensor([0], [0.5], [1], [3]),
        torch.zeros(4),
        10.0 if isinstance(likelihood, GaussianLikelihood) else 1.0,
    )
    problem = Problem(LinearModel(bias=False), likelihood, 1, outputs)
    found = fit(
        posterior, problem, test=lambda: rows, samples=20_000, hyper={"noise_precision": 1.0}
    )
    return Spread(low, high)(found)


@pytest.mark.parametrize(
    ("low", "high", "scale"), [(0, 0.2, 0.0), (0.9, 1, 1.0), (1, 3, 2.0), (0, 3, 1.125)]
)
def test_spread_of_means_of_targets(low, high, scale):
    """x w has the standard deviation 2 x, times the unit of 10: the noise of targets does not count."""
    assert spread(GaussianLikelihood(), low, high) == pytest.approx(
        2 * QUARTILE * 20 * scale, rel=0.03
    )


def test_spread_of_probabilities():
    """The quartiles of sigmoid(w) are those of w, mapped."""
    upper, lower = torch.sigmoid(1 + 2 * QUARTILE * tensor(1, -1)).tolist()
    assert spread(Bernoulli(), 1, 2) == pytest.approx(upper - lower, rel=0.03)


def test_what_has_no_spread():
    with pytest.raises(
        InputError, match=r"spread: no test row has its first input in \[1.5, 2\]: widen that"
    ):
        spread(GaussianLikelihood(), 1.5, 2)
    with pytest.raises(InputError, match="spread: the model has 2 outputs, not one"):
        spread(Categorical(), 0, 1, DiagonalGaussian(torch.zeros(2), torch.ones(2)), 2)


@pytest.mark.parametrize("name", ["crps", "coverage", "interval_width", "pit_distance"])
def test_other_distributions_are_refused(name):
    evaluation = answered(Outputs(torch.zeros(2, 3, 1).double()), torch.ones(3), Bernoulli())
    with pytest.raises(
        InputError, match=f"^{name}: the likelihood predicts Bernoulli, not Normal: leave the"
    ):
        score(name, evaluation)


@pytest.mark.parametrize("name", ["rmse", "mse_at_mean"])
def test_the_mean_of_a_fit_that_predicts_by_itself_is_refused(name):
    settings = {"at": "mean"} if name == "rmse" else {}
    with pytest.raises(InputError, match="no parameters, and so no mean: leave this score out"):
        score(
            name,
            answered(MeanVariance(tensor([1.0, 2.0]), tensor([1.0, 1.0])), tensor(1.0, 2.0)),
            **settings,
        )
