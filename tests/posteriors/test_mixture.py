"""Mixtures against the distribution of torch, and the component that a sample comes from."""

import pytest
import torch
from torch.distributions import Categorical, LowRankMultivariateNormal, MixtureSameFamily

from bdl.errors import InputError

from .conftest import build


def test_density_and_moments_are_those_of_torch():
    q = build("mixture")
    each = LowRankMultivariateNormal(q.locs, q.factors, q.diags)
    law = MixtureSameFamily(Categorical(torch.ones(3).double()), each)
    theta = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(q.log_prob(theta), law.log_prob(theta), rtol=1e-10, atol=0)
    torch.testing.assert_close(q.mean(), law.mean, rtol=1e-12, atol=0)
    torch.testing.assert_close(q.variance(), law.variance, rtol=1e-12, atol=0)


def test_a_sample_is_that_of_the_component_in_which_its_first_normal_falls():
    q, noise = build("mixture"), torch.randn(100, 10, generator=torch.Generator().manual_seed(1)).double()
    quantiles = torch.special.ndtr(noise[:, 0])
    for row, quantile, sample in zip(noise, quantiles, q.sample(noise), strict=True):
        assert torch.equal(sample, q.components()[int(3 * quantile)].sample(row[1:]))
    certain = torch.tensor([40.0, *noise[0, 1:]]).double()  # whose quantile is 1
    assert torch.equal(q.sample(certain), q.components()[2].sample(certain[1:]))


def test_there_is_no_entropy():
    with pytest.raises(InputError, match="a mixture has no closed entropy: leave out metrics that need one"):
        build("mixture").entropy()
