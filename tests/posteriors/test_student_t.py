"""Student's t against torch.distributions and SciPy."""

import pytest
import torch
from scipy import stats

from bdl.posteriors import DiagonalGaussian, StudentT


def posterior(degrees: float) -> StudentT:
    loc = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float64)
    return StudentT(loc, torch.tensor([0.1, 1.0, 7.0], dtype=torch.float64), torch.tensor(degrees).double()).check()


@pytest.mark.parametrize("degrees", [0.7, 1.0, 3.0, 30.0])
def test_density_and_moments(degrees):
    q = posterior(degrees)
    expected = torch.distributions.StudentT(q.degrees, q.loc, q.scale)
    theta = torch.linspace(-9, 9, 12, dtype=torch.float64).view(4, 3)
    torch.testing.assert_close(q.log_prob(theta), expected.log_prob(theta).sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(q.entropy(), expected.entropy().sum(), rtol=1e-10, atol=0)
    assert torch.equal(q.mean(), q.loc)
    if degrees > 2:
        torch.testing.assert_close(q.variance(), expected.variance, rtol=1e-12, atol=0)
    else:
        assert q.variance().isinf().all()
    torch.testing.assert_close(q.covariance().diagonal(), q.variance())


@pytest.mark.parametrize("degrees", [0.7, 1.0, 3.0, 30.0])
def test_samples(degrees):
    """By the Kolmogorov-Smirnov test, and far out by the share of both tails."""
    q = posterior(degrees)
    noise = torch.randn(50_000, q.noise_dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    t = ((q.sample(noise) - q.loc) / q.scale).flatten().numpy()
    assert stats.kstest(t[:20_000], stats.t(degrees).cdf).pvalue > 0.01
    limit = stats.t(degrees).isf(5e-4)
    assert (abs(t) > limit).mean() == pytest.approx(1e-3, abs=5 * (1e-3 / len(t)) ** 0.5)


@pytest.mark.parametrize("degrees", [1.0, 3.0])
def test_far_draws_are_finite_and_exact_in_single_precision(degrees):
    """Normals of -5.6 to -6.6, one in a hundred million: U is their probability, and V = 1/2 has the cosine -1."""
    first = torch.tensor([-5.6, -6.0, -6.6])
    q = StudentT(torch.zeros(3), torch.ones(3), torch.tensor(degrees))
    u = stats.norm.cdf(first.double().numpy())
    expected = -((degrees * (u ** (-2 / degrees) - 1)) ** 0.5)
    torch.testing.assert_close(
        q.sample(torch.cat([first, torch.zeros(3)])).double(), torch.tensor(expected), rtol=1e-4, atol=0
    )


def test_many_degrees_of_freedom_are_a_gaussian():
    q = posterior(1e8)
    gaussian = DiagonalGaussian(q.loc, q.scale.square())
    theta = q.loc + q.scale * torch.tensor([[0.1, -1.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(q.log_prob(theta), gaussian.log_prob(theta), rtol=1e-6, atol=0)
    torch.testing.assert_close(q.entropy(), gaussian.entropy(), rtol=1e-6, atol=0)
