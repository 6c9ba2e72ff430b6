"""Noise variances from 1e-6 to 1e3 in float64, against fifty-digit arithmetic.

The oracle is mpmath, which every installation of torch brings along (through sympy).
"""

import mpmath
import pytest
import torch

from bdl.posteriors import DiagonalGaussian, FactorAnalysis, FullGaussian, LowRankPrecision, kl_divergence

DIM, RANK = 10, 3
TOLERANCE = 1e-9  # condition number 1e9 times the precision 1e-16, with two digits to spare


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


def hard(seed):
    """Spread psi over nine decades in random order; factors of size one."""
    generator = torch.Generator().manual_seed(seed)
    psi = torch.logspace(-6, 3, DIM, dtype=torch.float64)[torch.randperm(DIM, generator=generator)]
    loc = torch.randn(DIM, generator=generator, dtype=torch.float64)
    return FactorAnalysis(loc, torch.randn(DIM, RANK, generator=generator, dtype=torch.float64), psi)


def exact_covariance(q):
    factors = mpmath.matrix(q.factors.tolist())
    return factors * factors.T + mpmath.diag(q.diag.tolist())


def exact_kl(q, p, q_covariance, p_covariance):
    inverse = p_covariance**-1
    shift = mpmath.matrix(q.loc.tolist()) - mpmath.matrix(p.loc.tolist())
    product = inverse * q_covariance
    trace = mpmath.fsum(product[i, i] for i in range(DIM))
    log_ratio = mpmath.log(mpmath.det(p_covariance) / mpmath.det(q_covariance))
    return float((trace + (shift.T * inverse * shift)[0] - DIM + log_ratio) / 2)


@pytest.mark.parametrize("seed", range(3))
def test_factor_analysis_verbs(seed):
    q = hard(seed)
    covariance = exact_covariance(q)
    inverse = covariance**-1
    log_det = float(mpmath.log(mpmath.det(covariance)))
    assert q.log_det().item() == pytest.approx(log_det, abs=1e-11)  # of terms near 35
    delta = torch.linspace(-1, 1, DIM, dtype=torch.float64)
    column = mpmath.matrix(delta.tolist())
    squared = float((column.T * inverse * column)[0])
    assert q.whiten(delta).square().sum().item() == pytest.approx(squared, rel=1e-13)
    diagonal = [float(inverse[i, i]) for i in range(DIM)]
    assert q.precision_diagonal().tolist() == pytest.approx(diagonal, rel=TOLERANCE)


@pytest.mark.parametrize("seed", range(3))
def test_low_rank_precision_verbs(seed):
    q = LowRankPrecision(*hard(seed))
    precision = exact_covariance(hard(seed))
    covariance = precision**-1
    log_det = float(-mpmath.log(mpmath.det(precision)))
    assert q.log_det().item() == pytest.approx(log_det, abs=1e-11)
    delta = torch.linspace(-1, 1, DIM, dtype=torch.float64)
    column = mpmath.matrix(delta.tolist())
    assert q.whiten(delta).square().sum().item() == pytest.approx(float((column.T * precision * column)[0]), rel=1e-13)
    solution = list(map(float, covariance * column))
    assert q.solve(delta).tolist() == pytest.approx(solution, rel=TOLERANCE)
    assert q.variance().tolist() == pytest.approx([float(covariance[i, i]) for i in range(DIM)], rel=TOLERANCE)


@pytest.mark.parametrize("seed", range(3))
def test_low_rank_precision_kl(seed):
    q, p = LowRankPrecision(*hard(seed)), hard(seed + 10)
    q_covariance, p_covariance = exact_covariance(hard(seed)) ** -1, exact_covariance(p)
    assert kl_divergence(q, p).item() == pytest.approx(exact_kl(q, p, q_covariance, p_covariance), rel=TOLERANCE)
    assert kl_divergence(p, q).item() == pytest.approx(exact_kl(p, q, p_covariance, q_covariance), rel=TOLERANCE)
    assert abs(kl_divergence(q, q).item()) < DIM * TOLERANCE  # DIM differences, each of terms up to 1e9


@pytest.mark.parametrize("seed", range(3))
def test_factor_analysis_kl(seed):
    q, p = hard(seed), hard(seed + 10)
    mean_field = DiagonalGaussian(p.loc, p.diag)
    q_covariance, p_covariance = exact_covariance(q), exact_covariance(p)
    diagonal = mpmath.diag(p.diag.tolist())
    for first, second, *covariances in (
        (q, p, q_covariance, p_covariance),
        (q, mean_field, q_covariance, diagonal),
        (mean_field, q, diagonal, q_covariance),
    ):
        expected = exact_kl(first, second, *covariances)
        assert kl_divergence(first, second).item() == pytest.approx(expected, rel=TOLERANCE)
    assert abs(kl_divergence(q, q).item()) < TOLERANCE


@pytest.mark.parametrize("seed", range(3))
def test_full_kl(seed):
    """L with a diagonal over five decades, so that L L^T spans ten."""
    generator = torch.Generator().manual_seed(seed)
    p = hard(seed)
    lower = torch.randn(DIM, DIM, generator=generator, dtype=torch.float64).tril(-1)
    scales = torch.logspace(-3, 1.5, DIM, dtype=torch.float64)
    q = FullGaussian(p.loc + 1, scales.unsqueeze(-1) * lower + scales.diag())
    factor = mpmath.matrix(q.scale_tril.tolist())
    q_covariance, p_covariance = factor * factor.T, exact_covariance(p)
    assert kl_divergence(q, p).item() == pytest.approx(exact_kl(q, p, q_covariance, p_covariance), rel=TOLERANCE)
    assert kl_divergence(p, q).item() == pytest.approx(exact_kl(p, q, p_covariance, q_covariance), rel=TOLERANCE)
