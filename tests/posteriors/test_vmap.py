"""Many posteriors at once under torch.func.vmap equal a loop over them."""

import pytest
import torch
from torch.func import grad, vmap

from bdl.posteriors import FactorAnalysis, kl_divergence

BATCH = 5


def stack(posteriors):
    return type(posteriors[0])(*map(torch.stack, zip(*posteriors, strict=True)))


def test_solve(build):
    posteriors = [build("low-rank-precision", seed=seed) for seed in range(BATCH)]
    vectors = torch.randn(BATCH, posteriors[0].dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    looped = torch.stack([q.solve(vector) for q, vector in zip(posteriors, vectors, strict=True)])
    mapped = vmap(lambda q, vector: q.solve(vector))(stack(posteriors), vectors)
    torch.testing.assert_close(mapped, looped, rtol=1e-12, atol=1e-13)


def test_kl_and_its_gradient(build, family, other_family):
    qs = [build(family, seed=seed) for seed in range(BATCH)]
    ps = [build(other_family, seed=10 + seed, rank=2) for seed in range(BATCH)]
    looped = torch.stack([kl_divergence(q, p) for q, p in zip(qs, ps, strict=True)])
    torch.testing.assert_close(vmap(kl_divergence)(stack(qs), stack(ps)), looped, rtol=1e-12, atol=0)
    gradients = stack([grad(kl_divergence)(q, p) for q, p in zip(qs, ps, strict=True)])
    mapped = vmap(grad(kl_divergence))(stack(qs), stack(ps))
    assert type(mapped) is type(qs[0])
    torch.testing.assert_close(tuple(mapped), tuple(gradients), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("field", FactorAnalysis._fields)
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_diverged_posterior_stays_alone(build, field, poison):
    posteriors = [build("factor-analysis", seed=seed) for seed in range(BATCH)]
    prior = build("diagonal", seed=9)
    expected = [kl_divergence(q, prior) for q in posteriors]
    broken = getattr(posteriors[2], field).clone()
    broken.view(-1)[4] = poison
    posteriors[2] = posteriors[2]._replace(**{field: broken})
    divergences = vmap(kl_divergence, in_dims=(0, None))(stack(posteriors), prior)
    assert not divergences[2].isfinite()
    keep = [0, 1, 3, 4]
    torch.testing.assert_close(divergences[keep], torch.stack(expected)[keep], rtol=1e-12, atol=0)
