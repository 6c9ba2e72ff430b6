"""Priors against torch.distributions, distribution functions, half-Cauchy laws and integrals."""

import math

import pytest
import torch
from scipy import stats
from torch.distributions import Categorical, Gamma, MixtureSameFamily, Normal, StudentT

from bdl.models import PRIORS
from bdl.models.base import Layout
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import (
    GaussianPrior,
    HorseshoePrior,
    PrecisionPrior,
    SpikeSlabPrior,
    StudentTPrior,
)

LAYOUT = Layout(LinearModel(), 2, 1)
HORSESHOE, KAPPA = HorseshoePrior(), 0.3
NET = Layout(Mlp(hidden=(3,)), 2, 1)
D, SCALES = 13, 2 * (2 + 5)
SEED = 4


def doubles(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


SCALE, KAPPAS = doubles(prior_scale=2.5), doubles(global_scale=KAPPA)
MIXTURE = doubles(slab_share=0.25, slab_scale=2.0, spike_scale=0.01)


@pytest.mark.parametrize("name", PRIORS.names())
def test_the_gaussian_alone_has_a_precision(name):
    assert isinstance(PRIORS.get(name)(), PrecisionPrior) == (name == "gaussian")


@pytest.mark.parametrize(
    ("bias_precision", "precisions"), [(None, [4.0, 4.0, 4.0]), (0.25, [4.0, 4.0, 0.25])]
)
def test_gaussian_matches_torch(draw, bias_precision, precisions):
    prior, theta, hyper = GaussianPrior(bias_precision), draw(5, 3), doubles(prior_precision=4.0)
    precisions = torch.tensor(precisions, dtype=torch.float64)
    expected = Normal(0.0, precisions.rsqrt()).log_prob(theta).sum(-1)
    torch.testing.assert_close(prior.log_prob(theta, hyper, LAYOUT), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(
        prior.precision(hyper, LAYOUT).expand(3), precisions, rtol=0, atol=0
    )
    torch.testing.assert_close(
        prior.sample(theta, hyper, LAYOUT), theta / precisions.sqrt(), rtol=1e-12, atol=0
    )
    assert prior.push(theta, hyper, LAYOUT) is theta
    assert prior.latent_dim(LAYOUT) == 3


@pytest.mark.parametrize("degrees", [0.5, 1.0, 6.0])
def test_students_density_and_draws_by_quantiles(draw, degrees):
    theta, prior = 5 * draw(7, 3), StudentTPrior(degrees)
    expected = StudentT(degrees, 0.0, SCALE["prior_scale"]).log_prob(theta).sum(-1)
    torch.testing.assert_close(prior.log_prob(theta, SCALE, LAYOUT), expected, rtol=1e-12, atol=0)
    noise = torch.linspace(-6, 6, 13, dtype=torch.float64)
    draws = prior.sample(noise, SCALE, LAYOUT)
    assert torch.equal(draws.sign(), noise.sign())
    tails = torch.from_numpy(stats.t.cdf(-draws.abs() / 2.5, degrees))
    torch.testing.assert_close(
        tails, torch.from_numpy(stats.norm.cdf(-noise.abs())), rtol=1e-9, atol=0
    )


def test_students_density_of_many_degrees_is_the_gaussian(draw):
    theta, gaussian = draw(7, 3), GaussianPrior().log_prob
    expected = gaussian(theta, doubles(prior_precision=1 / 2.5**2), LAYOUT)
    torch.testing.assert_close(
        StudentTPrior(1e8).log_prob(theta, SCALE, LAYOUT), expected, rtol=0, atol=1e-6
    )


def test_the_scale_of_a_gamma_mixture():
    """A precision of shape a and rate b gives 2 a degrees of freedom and the scale sqrt(b / a), not its inverse."""
    a, b = 1.5, 4.0
    precision = torch.linspace(1e-9, 40, 400_001, dtype=torch.float64)
    theta = torch.tensor([0.3, 2.0, 9.0], dtype=torch.float64).unsqueeze(1)
    joint = Normal(0.0, precision.rsqrt()).log_prob(theta) + Gamma(a, b).log_prob(precision)
    density = torch.trapezoid(joint.exp(), precision, dim=1)
    prior, hyper = StudentTPrior(2 * a), doubles(prior_scale=math.sqrt(b / a))
    torch.testing.assert_close(
        prior.log_prob(theta, hyper, LAYOUT).exp(), density, rtol=1e-5, atol=0
    )


def test_spike_and_slab_density_and_draws(draw):
    """Draws by the Kolmogorov-Smirnov test."""
    theta, prior = torch.cat([draw(5, 3), 0.01 * draw(5, 3)]), SpikeSlabPrior()
    scales = torch.stack([MIXTURE["slab_scale"], MIXTURE["spike_scale"]])
    shares = Categorical(torch.tensor([0.25, 0.75], dtype=torch.float64))
    expected = (
        MixtureSameFamily(shares, Normal(torch.zeros(2).double(), scales)).log_prob(theta).sum(-1)
    )
    torch.testing.assert_close(
        prior.log_prob(theta, MIXTURE, LAYOUT), expected, rtol=1e-12, atol=0
    )
    draws = prior.sample(draw(20_000), MIXTURE, LAYOUT).numpy()
    assert (
        stats.kstest(
            draws, lambda x: 0.25 * stats.norm.cdf(x / 2) + 0.75 * stats.norm.cdf(x / 0.01)
        ).pvalue
        > 0.01
    )


def test_a_parameter_is_its_weight_times_the_roots_of_its_layer_and_unit(draw):
    assert HORSESHOE.latent_dim(NET) == D + SCALES
    phi = draw(D + SCALES)
    theta = HORSESHOE.push(phi, KAPPAS, NET)
    layer_a, unit_a, layer_b, unit_b = phi[D:].exp().split([2, 5, 2, 5])
    for i, (unit, layer) in enumerate(zip(NET.units.tolist(), NET.layers.tolist(), strict=True)):
        scale = (
            1.0 if NET.biases[i] else layer_a[layer] * layer_b[layer] * unit_a[unit] * unit_b[unit]
        )
        assert theta[i].item() == pytest.approx(float(phi[i] * scale), rel=1e-12)


def test_units_may_be_those_that_weights_enter():
    prior = HorseshoePrior("entering")
    assert prior.latent_dim(NET) == D + 2 * (2 + 4)
    source = prior.source(NET)
    assert source[1, :6].tolist() == [2, 2, 3, 3, 4, 4]
    assert (source[2:] - source[:2])[:, ~NET.biases].unique().tolist() == [6]
    assert source[:, NET.biases].unique().tolist() == [12], "none"


@pytest.mark.parametrize(("place", "kappa"), [(0, KAPPA), (2, 1.0), (7, 1.0), (9, 1.0)])
def test_the_density_of_each_latent_scale_is_normalised(place, kappa):
    """Integrated on a line; the others are held at 0, whose densities are divided out."""
    line = torch.linspace(-40, 8, 200_001, dtype=torch.float64) * (1 if place < 7 else -1)
    phi = torch.zeros(len(line), D + SCALES, dtype=torch.float64)
    phi[:, D + place] = line
    origin = HORSESHOE.log_prob(torch.zeros(D + SCALES).double(), KAPPAS, NET)
    at_zero = math.log(2) - 0.5 * math.log(math.pi) - math.log(kappa) - 1 / kappa**2
    density = (HORSESHOE.log_prob(phi, KAPPAS, NET) - origin + at_zero).exp()
    assert torch.trapezoid(density, line).abs().item() == pytest.approx(1, abs=1e-6)


def test_scales_are_half_cauchy(draw):
    """P(tau < x) = (2 / pi) atan(x / kappa), within five standard errors."""
    n = 100_000
    ell = HORSESHOE.sample(draw(n, D + SCALES), KAPPAS, NET)[:, D:]
    layer, unit = (ell[:, i] + ell[:, 7 + i] for i in (0, 2))
    for value, kappa in ((layer.exp(), KAPPA), (unit.exp(), 1.0)):
        for x in (0.1, 1.0, 10.0):
            expected = 2 / math.pi * math.atan(x / kappa)
            share = (value < x).double().mean().item()
            assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / n)


def test_the_divergence_is_the_thesis_with_its_misprints_mended():
    """(3.23) to (3.27) for log-normal a and b, whose logarithms N(mu, s2) are twice the latent variables."""
    mu, s2 = torch.tensor(0.4, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    m, v = torch.zeros(D + SCALES).double(), torch.ones(D + SCALES).double()
    m[D:], v[D:] = mu / 2, s2 / 4
    entropy = 0.5 * (2 * math.pi * math.e * v).log()
    weights = (
        0.5 * D * (math.log(2 * math.pi) + 1) - entropy[:D].sum()
    )  # KL of N(0, 1) from itself
    common = 0.5 * (s2.log() + 1 + math.log(2))
    of_a = common + 0.5 * mu - (mu + s2 / 2).exp()
    of_tau_a = common + 0.5 * mu - math.log(KAPPA) - (mu + s2 / 2).exp() / KAPPA**2
    of_b = common - 0.5 * mu - (s2 / 2 - mu).exp()
    expected = 2 * of_tau_a + 5 * of_a + 7 * of_b
    actual = entropy.sum() + HORSESHOE.expected_log_prob(m, v, KAPPAS, NET)
    torch.testing.assert_close(actual + weights, expected, rtol=1e-12, atol=0)


def test_the_expected_density_is_the_mean_over_a_million_draws(draw):
    layout = Layout(LinearModel(bias=False), 2, 1)
    m, v = draw(8) / 3, (draw(8) / 3).exp() / 10
    values = HORSESHOE.log_prob(m + v.sqrt() * draw(1_000_000, 8), KAPPAS, layout)
    error = (values.mean() - HORSESHOE.expected_log_prob(m, v, KAPPAS, layout)).abs()
    assert error < 5 * values.std() / 1000
