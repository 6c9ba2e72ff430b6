"""Every verb of every family against dense float64 linear algebra and torch.distributions."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from bdl.posteriors import DiagonalGaussian, FactorAnalysis, FullGaussian, LowRankPrecision

EXACT = {"rtol": 1e-10, "atol": 1e-12}


def normal(*shape, seed=99):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(posterior):
    return MultivariateNormal(posterior.mean(), posterior.covariance(), validate_args=False)


def test_covariance_is_the_declared_one():
    loc, var = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert DiagonalGaussian(loc, var).covariance().tolist() == [[3, 0], [0, 4]]
    assert FactorAnalysis(loc, torch.tensor([[1.0], [2.0]]), var).covariance().tolist() == [[4, 2], [2, 8]]
    assert FullGaussian(loc, torch.tensor([[2.0, 0.0], [1.0, 3.0]])).covariance().tolist() == [
        [4, 2],
        [2, 10],
    ]
    precision = [[4.0, 2.0], [2.0, 8.0]]
    covariance = LowRankPrecision(loc, torch.tensor([[1.0], [2.0]]), var).covariance()
    torch.testing.assert_close(covariance @ torch.tensor(precision), torch.eye(2))


def test_mean_and_dimensions(posterior):
    assert posterior.mean() is posterior.loc
    assert posterior.dim == 6
    assert posterior.noise_dim == (9 if isinstance(posterior, FactorAnalysis) else 6)


def test_log_det_and_precision_diagonal(posterior):
    covariance = posterior.covariance()
    torch.testing.assert_close(posterior.log_det(), torch.linalg.slogdet(covariance).logabsdet, **EXACT)
    expected = torch.linalg.inv(covariance).diagonal()
    torch.testing.assert_close(posterior.precision_diagonal(), expected, **EXACT)


def test_gain_is_precision_times_factors(build):
    q = build("factor-analysis")
    torch.testing.assert_close(q.gain(), torch.linalg.solve(q.covariance(), q.factors), **EXACT)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_log_prob(posterior, shape):
    theta = 2 * normal(*shape, posterior.dim)
    actual = posterior.log_prob(theta)
    assert actual.shape == shape
    torch.testing.assert_close(actual, dense(posterior).log_prob(theta), **EXACT)


def test_entropy_formula(posterior):
    torch.testing.assert_close(posterior.entropy(), dense(posterior).entropy(), **EXACT)


def test_factor_analysis_noise_is_h_then_z(build):
    q = build("factor-analysis")
    rows = q.sample(torch.eye(q.noise_dim, dtype=torch.float64)) - q.loc
    expected = torch.cat([q.factors.mT, q.diag.sqrt().diag()])
    torch.testing.assert_close(rows, expected, **EXACT)


def test_whiten_inverts_sample_by_the_shortest_noise(posterior):
    delta = normal(2, 3, posterior.dim)
    noise = posterior.whiten(delta)
    assert noise.shape == (2, 3, posterior.noise_dim)
    torch.testing.assert_close(posterior.sample(noise), posterior.mean() + delta, **EXACT)
    linear = posterior.sample(torch.eye(posterior.noise_dim, dtype=torch.float64)) - posterior.mean()
    torch.testing.assert_close(noise, delta @ torch.linalg.pinv(linear), **EXACT)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_low_rank_precision_of_every_rank_matches_torch(build, rank):
    q = build("low-rank-precision", rank=rank)
    oracle = MultivariateNormal(q.loc, precision_matrix=q.factors @ q.factors.T + q.diag.diag())
    theta = normal(5, q.dim)
    torch.testing.assert_close(q.log_prob(theta), oracle.log_prob(theta), **EXACT)
    torch.testing.assert_close(q.entropy(), oracle.entropy(), **EXACT)
    torch.testing.assert_close(q.variance(), oracle.variance, **EXACT)
    torch.testing.assert_close(q.covariance(), oracle.covariance_matrix, **EXACT)
    torch.testing.assert_close(q.solve(theta), theta @ oracle.covariance_matrix, **EXACT)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_low_rank_precision_samples_by_a_root_of_the_covariance(build, rank):
    """Exactly, without a sampling error: the rows of sample(I) are A^T, and A A^T is the covariance."""
    q = build("low-rank-precision", rank=rank)
    rows = q.sample(torch.eye(q.noise_dim, dtype=torch.float64)) - q.loc
    torch.testing.assert_close(rows.T @ rows, q.covariance(), **EXACT)


@pytest.mark.parametrize("n_zero", [1, 3])
def test_low_rank_precision_with_zero_columns(build, n_zero):
    """As where SLANG starts: a column of zeros adds nothing."""
    q = build("low-rank-precision", rank=3)
    padded = q._replace(factors=torch.cat([q.factors[:, n_zero:], torch.zeros_like(q.factors[:, :n_zero])], 1))
    bare = FullGaussian.from_covariance(
        q.loc, torch.linalg.inv(q.factors[:, n_zero:] @ q.factors[:, n_zero:].T + q.diag.diag())
    )
    theta = normal(5, q.dim)
    torch.testing.assert_close(padded.log_prob(theta), bare.log_prob(theta), **EXACT)
    rows = padded.sample(torch.eye(q.dim, dtype=torch.float64)) - q.loc
    torch.testing.assert_close(rows.T @ rows, bare.covariance(), **EXACT)


def test_low_rank_precision_solves_in_float32():
    """A precision of condition number 7e10, whose root times the rounding unit 6e-8 is 1.6e-2.

    The error and the solution are measured in posterior standard deviations. Woodbury's formula errs by 0.1.
    """
    column, vector = normal(751, 1, seed=1), normal(751, seed=2)
    q = LowRankPrecision(torch.zeros_like(vector), 1e4 * column, torch.ones_like(vector))
    vector = vector + column.squeeze(1)
    exact = q.solve(vector)
    rounded = LowRankPrecision(*(tensor.float() for tensor in q)).solve(vector.float()).double()
    error = q.whiten(rounded - exact).norm() / q.whiten(exact).norm()
    assert error < 1.6e-2


def test_from_covariance_is_inverse_of_covariance(build):
    covariance = build("factor-analysis").covariance()
    q = FullGaussian.from_covariance(torch.zeros(6, dtype=torch.float64), covariance)
    torch.testing.assert_close(q.covariance(), covariance, **EXACT)
    assert q.check() is q
