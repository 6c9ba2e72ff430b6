"""Gaussian parameters with shared log-normal scales: moments against draws and closed forms."""

import pytest
import torch

from bdl.posteriors import DiagonalGaussian, Scaled

SOURCE = torch.tensor([[0, 0, 1, 3], [2, 1, 2, 3]])


@pytest.fixture
def q() -> Scaled:
    generator = torch.Generator().manual_seed(2)
    loc, log_loc = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (4, 3))
    var, log_var = (torch.tensor(v, dtype=torch.float64) for v in ([0.5, 1.0, 0.2, 2.0], [0.05, 0.1, 0.2]))
    return Scaled(loc, var, log_loc, log_var, SOURCE).check()


def test_a_sample_is_the_product(q):
    noise = torch.randn(5, q.noise_dim, dtype=torch.float64)
    w = q.loc + q.var.sqrt() * noise[:, :4]
    s = (q.log_loc + q.log_var.sqrt() * noise[:, 4:]).exp()
    expected = torch.stack(
        [w[:, 0] * s[:, 0] * s[:, 2], w[:, 1] * s[:, 0] * s[:, 1], w[:, 2] * s[:, 1] * s[:, 2], w[:, 3]]
    )
    torch.testing.assert_close(q.sample(noise), expected.T, rtol=1e-12, atol=1e-12)


def test_scales_that_are_known_leave_a_gaussian(q):
    sure = q._replace(log_var=torch.full_like(q.log_var, 1e-14))
    factor = torch.stack([q.log_loc[[0, 2]].sum(), q.log_loc[:2].sum(), q.log_loc[1:].sum(), 0 * q.loc[0]]).exp()
    expected = DiagonalGaussian(q.loc * factor, q.var * factor.square())
    torch.testing.assert_close(sure.mean(), expected.mean(), rtol=1e-10, atol=0)
    torch.testing.assert_close(sure.covariance(), expected.covariance(), rtol=1e-10, atol=1e-12)


def test_parameters_that_share_a_scale_are_correlated(q):
    assert q.covariance()[0, 1].abs() > 0.01
    assert (q.covariance()[3, :3] == 0).all()
