"""Weighted draws against numpy, against draws that are repeated, and against the law of the index that picks them."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bdl.posteriors import Empirical, Weighted


def draws(count: int, dim: int = 3) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def of_weights(weights, dim: int = 3) -> Weighted:
    """Weights up to a factor of e^-1000, which no exponential survives."""
    weights = torch.tensor(weights, dtype=torch.float64)
    return Weighted(draws(len(weights), dim), weights.log() - 1000)


def test_moments_are_those_of_repeated_draws():
    q = of_weights([3, 1, 2, 4, 2])
    repeated = Empirical(q.draws.repeat_interleave(torch.tensor([3, 1, 2, 4, 2]), 0))
    for verb in ("mean", "variance", "covariance"):
        torch.testing.assert_close(getattr(q, verb)(), getattr(repeated, verb)(), rtol=1e-12, atol=1e-14)
    expected = np.cov(q.draws.numpy().T, aweights=[3, 1, 2, 4, 2], ddof=0)
    np.testing.assert_allclose(q.covariance(), expected, rtol=1e-12)
    assert (q.dim, q.noise_dim) == (3, 1)


def test_size_and_evidence():
    """(1 + 2 + 3)^2 / (1 + 4 + 9), and the logarithm of the mean weight."""
    q = of_weights([1, 2, 3])
    assert float(q.effective_size()) == pytest.approx(36 / 14, rel=1e-12)
    assert float(q.log_evidence()) == pytest.approx(math.log(2) - 1000, rel=1e-15)
    torch.testing.assert_close(q.weights(), torch.tensor([1, 2, 3]) / torch.tensor(6.0).double())


@pytest.mark.parametrize(("weights", "size"), [([5, 5, 5, 5], 4), ([1, 1e-300, 1e-300, 1e-300], 1), ([7], 1)])
def test_the_size_is_from_one_to_all(weights, size):
    assert float(of_weights(weights).effective_size()) == pytest.approx(size, rel=1e-12)


def test_equal_weights_are_those_of_draws():
    q, plain = of_weights([1, 1, 1, 1]), Empirical(draws(4))
    noise = torch.tensor(stats.norm.ppf([0.01, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 0.99])).unsqueeze(-1)
    torch.testing.assert_close(q.covariance(), plain.covariance(), rtol=1e-12, atol=1e-14)
    assert torch.equal(q.sample(noise), plain.sample(noise))


def test_noise_picks_by_the_sums_of_the_weights():
    """Sums 0.1, 0.4, 0.4 and 1: what weighs nothing is not picked, not at the ends either."""
    q = Weighted(torch.arange(6.0).unsqueeze(-1), torch.tensor([0, 0.1, 0.3, 1e-300, 0.6, 1e-300]).double().log())
    noise = torch.tensor(stats.norm.ppf([0.01, 0.09, 0.11, 0.39, 0.41, 0.99])).unsqueeze(-1)
    assert q.sample(noise).squeeze(-1).tolist() == [1, 1, 2, 2, 4, 4]
    assert q.sample(torch.tensor([[-40.0], [40.0]])).squeeze(-1).tolist() == [1, 4]
    assert q.sample(torch.zeros(2, 5, 1)).shape == (2, 5, 1)
    assert q._replace(draws=q.draws.float(), log_weights=q.log_weights.float()).sample(noise.float()).shape == (6, 1)
