"""The horseshoe prior against half-Cauchy distributions, integrals and draws."""

import math

import pytest
import torch

from bdl.errors import InputError
from bdl.models.base import Layout
from bdl.models.likelihoods import Gaussian
from bdl.models.modules import Module
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import HorseshoePrior
from bdl.models.problem import Problem

PRIOR, KAPPA = HorseshoePrior(), 0.3
HYPER = {"global_scale": torch.tensor(KAPPA, dtype=torch.float64)}
NET = Layout(Mlp(hidden=(3,)), 2, 1)
D, SCALES = 13, 2 * (2 + 5)

SEED = 4


def test_a_parameter_is_its_weight_times_the_roots_of_its_layer_and_unit(draw):
    assert PRIOR.latent_dim(NET) == D + SCALES
    phi = draw(D + SCALES)
    theta = PRIOR.push(phi, HYPER, NET)
    ell = phi[D:].exp()
    layer_a, unit_a, layer_b, unit_b = ell.split([2, 5, 2, 5])
    for i, (unit, layer) in enumerate(zip(NET.units.tolist(), NET.layers.tolist(), strict=True)):
        bias = bool(NET.biases[i])
        scale = 1.0 if bias else layer_a[layer] * layer_b[layer] * unit_a[unit] * unit_b[unit]
        assert theta[i].item() == pytest.approx(float(phi[i] * scale), rel=1e-12)


def test_units_may_be_those_that_weights_enter(draw):
    prior = HorseshoePrior("entering")
    assert prior.latent_dim(NET) == D + 2 * (2 + 4)
    source = prior.source(NET)
    assert source[1, :6].tolist() == [2, 2, 3, 3, 4, 4]
    assert (source[2:] - source[:2]).unique().tolist() == [0, 6], "6, and 0 of biases"
    phi = draw(D + 12)
    q = prior.push(phi, HYPER, NET) / phi[:D]
    assert q[0].item() == pytest.approx(q[1].item(), rel=1e-12)
    assert q[0].item() != pytest.approx(q[2].item(), rel=1e-3)
    assert (q[NET.biases] == 1).all()


@pytest.mark.parametrize(("place", "kappa"), [(0, KAPPA), (2, 1.0), (7, 1.0), (9, 1.0)])
def test_the_density_of_each_latent_scale_is_normalised(place, kappa):
    """Integrated on a line; the others are held at 0, whose densities are divided out."""
    line = torch.linspace(-40, 8, 200_001, dtype=torch.float64) * (1 if place < 7 else -1)
    phi = torch.zeros(len(line), D + SCALES, dtype=torch.float64)
    phi[:, D + place] = line
    origin = PRIOR.log_prob(torch.zeros(D + SCALES).double(), HYPER, NET)
    at_zero = math.log(2) - 0.5 * math.log(math.pi) - math.log(kappa) - 1 / kappa**2
    density = (PRIOR.log_prob(phi, HYPER, NET) - origin + at_zero).exp()
    assert torch.trapezoid(density, line).abs().item() == pytest.approx(1, abs=1e-6)


def test_scales_are_half_cauchy(draw):
    """P(tau < x) = (2 / pi) atan(x / kappa), within five standard errors."""
    n = 200_000
    ell = PRIOR.sample(draw(n, D + SCALES), HYPER, NET)[:, D:]
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
    weights = 0.5 * D * (math.log(2 * math.pi) + 1) - entropy[:D].sum()  # KL of N(0, 1) from itself
    common = 0.5 * (s2.log() + 1 + math.log(2))
    of_a = common + 0.5 * mu - (mu + s2 / 2).exp()
    of_tau_a = common + 0.5 * mu - math.log(KAPPA) - (mu + s2 / 2).exp() / KAPPA**2
    of_b = common - 0.5 * mu - (s2 / 2 - mu).exp()
    expected = 2 * of_tau_a + 5 * of_a + 7 * of_b
    actual = entropy.sum() + PRIOR.expected_log_prob(m, v, HYPER, NET)
    torch.testing.assert_close(actual + weights, expected, rtol=1e-12, atol=0)


def test_the_expected_density_is_the_mean_over_a_million_draws(draw):
    layout = Layout(Linear(bias=False), 2, 1)
    m, v = draw(8) / 3, (draw(8) / 3).exp() / 10
    values = PRIOR.log_prob(m + v.sqrt() * draw(1_000_000, 8), HYPER, layout)
    error = (values.mean() - PRIOR.expected_log_prob(m, v, HYPER, layout)).abs()
    assert error < 5 * values.std() / 1000


def test_models_without_units_are_refused():
    problem = Problem(Module("torch.nn:Linear"), Gaussian(), 2, prior=PRIOR)
    with pytest.raises(InputError, match="not made of dense layers"):
        _ = problem.latent_dim
