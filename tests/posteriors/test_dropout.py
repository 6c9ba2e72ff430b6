"""The dropout distribution against a sum over all its values, and its frequencies."""

import itertools
import math

import pytest
import torch

from bdl.posteriors import Dropout

EXACT = {"rtol": 1e-12, "atol": 1e-14}
SOURCE = torch.tensor([0, 1, 0, 1, 4, 4, 2, 3, 4])  # a network 2-2-1
RATE = torch.tensor([0.0, 0.1, 0.5, 0.7], dtype=torch.float64)
UNITS = 4


@pytest.fixture
def posterior():
    loc = torch.randn(9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Dropout(loc, SOURCE, RATE)


@pytest.fixture
def values(posterior):
    """Every theta, (2^U, D), and its probability, (2^U,), by the definition."""
    thetas, probabilities = [], []
    for kept in itertools.product([0.0, 1.0], repeat=UNITS):
        factors = [*(k / (1 - p) for k, p in zip(kept, RATE.tolist(), strict=True)), 1.0]
        thetas.append([value * factors[unit] for value, unit in zip(posterior.loc.tolist(), SOURCE, strict=True)])
        probabilities.append(math.prod(1 - p if k else p for k, p in zip(kept, RATE.tolist(), strict=True)))
    return torch.tensor(thetas, dtype=torch.float64), torch.tensor(probabilities, dtype=torch.float64)


def test_moments_are_sums_over_all_values(posterior, values):
    thetas, probabilities = values
    mean = probabilities @ thetas
    covariance = (thetas - mean).T @ (probabilities.unsqueeze(1) * (thetas - mean))
    torch.testing.assert_close(posterior.mean(), mean, **EXACT)
    torch.testing.assert_close(posterior.covariance(), covariance, **EXACT)
    torch.testing.assert_close(posterior.variance(), covariance.diagonal(), **EXACT)


def test_every_normal_gives_a_value_of_its_probability(posterior, values):
    """A kept unit has noise above its quantile, and a unit of rate 0 cannot be dropped."""
    thetas, probabilities = values
    noise = 9 * torch.tensor(list(itertools.product([-1.0, 1.0], repeat=UNITS)), dtype=torch.float64)
    possible = probabilities > 0
    torch.testing.assert_close(posterior.sample(noise)[possible], thetas[possible], **EXACT)
    torch.testing.assert_close(posterior.log_prob(posterior.sample(noise[possible])).exp(), probabilities[possible])
    assert not (posterior.sample(noise)[:, SOURCE == 0] == 0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_dropped_at_rate_zero(posterior, dtype):
    """Not even for noise whose distribution function underflows."""
    q = Dropout(posterior.loc.to(dtype), SOURCE, torch.zeros(UNITS, dtype=dtype))
    assert torch.equal(q.sample(torch.full((UNITS,), -50.0, dtype=dtype)), q.loc)


def test_probabilities_of_all_values_give_one_and_the_entropy(posterior, values):
    noise = 9 * torch.tensor(list(itertools.product([-1.0, 1.0], repeat=UNITS - 1)), dtype=torch.float64)
    noise = torch.cat([torch.zeros(8, 1).double(), noise], dim=1)  # the first unit is always kept
    log_prob = posterior.log_prob(posterior.sample(noise))
    assert log_prob.shape == (8,)
    assert log_prob.exp().sum().item() == pytest.approx(1, rel=1e-14)
    assert -(log_prob.exp() * log_prob).sum().item() == pytest.approx(posterior.entropy().item(), rel=1e-14)


@pytest.mark.parametrize("index", range(9))
def test_what_is_no_sample_has_no_probability(posterior, index):
    """One entry halved: no mask gives that."""
    theta = posterior.sample(torch.full((UNITS,), 9.0).double())
    assert posterior.log_prob(theta).isfinite()
    theta[index] *= 0.5
    assert posterior.log_prob(theta) == -torch.inf


@pytest.mark.parametrize("rate", [0.005, 0.05, 0.5, 0.9])
def test_units_are_dropped_as_often_as_the_rate_says_and_independently(rate):
    """Within 4.5 standard errors; both weights of a unit always go together."""
    n, units = 100_000, 3
    q = Dropout(torch.ones(6).double(), torch.arange(3).repeat(2), torch.full((units,), rate, dtype=torch.float64))
    theta = q.sample(torch.randn(n, units, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    dropped = (theta == 0).double()
    assert torch.equal(dropped[:, :3], dropped[:, 3:])
    assert set(theta.unique().tolist()) == {0.0, 1 / (1 - rate)}
    variance = rate * (1 - rate)
    assert ((dropped.mean(0) - rate).abs() < 4.5 * (variance / n) ** 0.5).all()
    together = ((dropped[:, 0] - rate) * (dropped[:, 1] - rate)).mean()
    assert abs(together) < 4.5 * variance / n**0.5
