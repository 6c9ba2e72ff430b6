"""The Kullback-Leibler divergence of all pairs of families, also where the condition is bad."""

import mpmath
import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.distributions import kl_divergence as torch_kl
from torch.func import vmap

from bdl.posteriors import (
    DiagonalGaussian,
    FactorAnalysis,
    FullGaussian,
    LowRankPrecision,
    kl_divergence,
)

from .conftest import build, normals, stack


def test_every_pair_matches_the_dense_formula(family, other_family):
    """And many at once equal a loop."""
    pairs = [(build(family, seed), build(other_family, 100 + seed, rank=2)) for seed in range(3)]
    dense = [[MultivariateNormal(g.mean(), g.covariance()) for g in pair] for pair in pairs]
    expected = torch.stack([torch_kl(*pair) for pair in dense])
    torch.testing.assert_close(
        torch.stack([kl_divergence(*pair) for pair in pairs]), expected, rtol=1e-10, atol=0
    )
    mapped = vmap(kl_divergence)(*map(stack, zip(*pairs, strict=True)))
    torch.testing.assert_close(mapped, expected, rtol=1e-10, atol=0)


def test_is_never_negative_near_its_minimum(family):
    """Second-order growth: KL of a mean shift of size e is e^2 delta^T S^{-1} delta / 2 exactly."""
    q = build(family)
    delta = torch.linspace(-1, 1, q.dim, dtype=torch.float64)
    for size in (1e-1, 1e-3, 1e-5, 0):
        shifted = q._replace(loc=q.loc + size * delta)
        expected = 0.5 * size**2 * delta @ torch.linalg.solve(q.covariance(), delta)
        assert abs(kl_divergence(q, shifted) - expected) < 1e-13


def test_high_dimension_stays_low_rank():
    """Independent blocks add up; a D x D matrix of this size would take 80 GB."""
    extra = 100_000
    small_q, small_p = build("factor-analysis", seed=1), build("factor-analysis", seed=2, rank=2)
    wide_q, wide_p = build("diagonal", seed=3, dim=extra), build("diagonal", seed=4, dim=extra)

    def join(small, wide):
        zeros = torch.zeros(extra, small.rank, dtype=torch.float64)
        pairs = (small.loc, wide.loc), (small.factors, zeros), (small.diag, wide.var)
        return FactorAnalysis(*map(torch.cat, pairs))

    expected = kl_divergence(small_q, small_p) + kl_divergence(wide_q, wide_p)
    actual = kl_divergence(join(small_q, wide_q), join(small_p, wide_p))
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


def test_gradients_match_finite_differences(family):
    q, p = build(family, dim=4, rank=2), build(family, seed=1, dim=4, rank=2)
    leaves = [tensor.clone().requires_grad_() for tensor in (*q, *p)]

    def divergence(*tensors):
        return kl_divergence(type(q)(*tensors[: len(q)]), type(p)(*tensors[len(q) :]))

    assert torch.autograd.gradcheck(divergence, leaves)


@pytest.mark.parametrize("field", FactorAnalysis._fields)
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_diverged_posterior_stays_alone(field, poison):
    posteriors, prior = (
        [build("factor-analysis", seed) for seed in range(3)],
        build("diagonal", seed=9),
    )
    expected = torch.stack([kl_divergence(q, prior) for q in posteriors])
    getattr(posteriors[1], field).view(-1)[4] = poison
    divergences = vmap(kl_divergence, in_dims=(0, None))(stack(posteriors), prior)
    assert not divergences[1].isfinite()
    torch.testing.assert_close(divergences[[0, 2]], expected[[0, 2]], rtol=1e-12, atol=0)


DIM = 10
TOLERANCE = 1e-9  # condition number 1e9 times the precision 1e-16, with two digits to spare


def hard(seed: int) -> FactorAnalysis:
    """Spread psi over nine decades, 1e-6 to 1e3, in random order; factors of size one."""
    psi = torch.logspace(-6, 3, DIM, dtype=torch.float64)[normals(DIM, seed=seed).argsort()]
    return FactorAnalysis(normals(DIM, seed=seed + 1), normals(DIM, 3, seed=seed + 2), psi)


def sum_of(root, diagonal):
    """The matrix of fifty digits: that of a root, plus a diagonal."""
    root = mpmath.matrix(root.tolist())
    return root * root.T + mpmath.diag(diagonal.tolist())


@pytest.fixture
def exact():
    """Badly conditioned posteriors, and their covariances with fifty digits.

    mpmath comes with every installation of torch (through sympy).
    """
    with mpmath.workdps(50):
        first, second = hard(0), hard(10)
        scales = torch.logspace(-3, 1.5, DIM, dtype=torch.float64)  # L L^T spans ten decades
        full = FullGaussian(
            second.loc + 1, scales.unsqueeze(-1) * normals(DIM, DIM).tril(-1) + scales.diag()
        )
        yield {
            "fa": (first, sum_of(first.factors, first.diag)),
            "other fa": (second, sum_of(second.factors, second.diag)),
            "diagonal": (
                DiagonalGaussian(second.loc, second.diag),
                mpmath.diag(second.diag.tolist()),
            ),
            "precision": (LowRankPrecision(*first), sum_of(first.factors, first.diag) ** -1),
            "full": (full, sum_of(full.scale_tril, 0 * full.loc)),
        }


@pytest.mark.parametrize(
    "pair",
    [("fa", "other fa"), ("fa", "diagonal"), ("precision", "other fa"), ("full", "other fa")],
)
def test_kl_has_nine_digits_where_variances_span_nine_decades(exact, pair):
    for (q, q_covariance), (p, p_covariance) in (
        [exact[name] for name in pair],
        [exact[name] for name in pair[::-1]],
    ):
        inverse = p_covariance**-1
        shift = mpmath.matrix(q.loc.tolist()) - mpmath.matrix(p.loc.tolist())
        trace = mpmath.fsum((inverse * q_covariance)[i, i] for i in range(DIM))
        log_ratio = mpmath.log(mpmath.det(p_covariance) / mpmath.det(q_covariance))
        expected = float((trace + (shift.T * inverse * shift)[0] - DIM + log_ratio) / 2)
        assert kl_divergence(q, p).item() == pytest.approx(expected, rel=TOLERANCE)
        assert (
            abs(kl_divergence(q, q).item()) < DIM * TOLERANCE
        )  # DIM differences, each of terms up to 1e9


@pytest.mark.parametrize("name", ["fa", "precision"])
def test_verbs_have_nine_digits_where_variances_span_nine_decades(exact, name):
    q, covariance = exact[name]
    precision, delta = covariance**-1, torch.linspace(-1, 1, DIM, dtype=torch.float64)
    column = mpmath.matrix(delta.tolist())
    assert q.log_det().item() == pytest.approx(
        float(mpmath.log(mpmath.det(covariance))), abs=1e-11
    )  # of terms near 35
    squared = float((column.T * precision * column)[0])
    assert q.whiten(delta).square().sum().item() == pytest.approx(squared, rel=1e-13)
    for found, matrix in ((q.variance(), covariance), (q.precision_diagonal(), precision)):
        assert found.tolist() == pytest.approx(
            [float(matrix[i, i]) for i in range(DIM)], rel=TOLERANCE
        )
    if name == "precision":
        assert q.solve(delta).tolist() == pytest.approx(
            list(map(float, covariance * column)), rel=TOLERANCE
        )
