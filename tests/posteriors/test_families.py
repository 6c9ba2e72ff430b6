"""Every verb of every family against dense float64 linear algebra, torch.distributions and SciPy."""

import pytest
import torch
from scipy import stats
from torch import distributions
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal
from torch.utils._python_dispatch import TorchDispatchMode

from bdl.posteriors import (
    DiagonalGaussian,
    FactorAnalysis,
    FullGaussian,
    LastLayer,
    LowRankPrecision,
    Scaled,
    StudentT,
)

from .conftest import build, normals

EXACT = {"rtol": 1e-10, "atol": 1e-12}


def test_covariance_is_the_declared_one():
    loc, var, column = (
        torch.tensor([1.0, 2.0]),
        torch.tensor([3.0, 4.0]),
        torch.tensor([[1.0], [2.0]]),
    )
    assert DiagonalGaussian(loc, var).covariance().tolist() == [[3, 0], [0, 4]]
    assert FactorAnalysis(loc, column, var).covariance().tolist() == [[4, 2], [2, 8]]
    assert FullGaussian(loc, torch.tensor([[2.0, 0.0], [1.0, 3.0]])).covariance().tolist() == [
        [4, 2],
        [2, 10],
    ]
    covariance = LowRankPrecision(loc, column, var).covariance()
    torch.testing.assert_close(covariance @ torch.tensor([[4.0, 2.0], [2.0, 8.0]]), torch.eye(2))


def test_gaussians_against_dense_algebra(family):
    q, theta = build(family), 2 * normals(2, 3, 6)
    dense = MultivariateNormal(q.mean(), q.covariance(), validate_args=False)
    torch.testing.assert_close(
        q.log_det(), torch.linalg.slogdet(q.covariance()).logabsdet, **EXACT
    )
    torch.testing.assert_close(
        q.precision_diagonal(), torch.linalg.inv(q.covariance()).diagonal(), **EXACT
    )
    torch.testing.assert_close(q.log_prob(theta), dense.log_prob(theta), **EXACT)
    torch.testing.assert_close(q.entropy(), dense.entropy(), **EXACT)
    assert q.log_prob(theta[:0]).shape == (0, 3)


def test_whiten_inverts_sample_by_the_shortest_noise(family):
    """And samples have exactly the covariance: the rows of sample(I) are A^T, and A A^T is it."""
    q, delta = build(family), normals(2, 3, 6)
    noise, rows = q.whiten(delta), q.sample(torch.eye(q.noise_dim, dtype=torch.float64)) - q.mean()
    torch.testing.assert_close(q.sample(noise), q.mean() + delta, **EXACT)
    torch.testing.assert_close(noise, delta @ torch.linalg.pinv(rows), **EXACT)
    torch.testing.assert_close(rows.T @ rows, q.covariance(), **EXACT)


def test_factor_analysis_has_noise_h_then_z_and_a_gain():
    q = build("factor-analysis")
    rows = q.sample(torch.eye(q.noise_dim, dtype=torch.float64)) - q.loc
    torch.testing.assert_close(rows, torch.cat([q.factors.mT, q.diag.sqrt().diag()]), **EXACT)
    torch.testing.assert_close(q.gain(), torch.linalg.solve(q.covariance(), q.factors), **EXACT)


@pytest.mark.parametrize(("rank", "zeros"), [(1, 0), (6, 0), (3, 1), (3, 3)])
def test_low_rank_precision_of_every_rank(rank, zeros):
    """A column of zeros, as where SLANG starts, adds nothing."""
    q = build("low-rank-precision", rank=rank)
    q.factors[:, :zeros] = 0
    oracle = MultivariateNormal(q.loc, precision_matrix=q.factors @ q.factors.T + q.diag.diag())
    theta, rows = normals(5, q.dim), q.sample(torch.eye(q.dim, dtype=torch.float64)) - q.loc
    torch.testing.assert_close(q.log_prob(theta), oracle.log_prob(theta), **EXACT)
    torch.testing.assert_close(q.variance(), oracle.variance, **EXACT)
    torch.testing.assert_close(q.covariance(), oracle.covariance_matrix, **EXACT)
    torch.testing.assert_close(q.solve(theta), theta @ oracle.covariance_matrix, **EXACT)
    torch.testing.assert_close(rows.T @ rows, oracle.covariance_matrix, **EXACT)
    torch.testing.assert_close(
        torch.func.vmap(q.solve)(theta), q.solve(theta), rtol=1e-12, atol=1e-13
    )


def test_low_rank_precision_solves_in_float32():
    """A precision of condition number 7e10, whose root times the rounding unit 6e-8 is 1.6e-2.

    The error and the solution are measured in posterior standard deviations. Woodbury's formula
    errs by 0.1.
    """
    column, vector = normals(751, 1, seed=1), normals(751, seed=2)
    q = LowRankPrecision(torch.zeros_like(vector), 1e4 * column, torch.ones_like(vector))
    vector = vector + column.squeeze(1)
    exact = q.solve(vector)
    rounded = LowRankPrecision(*(tensor.float() for tensor in q)).solve(vector.float()).double()
    error = q.whiten(rounded - exact).norm() / q.whiten(exact).norm()
    assert error < 1.6e-2


def test_from_covariance_is_inverse_of_covariance():
    covariance = build("factor-analysis").covariance()
    q = FullGaussian.from_covariance(torch.zeros(6, dtype=torch.float64), covariance)
    torch.testing.assert_close(q.check().covariance(), covariance, **EXACT)


def test_mixtures_are_those_of_torch():
    q, theta = build("mixture"), normals(5, 6)
    each = LowRankMultivariateNormal(q.locs, q.factors, q.diags)
    law = distributions.MixtureSameFamily(distributions.Categorical(torch.ones(3).double()), each)
    torch.testing.assert_close(q.log_prob(theta), law.log_prob(theta), **EXACT)
    torch.testing.assert_close(q.mean(), law.mean, **EXACT)
    torch.testing.assert_close(q.variance(), law.variance, **EXACT)


def test_a_sample_of_a_mixture_is_that_of_the_component_in_which_its_first_normal_falls():
    q, noise = build("mixture"), normals(100, 10)
    noise[0, 0] = 40  # whose quantile is 1
    quantiles = torch.special.ndtr(noise[:, 0])
    for row, quantile, sample in zip(noise, quantiles, q.sample(noise), strict=True):
        expected = q.components()[min(int(3 * quantile), 2)].sample(row[1:])
        # One row is multiplied by other instructions than many are.
        torch.testing.assert_close(sample, expected, rtol=1e-12, atol=1e-12)


LAST = LastLayer(
    torch.tensor([7.0, 1.0, -1.0]).double(), torch.tensor([[2.0, 0.0], [1.0, 0.5]]).double()
)


def test_samples_of_a_last_layer_are_the_mean_and_the_inverse_transposed_root():
    noise = torch.eye(2, dtype=torch.float64)  # R^-T is ((1/2, -1), (0, 2))
    assert LAST.sample(noise).tolist() == [[7, 1.5, -1], [7, 0, 1]]


@pytest.mark.parametrize("shape", [(2,), (100, 2), (3, 5, 2)])
def test_samples_of_a_last_layer_do_not_copy_the_matrix(shape):
    given = []

    class Solves(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.linalg_solve_triangular.default:
                given.append(
                    (args[0].ndim, args[1].ndim)
                )  # more dimensions of either are copies of the other
            return function(*args, **(kwargs or {}))

    with Solves():
        LAST.sample(torch.ones(shape).double())
    assert given == [(2, 2)]


def vector(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


SCALED = Scaled(
    normals(4),
    vector(0.5, 1.0, 0.2, 2.0),
    normals(3, seed=2),
    vector(0.05, 0.1, 0.2),
    torch.tensor([[0, 0, 1, 3], [2, 1, 2, 3]]),
).check()


def test_a_scaled_sample_is_the_product():
    noise = normals(5, SCALED.noise_dim)
    w = SCALED.loc + SCALED.var.sqrt() * noise[:, :4]
    s = (SCALED.log_loc + SCALED.log_var.sqrt() * noise[:, 4:]).exp()
    factor = torch.stack(
        [s[:, 0] * s[:, 2], s[:, 0] * s[:, 1], s[:, 1] * s[:, 2], torch.ones(5)], 1
    )
    torch.testing.assert_close(SCALED.sample(noise), w * factor, **EXACT)


def test_scales_that_are_known_leave_a_gaussian():
    sure, m = SCALED._replace(log_var=torch.full_like(SCALED.log_var, 1e-14)), SCALED.log_loc
    factor = torch.stack([m[0] + m[2], m[0] + m[1], m[1] + m[2], 0 * m[0]]).exp()
    torch.testing.assert_close(sure.mean(), sure.loc * factor, **EXACT)
    torch.testing.assert_close(sure.covariance(), (sure.var * factor.square()).diag(), **EXACT)


def student_t(degrees: float) -> StudentT:
    return StudentT(
        vector(0.5, -2.0, 3.0), vector(0.1, 1.0, 7.0), torch.tensor(degrees).double()
    ).check()


@pytest.mark.parametrize("degrees", [0.7, 3.0, 30.0])
def test_students_t_is_that_of_torch(degrees):
    q, theta = student_t(degrees), torch.linspace(-9, 9, 12, dtype=torch.float64).view(4, 3)
    expected = distributions.StudentT(q.degrees, q.loc, q.scale)
    torch.testing.assert_close(q.log_prob(theta), expected.log_prob(theta).sum(-1), **EXACT)
    torch.testing.assert_close(q.entropy(), expected.entropy().sum(), **EXACT)
    torch.testing.assert_close(q.variance(), expected.variance.nan_to_num(torch.inf), **EXACT)


@pytest.mark.parametrize("degrees", [0.7, 3.0])
def test_samples_of_students_t(degrees):
    """By the Kolmogorov-Smirnov test, and far out by the share of both tails."""
    q = student_t(degrees)
    t = ((q.sample(normals(50_000, q.noise_dim)) - q.loc) / q.scale).flatten().numpy()
    assert stats.kstest(t[:20_000], stats.t(degrees).cdf).pvalue > 0.01
    limit = stats.t(degrees).isf(5e-4)
    assert (abs(t) > limit).mean() == pytest.approx(1e-3, abs=5 * (1e-3 / len(t)) ** 0.5)


@pytest.mark.parametrize("degrees", [1.0, 3.0])
def test_far_draws_of_students_t_are_finite_and_exact_in_single_precision(degrees):
    """Normals of -5.6 to -6.6, one in a hundred million: U is their probability, and V = 1/2 has the cosine -1."""
    first = torch.tensor([-5.6, -6.0, -6.6])
    q = StudentT(torch.zeros(3), torch.ones(3), torch.tensor(degrees))
    u = stats.norm.cdf(first.double().numpy())
    expected = torch.tensor(-((degrees * (u ** (-2 / degrees) - 1)) ** 0.5))
    found = q.sample(torch.cat([first, torch.zeros(3)])).double()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
