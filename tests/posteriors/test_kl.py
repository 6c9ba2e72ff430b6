"""The Kullback-Leibler divergence of all pairs of families."""

import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.distributions import kl_divergence as torch_kl

from bdl.posteriors import FactorAnalysis, kl_divergence


@pytest.mark.parametrize("seed", range(3))
def test_every_pair_matches_the_dense_formula(build, family, other_family, seed):
    q, p = build(family, seed=seed), build(other_family, seed=100 + seed, rank=2)
    expected = torch_kl(*(MultivariateNormal(g.mean(), g.covariance()) for g in (q, p)))
    actual = kl_divergence(q, p)
    assert actual.shape == ()
    assert actual > 0
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=0)


def test_trace_solve(build, family, other_family):
    q, p = build(family), build(other_family, seed=1)
    expected = torch.linalg.solve(p.covariance(), q.covariance()).trace()
    torch.testing.assert_close(q.trace_solve(p), expected, rtol=1e-10, atol=0)


def test_of_a_posterior_with_itself_is_zero(posterior):
    assert abs(kl_divergence(posterior, posterior)) < 1e-13


def test_is_never_negative_near_its_minimum(build, family):
    """Second-order growth: KL of a mean shift of size e is e^2 delta^T S^{-1} delta / 2 exactly."""
    q = build(family)
    delta = torch.linspace(-1, 1, q.dim, dtype=torch.float64)
    for size in (1e-1, 1e-3, 1e-5):
        shifted = q._replace(loc=q.loc + size * delta)
        expected = 0.5 * size**2 * delta @ torch.linalg.solve(q.covariance(), delta)
        assert abs(kl_divergence(q, shifted) - expected) < 1e-13


def test_high_dimension_stays_low_rank(build):
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


def test_gradients_match_finite_differences(build, family, other_family):
    q, p = build(family, dim=4, rank=2), build(other_family, seed=1, dim=4, rank=2)
    leaves = [tensor.clone().requires_grad_() for tensor in (*q, *p)]

    def divergence(*tensors):
        return kl_divergence(type(q)(*tensors[: len(q)]), type(p)(*tensors[len(q) :]))

    assert torch.autograd.gradcheck(divergence, leaves)
