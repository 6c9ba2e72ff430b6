"""The bound of a generalised linear model: its derivatives against automatic differentiation, and its pieces."""

import torch

from bdl.models.likelihoods import Bernoulli
from bdl.models.linear import elbo, expected_log_likelihood
from bdl.models.networks import Linear
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import DiagonalGaussian, FullGaussian, kl_divergence

D, N = 3, 20
GENERATOR = torch.Generator().manual_seed(0)
X, LOC, SQUARE = (torch.randn(*shape, generator=GENERATOR).double() for shape in ((N, D - 1), (D,), (D, D)))
TRIL = SQUARE.tril(-1) + SQUARE.diagonal().abs().add(0.3).diag()
Y = (X[:, 0] > 0.2).double()
PROBLEM = Problem(Linear(), Bernoulli(), D - 1, prior=GaussianPrior(0.01))
HYPER = {"prior_precision": torch.tensor(2.0, dtype=torch.float64)}


def test_its_derivatives():
    """By the mean it is the slope; by L with S = L L^T it is tril(L^{-T} - H L)."""
    q = FullGaussian(LOC.clone().requires_grad_(), TRIL.clone().requires_grad_())
    prior = DiagonalGaussian(torch.zeros(D).double(), torch.tensor([0.5, 0.5, 100]).double())
    value = expected_log_likelihood(PROBLEM, q, X, Y, HYPER) - kl_divergence(q, prior)
    by_mean, by_factor = torch.autograd.grad(value, list(q))
    found = elbo(PROBLEM, FullGaussian(LOC, TRIL), X, Y, HYPER)
    torch.testing.assert_close(found.value, value.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(found.slope, by_mean, rtol=1e-11, atol=1e-11)
    expected = (torch.linalg.inv(TRIL).mT - found.curvature @ TRIL).tril()
    torch.testing.assert_close(by_factor.tril(), expected, rtol=1e-10, atol=1e-10)
