"""Priors: the Gaussian by torch.distributions, and that the verbs suffice for one with latent scales."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch.distributions import Gamma, Normal, StudentT

from bdl.errors import InputError
from bdl.models import PRIORS
from bdl.models.base import Layout
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior, PrecisionPrior
from bdl.models.problem import Batch, Problem

LAYOUT = Layout(Linear(), 2, 1)
HYPER = {"prior_precision": torch.tensor(4.0, dtype=torch.float64)}


@dataclass(frozen=True)
class Exponential:
    """theta_i = width z_i / sqrt(tau_i), z_i normal and tau_i exponential: a Student-t of 2 degrees of freedom.

    The latent variables are z and log tau.
    """

    @property
    def hyper(self):
        return ("width",)

    def latent_dim(self, layout):
        return 2 * layout.dim

    def push(self, phi, hyper, layout):
        z, log_tau = phi.chunk(2, -1)
        return hyper["width"] * z * (-0.5 * log_tau).exp()

    def log_prob(self, phi, hyper, layout):
        z, log_tau = phi.chunk(2, -1)
        normal = -0.5 * (z.square() + math.log(2 * math.pi))
        return (normal + log_tau - log_tau.exp()).sum(-1)

    def sample(self, noise, hyper, layout):
        z, other = noise.chunk(2, -1)
        return torch.cat([z, (-torch.special.log_ndtr(other)).log()], -1)


SEED = 4


@pytest.mark.parametrize(("bias_precision", "precisions"), [(None, [4.0, 4.0, 4.0]), (0.25, [4.0, 4.0, 0.25])])
def test_gaussian_matches_torch(draw, bias_precision, precisions):
    prior, theta = GaussianPrior(bias_precision), draw(5, 3)
    precisions = torch.tensor(precisions, dtype=torch.float64)
    expected = Normal(0.0, precisions.rsqrt()).log_prob(theta).sum(-1)
    torch.testing.assert_close(prior.log_prob(theta, HYPER, LAYOUT), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(prior.precision(HYPER, LAYOUT).expand(3), precisions, rtol=0, atol=0)
    torch.testing.assert_close(prior.sample(theta, HYPER, LAYOUT), theta / precisions.sqrt(), rtol=1e-12, atol=0)
    assert prior.push(theta, HYPER, LAYOUT) is theta
    assert prior.latent_dim(LAYOUT) == 3


def test_registered_name():
    prior = PRIORS.get("gaussian")()
    assert prior == GaussianPrior(None)
    assert isinstance(prior, PrecisionPrior)
    assert prior.hyper == ("prior_precision",)
    assert PRIORS.lacking(GaussianPrior) is None
    assert PRIORS.lacking(Exponential) is None
    assert PRIORS.lacking(Linear).startswith("hyper, latent_dim, log_prob, push, sample; see bdl.models.priors:Prior")


PROBLEM = Problem(Linear(), Gaussian(), 2, prior=Exponential())
WIDE = {"width": torch.tensor(3.0, dtype=torch.float64), "noise_precision": torch.tensor(2.0, dtype=torch.float64)}


def test_draws_with_latent_scales_are_student_t(draw):
    phi = PROBLEM.prior.sample(draw(200_000, PROBLEM.latent_dim), WIDE, PROBLEM.layout)
    theta = PROBLEM.push(phi, WIDE)
    assert theta.shape == (200_000, 3)
    for point in (-1.0, 0.7, 4.0):
        expected = 0.5 * (1 + point / math.sqrt(2 + point**2))  # distribution function, 2 degrees of freedom
        share = (theta / 3 <= point).double().mean(0)
        assert (share - expected).abs().max() < 5 * math.sqrt(expected * (1 - expected) / 200_000)


def test_the_density_of_latent_variables_integrates_to_the_students(draw):
    """p(theta) = integral of p(z, log tau) |dz / dtheta| over log tau, z being theta sqrt(tau) / width."""
    theta = torch.tensor([0.3, -2.0, 7.0], dtype=torch.float64)
    one = torch.ones((), dtype=torch.float64)
    log_tau = torch.linspace(-40, 6, 4001, dtype=torch.float64).unsqueeze(1)
    z = theta / 3 * (0.5 * log_tau).exp()
    joint = Normal(0.0, 1.0).log_prob(z) + Gamma(one, one).log_prob(log_tau.exp()) + log_tau
    phi = torch.cat([z, log_tau.expand(-1, 3)], 1)
    torch.testing.assert_close(PROBLEM.log_prior(phi, WIDE), joint.sum(1), rtol=1e-10, atol=1e-10)
    density = torch.trapezoid((joint + 0.5 * log_tau).exp() / 3, log_tau, dim=0)
    # tau ~ Gamma(1, 1) is chi-squared of 2 degrees of freedom over 2
    expected = StudentT(2.0, 0.0, torch.tensor(3.0, dtype=torch.float64)).log_prob(theta).exp()
    torch.testing.assert_close(density, expected, rtol=1e-5, atol=0)


def test_a_joint_density_with_latent_scales_is_differentiable_over_trials(draw):
    """A method descends log p(D | push(phi)) + log p(phi) as it would for a Gaussian prior."""
    assert PROBLEM.hyper == ("width", "noise_precision")
    batch = Batch(draw(6, 2), draw(6), torch.tensor(6.0).double(), torch.tensor(1.5).double())

    def joint(phi):
        return PROBLEM.log_likelihood(PROBLEM.push(phi, WIDE), batch, WIDE) + PROBLEM.log_prior(phi, WIDE)

    phi, step = draw(3, 6), 1e-6
    gradients = torch.func.vmap(torch.func.grad(joint))(phi)
    for i, direction in enumerate(torch.eye(6, dtype=torch.float64)):
        numeric = torch.stack([joint(one + step * direction) - joint(one - step * direction) for one in phi])
        torch.testing.assert_close(gradients[:, i], numeric / (2 * step), rtol=1e-5, atol=1e-6)


def test_a_prior_without_precision_says_what_to_do():
    with pytest.raises(InputError, match="prior Exponential has no precision: use the prior 'gaussian', or a method"):
        PROBLEM.prior_precision(WIDE)
