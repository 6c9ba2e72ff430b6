"""Student's t, and spike and slab, against torch.distributions and distribution functions."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy import stats
from torch.distributions import Categorical, MixtureSameFamily, Normal, StudentT

from bdl.models import PRIORS
from bdl.models.base import Layout
from bdl.models.networks import Linear
from bdl.models.priors import ExpectedPrior, PrecisionPrior, ScaledPrior, SpikeSlabPrior, StudentTPrior
from bdl.spec.components import PriorComponent

LAYOUT = Layout(Linear(), 2, 1)
SCALE = {"prior_scale": torch.tensor(2.5, dtype=torch.float64)}
MIXTURE = {
    name: torch.tensor(value, dtype=torch.float64)
    for name, value in {"slab_share": 0.25, "slab_scale": 2.0, "spike_scale": 0.01}.items()
}

SEED = 4


@pytest.mark.parametrize("degrees", [0.5, 1.0, 6.0])
def test_students_density(draw, degrees):
    theta = 5 * draw(7, 3)
    expected = StudentT(degrees, 0.0, SCALE["prior_scale"]).log_prob(theta).sum(-1)
    actual = StudentTPrior(degrees).log_prob(theta, SCALE, LAYOUT)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("degrees", [0.5, 1.0, 6.0])
def test_students_draws_are_quantiles(degrees):
    noise = torch.linspace(-6, 6, 13, dtype=torch.float64)
    draws = StudentTPrior(degrees).sample(noise, SCALE, LAYOUT)
    for z, value in zip(noise.tolist(), draws.tolist(), strict=True):
        tail = stats.t.cdf(-abs(value) / 2.5, degrees)
        assert tail == pytest.approx(stats.norm.cdf(-abs(z)), rel=1e-9)
        assert math.copysign(1, value) == math.copysign(1, z) or z == 0


def test_many_degrees_of_freedom_are_a_gaussian(draw):
    """The density differs by terms of z^4 / (4 nu)."""
    theta, prior = draw(6, 3), StudentTPrior(1e7)
    expected = Normal(0.0, SCALE["prior_scale"]).log_prob(theta).sum(-1)
    torch.testing.assert_close(prior.log_prob(theta, SCALE, LAYOUT), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(prior.sample(theta, SCALE, LAYOUT), 2.5 * theta, rtol=1e-5, atol=0)


def test_the_scale_of_a_gamma_mixture(draw):
    """A precision of shape a and rate b gives 2 a degrees of freedom and the scale sqrt(b / a), not its inverse."""
    a, b = 1.5, 4.0
    precision = torch.linspace(1e-9, 40, 2_000_001, dtype=torch.float64)
    theta = torch.tensor([0.3, 2.0, 9.0], dtype=torch.float64).unsqueeze(1)
    joint = Normal(0.0, precision.rsqrt()).log_prob(theta) + torch.distributions.Gamma(a, b).log_prob(precision)
    density = torch.trapezoid(joint.exp(), precision, dim=1)
    hyper = {"prior_scale": torch.tensor(math.sqrt(b / a), dtype=torch.float64)}
    prior = StudentTPrior(2 * a)
    torch.testing.assert_close(
        torch.stack([prior.log_prob(one, hyper, LAYOUT) for one in theta]).exp(), density, rtol=1e-6, atol=0
    )


def test_spike_and_slab_density(draw):
    theta = torch.cat([draw(5, 3), 0.01 * draw(5, 3)])
    scales = torch.stack([MIXTURE["slab_scale"], MIXTURE["spike_scale"]])
    shares = Categorical(torch.tensor([0.25, 0.75], dtype=torch.float64))
    expected = MixtureSameFamily(shares, Normal(torch.zeros(2).double(), scales)).log_prob(theta).sum(-1)
    torch.testing.assert_close(SpikeSlabPrior().log_prob(theta, MIXTURE, LAYOUT), expected, rtol=1e-12, atol=0)


def test_spike_and_slab_draws(draw):
    """Against the mixture's distribution function, by the Kolmogorov-Smirnov test."""
    draws = SpikeSlabPrior().sample(draw(20_000), MIXTURE, LAYOUT).numpy()

    def cdf(x):
        return 0.25 * stats.norm.cdf(x / 2) + 0.75 * stats.norm.cdf(x / 0.01)

    assert stats.kstest(draws, cdf).pvalue > 0.01
    assert np.mean(np.abs(draws) > 0.1) == pytest.approx(0.25 * 2 * stats.norm.cdf(-0.05), abs=0.01)


@pytest.mark.parametrize("name", ["student-t", "spike-slab", "horseshoe"])
def test_registered_names(name):
    prior = PRIORS.get(name)()
    assert PRIORS.lacking(type(prior)) is None
    assert not isinstance(prior, PrecisionPrior)
    assert isinstance(prior, ScaledPrior) == isinstance(prior, ExpectedPrior) == (name == "horseshoe")


@pytest.mark.parametrize("degrees", [0, -1])
def test_degrees_of_freedom_are_positive(degrees):
    with pytest.raises(ValidationError, match="greater than 0"):
        PriorComponent.model_validate({"name": "student-t", "degrees": degrees})
