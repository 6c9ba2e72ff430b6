"""Draws, weighted draws and dropout: against numpy, sums over all values, and the law of what picks a value."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from bdl.posteriors import Dropout, Empirical, Weighted

from .conftest import normals

EXACT = {"rtol": 1e-12, "atol": 1e-14}
QUARTERS = torch.tensor(
    stats.norm.ppf([0.01, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 0.99])
).unsqueeze(-1)
FAR = torch.tensor([[-40.0], [40.0]])


def of_weights(weights) -> Weighted:
    """Weights up to a factor of e^-1000, which no exponential survives."""
    return Weighted(
        normals(len(weights), 3), torch.tensor(weights, dtype=torch.float64).log() - 1000
    )


@pytest.mark.parametrize("weights", [None, [3, 1, 2, 4, 2]])
def test_moments_of_draws(weights):
    q = Empirical(normals(5, 3)) if weights is None else of_weights(weights)
    np.testing.assert_allclose(q.mean(), np.average(q.draws.numpy(), 0, weights), rtol=1e-12)
    covariance = np.cov(q.draws.numpy().T, aweights=weights, ddof=0)
    np.testing.assert_allclose(q.covariance(), covariance, rtol=1e-12)
    np.testing.assert_allclose(q.variance(), covariance.diagonal(), rtol=1e-12)


def test_equally_probable_noise_picks_each_draw_in_turn():
    q = Empirical(torch.arange(4.0).unsqueeze(-1))
    assert q.sample(QUARTERS).squeeze(-1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert q.sample(FAR).squeeze(-1).tolist() == [0, 3]
    assert torch.equal(Weighted(q.draws, -torch.ones(4)).sample(QUARTERS), q.sample(QUARTERS))


def test_noise_picks_by_the_sums_of_the_weights():
    """Sums 0.1, 0.4, 0.4 and 1: what weighs nothing is not picked, not at the ends either."""
    q = Weighted(
        torch.arange(6.0).unsqueeze(-1),
        torch.tensor([0, 0.1, 0.3, 1e-300, 0.6, 1e-300]).double().log(),
    )
    noise = torch.tensor(stats.norm.ppf([0.01, 0.09, 0.11, 0.39, 0.41, 0.99])).unsqueeze(-1)
    assert q.sample(noise).squeeze(-1).tolist() == [1, 1, 2, 2, 4, 4]
    assert q.sample(FAR).squeeze(-1).tolist() == [1, 4]


@pytest.mark.parametrize(
    ("weights", "size"),
    [([1, 2, 3], 36 / 14), ([5, 5, 5, 5], 4), ([1, 1e-300, 1e-300], 1), ([7], 1)],
)
def test_effective_size_and_evidence(weights, size):
    """(sum r)^2 / sum r^2, and the logarithm of the mean weight."""
    q = of_weights(weights)
    assert float(q.effective_size()) == pytest.approx(size, rel=1e-12)
    assert float(q.log_evidence()) == pytest.approx(math.log(np.mean(weights)) - 1000, rel=1e-15)


SOURCE = torch.tensor([0, 1, 0, 1, 4, 4, 2, 3, 4])  # a network 2-2-1
RATE = torch.tensor([0.0, 0.1, 0.5, 0.7], dtype=torch.float64)
DROPOUT = Dropout(normals(9), SOURCE, RATE)


def test_dropout_is_the_law_of_all_its_masks():
    """A kept unit has noise above its quantile, and a unit of rate 0 cannot be dropped."""
    kept = torch.tensor(list(product([0.0, 1.0], repeat=4)), dtype=torch.float64)
    factors = torch.cat([kept / (1 - RATE), torch.ones(16, 1)], 1)
    thetas, probabilities = (
        DROPOUT.loc * factors[:, SOURCE],
        torch.where(kept > 0, 1 - RATE, RATE).prod(1),
    )
    mean = probabilities @ thetas
    covariance = (thetas - mean).T @ (probabilities.unsqueeze(1) * (thetas - mean))
    torch.testing.assert_close(DROPOUT.mean(), mean, **EXACT)
    torch.testing.assert_close(DROPOUT.covariance(), covariance, **EXACT)
    torch.testing.assert_close(DROPOUT.variance(), covariance.diagonal(), **EXACT)
    possible = probabilities > 0
    samples, p = DROPOUT.sample(18 * kept[possible] - 9), probabilities[possible]
    torch.testing.assert_close(samples, thetas[possible], **EXACT)
    torch.testing.assert_close(DROPOUT.log_prob(samples), p.log(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(DROPOUT.entropy(), -(p * p.log()).sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_dropped_at_rate_zero(dtype):
    """Not even for noise whose distribution function underflows."""
    q = Dropout(DROPOUT.loc.to(dtype), SOURCE, torch.zeros(4, dtype=dtype))
    assert torch.equal(q.sample(torch.full((4,), -50.0, dtype=dtype)), q.loc)


def test_what_is_no_sample_has_no_probability():
    """One entry halved: no mask gives that."""
    theta = DROPOUT.sample(torch.full((4,), 9.0).double())
    assert DROPOUT.log_prob(theta).isfinite()
    assert (DROPOUT.log_prob(theta * (1 - 0.5 * torch.eye(9))) == -torch.inf).all()
