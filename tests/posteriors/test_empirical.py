"""The distribution of draws against numpy, and against the law of the index that picks them."""

import numpy as np
import torch
from scipy import stats

from bdl.posteriors import Empirical


def draws(count: int, dim: int = 3) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_moments_are_those_of_equal_weights():
    q = Empirical(draws(7))
    covariance = np.cov(q.draws.numpy().T, bias=True)
    np.testing.assert_allclose(q.mean(), q.draws.numpy().mean(0), rtol=1e-14)
    np.testing.assert_allclose(q.covariance(), covariance, rtol=1e-12)
    np.testing.assert_allclose(q.variance(), covariance.diagonal(), rtol=1e-12)
    assert (q.dim, q.noise_dim) == (3, 1)


def test_one_draw_is_a_point():
    q = Empirical(torch.tensor([[1.0, 2.0]]))
    assert q.variance().tolist() == [0, 0]
    assert q.covariance().tolist() == [[0, 0], [0, 0]]
    assert q.sample(torch.tensor([[-9.0], [9.0]])).tolist() == [[1, 2], [1, 2]]


def test_equally_probable_noise_picks_each_draw_in_turn():
    """Of four draws the quartiles of the noise decide; the extremes pick the first and the last."""
    q = Empirical(torch.arange(4.0).unsqueeze(-1))
    noise = torch.tensor(stats.norm.ppf([0.01, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 0.99])).unsqueeze(-1)
    assert q.sample(noise).squeeze(-1).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert q.sample(torch.tensor([[-40.0], [40.0]])).squeeze(-1).tolist() == [0, 3]
    assert q.sample(torch.zeros(2, 5, 1)).shape == (2, 5, 1)
