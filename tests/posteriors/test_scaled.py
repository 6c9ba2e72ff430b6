"""Gaussian parameters with shared log-normal scales: moments against draws and closed forms."""

import pytest
import torch

from bdl.errors import InputError
from bdl.posteriors import DiagonalGaussian, Scaled, from_tensors, to_tensors

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


def test_moments_are_those_of_draws(q):
    """Within five standard errors, estimated from a hundred batches."""
    noise = torch.randn(100, 10_000, q.noise_dim, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    draws = q.sample(noise)
    means, deltas = draws.mean(1), draws - q.mean()
    covariances = deltas.mT @ deltas / draws.shape[1]
    for found, expected in ((means, q.mean()), (covariances, q.covariance())):
        assert ((found.mean(0) - expected).abs() < 5 * found.std(0) / 10).all()
    torch.testing.assert_close(q.variance(), q.covariance().diagonal(), rtol=1e-12, atol=0)
    assert q.covariance()[0, 1].abs() > 0.01, "they share a scale"
    assert (q.covariance()[3, :3] == 0).all()


def test_scales_that_are_known_leave_a_gaussian(q):
    sure = q._replace(log_var=torch.full_like(q.log_var, 1e-14))
    factor = torch.stack([q.log_loc[[0, 2]].sum(), q.log_loc[:2].sum(), q.log_loc[1:].sum(), 0 * q.loc[0]]).exp()
    expected = DiagonalGaussian(q.loc * factor, q.var * factor.square())
    torch.testing.assert_close(sure.mean(), expected.mean(), rtol=1e-10, atol=0)
    torch.testing.assert_close(sure.covariance(), expected.covariance(), rtol=1e-10, atol=1e-12)


def test_as_tensors_and_under_vmap(q):
    name, tensors = to_tensors(q)
    assert name == "scaled"
    assert all(torch.equal(a, b) for a, b in zip(from_tensors(name, tensors), q, strict=True))
    noise = torch.randn(2, q.noise_dim, dtype=torch.float64)
    stacked = Scaled(*(torch.stack([leaf, leaf]) for leaf in q))
    together = torch.func.vmap(lambda one, z: one.sample(z))(stacked, noise)
    torch.testing.assert_close(together, q.sample(noise))


def test_what_has_no_closed_form_is_refused(q):
    with pytest.raises(InputError, match="no closed density"):
        q.log_prob(q.loc)
    with pytest.raises(InputError, match="no closed entropy"):
        q.entropy()


def test_bad_values_are_refused(q):
    for bad in (q._replace(source=SOURCE + 1), q._replace(log_var=-q.log_var), q._replace(source=SOURCE[:, :2])):
        with pytest.raises(InputError):
            bad.check()
