"""Methods without minibatches: the exact posterior of a linear regression, and the best factor analysis of it."""

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group

from bdl.errors import InputError
from bdl.methods.conjugate import Conjugate
from bdl.methods.fa_optimum import closest
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear
from bdl.models.problem import Problem
from bdl.posteriors import FactorAnalysis, FullGaussian, kl_divergence

from .targets import fit, linear_gaussian


@pytest.mark.parametrize("bias_precision", [None, 1e-6])
def test_conjugate_is_the_known_posterior(bias_precision):
    target = linear_gaussian(bias_precision=bias_precision)
    found = fit(Conjugate(), target)
    torch.testing.assert_close(found.mean(), target.posterior.mean(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(found.covariance(), target.posterior.covariance(), rtol=1e-10, atol=1e-12)


def test_conjugate_without_a_bias():
    """One input, no bias: S = 1 / (alpha + beta sum x^2), m = beta S sum x y."""
    x, y = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64)
    hyper = {name: torch.tensor(value, dtype=torch.float64) for name, value in precisions(3.0, 0.5).items()}
    found = Conjugate().fit(Problem(Linear(bias=False), Gaussian(), 1), x, y, hyper)
    assert float(found.variance()) == pytest.approx(1 / 5.5)
    assert float(found.mean()) == pytest.approx(0.5 * 7 / 5.5)


def precisions(prior: float, noise: float) -> dict[str, float]:
    return {"prior_precision": prior, "noise_precision": noise}


@pytest.mark.parametrize(("prior", "noise", "name"), [(0, 1, "prior"), (-1, 1, "prior"), (1, float("nan"), "noise")])
def test_a_precision_that_cannot_be_is_refused(prior, noise, name):
    hyper = {key: torch.tensor(value, dtype=torch.float64) for key, value in precisions(prior, noise).items()}
    ones = torch.ones(3, 1, dtype=torch.float64)
    with pytest.raises(InputError, match=f"{name}_precision is .*: give a positive number"):
        Conjugate().fit(Problem(Linear(), Gaussian(), 1), ones, ones[:, 0], hyper)


def spd(dim: int, condition: float, seed: int = 0) -> torch.Tensor:
    """A covariance with random directions and eigenvalues from 1 / condition to 1."""
    rotation = ortho_group.rvs(dim, random_state=seed)
    values = np.geomspace(1 / condition, 1, dim)
    return torch.from_numpy(rotation * values @ rotation.T)


def test_optimum_recovers_a_member_of_the_family():
    generator = torch.Generator().manual_seed(0)
    factors = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    diag = torch.rand(8, generator=generator, dtype=torch.float64) + 0.1
    exact = FactorAnalysis(torch.arange(8, dtype=torch.float64), factors, diag)
    found = closest(exact.mean(), torch.linalg.inv(exact.covariance()), 2)
    torch.testing.assert_close(found.covariance(), exact.covariance(), rtol=1e-4, atol=1e-5)
    assert float(kl_divergence(found, exact)) < 1e-8


@pytest.mark.parametrize("latent_dim", [1, 2])  # with three, some psi_i go to 0 and the infimum is not reached
def test_optimum_is_stationary_and_not_beaten_nearby(latent_dim):
    """At a minimum of KL(q || p), no small change of F or psi lowers it.

    With two factors a psi goes to zero. The descent sees the determinant in the form of factors, which then has lost
    digits, and ends within 2e-6 nats of the minimum; the divergence here is that of dense covariances, which is exact.
    """
    mean, covariance = torch.zeros(6, dtype=torch.float64), spd(6, 1e3)
    exact = FullGaussian.from_covariance(mean, 0.5 * (covariance + covariance.T))
    found = closest(mean, torch.linalg.inv(covariance), latent_dim)

    def divergence(factors, diag):
        dense = FactorAnalysis(mean, factors, diag).covariance()
        return kl_divergence(FullGaussian.from_covariance(mean, dense), exact)

    floor = divergence(found.factors, found.diag)
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        factors = found.factors + 1e-3 * found.diag.sqrt().unsqueeze(1) * torch.randn(
            6, latent_dim, generator=generator, dtype=torch.float64
        )
        diag = found.diag * (1e-3 * torch.randn(6, generator=generator, dtype=torch.float64)).exp()
        assert divergence(factors, diag) > floor - (1e-9 if latent_dim == 1 else 5e-6)


def test_more_factors_come_closer():
    mean, covariance = torch.zeros(6, dtype=torch.float64), spd(6, 1e3)
    exact = FullGaussian.from_covariance(mean, 0.5 * (covariance + covariance.T))
    floors = [float(kl_divergence(closest(mean, torch.linalg.inv(covariance), k), exact)) for k in (1, 2, 3, 4)]
    assert floors == sorted(floors, reverse=True)
