"""Scores of a Gaussian likelihood against scipy, the formulas of old, and values worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import special, stats

from bdl.metrics import METRICS
from bdl.metrics.likelihoods import JointNll, Nmll
from bdl.metrics.regression import Rmse
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian

from .fits import examples, fit, regression


def nmll(f: torch.Tensor, y: torch.Tensor, beta: float) -> float:
    return Nmll()(regression(f, y, beta))


def joint_nll(f: torch.Tensor, y: torch.Tensor, beta: float) -> float:
    return JointNll()(regression(f, y, beta))


@pytest.fixture
def f() -> torch.Tensor:
    """Return outputs of 7 posterior samples at 5 points."""
    return 2 * torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def y() -> torch.Tensor:
    return torch.tensor([0.3, -1.0, 2.5, 4.0, -30.0], dtype=torch.float64)


def mixture(f: torch.Tensor, y: torch.Tensor, beta: float) -> float:
    """Minus the mean over points of the log-density of an equal mixture of normals."""
    densities = stats.norm(f.numpy(), beta**-0.5).logpdf(y.numpy())
    return float(-np.mean(special.logsumexp(densities, axis=0) - np.log(len(f))))


@pytest.mark.parametrize("beta", [1e-4, 0.3, 100.0])
def test_nmll_is_that_of_a_mixture_of_normals(f, y, beta):
    assert nmll(f, y, beta) == pytest.approx(mixture(f, y, beta), rel=1e-12)


def test_nmll_of_one_exact_sample_is_the_entropy_term(y):
    """With f = y only log sqrt(2 pi / beta) is left."""
    assert nmll(y[None], y, 4.0) == pytest.approx(0.5 * math.log(2 * math.pi / 4), rel=1e-14)


def test_nmll_mixes_at_each_point_on_its_own():
    """Of two samples each fits one of two far-off points; a joint mixture would give half of 100^2 / 2 instead."""
    f = torch.tensor([[0.0, 100.0], [100.0, 0.0]], dtype=torch.float64)
    y = torch.zeros(2, dtype=torch.float64)
    expected = math.log(2) + 0.5 * math.log(2 * math.pi)
    assert nmll(f, y, 1.0) == pytest.approx(expected, rel=1e-14)


def test_nmll_stays_finite_where_every_density_underflows():
    f, y = torch.zeros(3, 1, dtype=torch.float64), torch.full((1,), 1e4, dtype=torch.float64)
    assert nmll(f, y, 1.0) == pytest.approx(0.5e8 + 0.5 * math.log(2 * math.pi), rel=1e-14)


@pytest.mark.parametrize("beta", [1e-4, 0.3, 100.0])
def test_joint_nll_is_that_of_a_mixture_of_products(f, y, beta):
    joint = stats.norm(f.numpy(), beta**-0.5).logpdf(y.numpy()).sum(1)
    expected = -(special.logsumexp(joint) - np.log(7)) / 5
    assert joint_nll(f, y, beta) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", [nmll, joint_nll])
def test_one_sample_gives_its_mean_negative_log_density(metric, f, y):
    """The two scores part only where there are samples to average."""
    expected = -stats.norm(f[0].numpy(), 0.3**-0.5).logpdf(y.numpy()).mean()
    assert metric(f[:1], y, 0.3) == pytest.approx(expected, rel=1e-14)


def test_joint_nll_mixes_all_points_together():
    """Each of two samples misses one of two points by 100: log 2 cancels, and half of 100^2 / 2 is left a point."""
    f = torch.tensor([[0.0, 100.0], [100.0, 0.0]], dtype=torch.float64)
    expected = 0.5 * 100**2 / 2 + 0.5 * math.log(2 * math.pi)
    assert joint_nll(f, torch.zeros(2).double(), 1.0) == pytest.approx(expected, rel=1e-14)


def test_joint_nll_may_be_below_nmll():
    """Of two equal points: the mean of squared densities is above the square of their mean."""
    f, y = torch.tensor([[0.0, 0.0], [3.0, 3.0]], dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    ratio = math.exp(-4.5)
    gap = math.log((1 + ratio**2) / 2) / 2 - math.log((1 + ratio) / 2)
    assert gap > 0.3
    difference = nmll(f, y, 1.0) - joint_nll(f, y, 1.0)
    assert difference == pytest.approx(gap, rel=1e-12)


def test_joint_nll_of_a_gaussian_posterior_is_the_gaussian_predictive_density():
    """f_i = theta x_i with theta ~ N(0, v), as a mixture over v's quadrature nodes: y ~ N(0, v x x^T + I / beta)."""
    v, beta, x, y = 0.5, 0.8, np.array([1.0, -0.5, 0.3]), torch.tensor([0.4, 0.2, -0.7], dtype=torch.float64)
    theta = np.sqrt(v) * stats.norm.ppf((np.arange(200_000) + 0.5) / 200_000)  # equal weights: a mean over samples
    expected = -stats.multivariate_normal(np.zeros(3), v * np.outer(x, x) + np.eye(3) / beta).logpdf(y) / 3
    actual = joint_nll(torch.from_numpy(np.outer(theta, x)), y, beta)
    assert actual == pytest.approx(expected, abs=2e-8)  # 200,000 nodes are 7e-9 away, 20,000 are 5e-8


def test_joint_nll_is_bounded_by_the_best_sample(f, y):
    best = min(nmll(row[None], y, 0.3) for row in f)
    assert best <= joint_nll(f, y, 0.3) <= best + math.log(7) / 5


def test_rmse_is_of_the_mean_prediction():
    """Means are 2 and 5, errors 1 and -7: sqrt((1 + 49) / 2) = 5."""
    f = torch.tensor([[1.0, 4.0], [3.0, 6.0]])
    assert Rmse()(regression(f, torch.tensor([1.0, 12.0]))) == pytest.approx(5.0, rel=1e-14)


def log_densities(f: torch.Tensor, y: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    return 0.5 * (beta.log() - math.log(2 * math.pi) - beta * (y - f).square())


@pytest.mark.parametrize("beta", [1e-4, 0.3, 100.0])
def test_scores_are_the_formulas_that_published_rows_were_made_by(f, y, beta):
    """Float32 outputs, float64 targets and precision."""
    f = f.float().double()
    evaluation, own = regression(f, y, beta), log_densities(f, y, torch.tensor(beta, dtype=torch.float64))
    expected = {
        Nmll(): math.log(len(f)) - own.logsumexp(0).mean(),
        JointNll(): (math.log(len(f)) - own.sum(1).logsumexp(0)) / len(y),
        Rmse(): (f.mean(0) - y).square().mean().sqrt(),
    }
    for score, value in expected.items():
        assert score(evaluation) == pytest.approx(value.item(), rel=1e-13)


def test_rmse_in_standard_deviations_of_the_training_targets(f):
    """The unit of the targets, 2.5, divides it."""
    y = torch.arange(5.0, dtype=torch.float64)
    evaluation = regression(f, y)
    tested = evaluation.tested._replace(y_unit=torch.tensor(2.5))
    scaled = replace(evaluation, test=lambda: tested)
    assert Rmse(standardised=True)(scaled) == pytest.approx(Rmse()(scaled) / 2.5, rel=1e-12)


@pytest.mark.parametrize(("rows", "error"), [("test", 9.0), ("training", 1.0)])
def test_mse_of_one_pass_with_the_mean_parameters(rows, error):
    """f = 2 x at the mean, in units of 10 around 5: 25 for x = 1, whatever the variance of the posterior."""
    x = torch.ones(2, 1)
    tested, trained = (examples(x, torch.full((2,), 25 - distance), 10.0, 5.0) for distance in (3.0, -1.0))
    posterior = DiagonalGaussian(torch.tensor([2.0]), torch.tensor([100.0]))
    problem = Problem(Linear(bias=False), Gaussian(), 1)
    score = METRICS.build("mse_at_mean", {"rows": rows})
    assert score(fit(posterior, problem, test=lambda: tested, training=lambda: trained)) == pytest.approx(error)


def test_scores_at_the_mean_are_those_of_a_point():
    """At a weight of 2 two rows of x = 1 are 3 off; samples, of variance 100, are all over."""
    x = torch.ones(2, 1)
    tested = examples(x, torch.tensor([5.0, -1.0]))
    posterior, problem = (
        DiagonalGaussian(torch.tensor([2.0]), torch.tensor([100.0])),
        Problem(Linear(bias=False), Gaussian(), 1),
    )
    evaluation = fit(posterior, problem, test=lambda: tested, samples=50, hyper={"noise_precision": 1.0})
    assert Rmse(at="mean")(evaluation) == pytest.approx(3, rel=1e-6)
    assert Nmll(at="mean")(evaluation) == pytest.approx(0.5 * math.log(2 * math.pi) + 4.5, rel=1e-6)
    assert abs(Rmse()(evaluation) - 3) > 1e-3
    assert Nmll()(evaluation) < Nmll(at="mean")(evaluation) - 1  # 3 is little beside a deviation of 10
