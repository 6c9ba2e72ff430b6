"""Natural-gradient variational inference: one step by hand, and the fixed point of the Hessian."""

import pytest
import torch

from bdl.methods.exact_gaussian import ExactGaussian
from bdl.methods.natural_gradient import NaturalGradient
from bdl.models.likelihoods import Bernoulli
from bdl.models.networks import LinearModel
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Problem
from bdl.posteriors import kl_divergence

from .targets import BETA, batch_of, doubles, linear_gaussian, normals, steps

CLOSE = {"rtol": 1e-10, "atol": 1e-12}


@pytest.mark.parametrize("curvature", ["fisher", "hessian"])
def test_one_step_in_closed_form(curvature):
    """Gaussian likelihood: errors beta u^2 (y - f) at each sample, curvature beta u^2 whatever the sample."""
    target = linear_gaussian(bias_precision=0.2)
    design, prior = target.design, torch.tensor([1.5, 1.5, 0.2], dtype=torch.float64)
    settings = {
        "curvature": curvature,
        "samples": 2,
        "initial_scale": 0.5,
        "initial_precision": 4.0,
    }
    given = target.problem, target.data, target.hyper | doubles(learning_rate=0.3), 1
    ((before, full, noise),) = steps(NaturalGradient(**settings), *given)
    theta = before.mu + noise["theta"] / 2  # samples of N(mu, I / 4)
    errors = BETA * (target.data.y - theta @ design.T)
    weights = (
        errors.square().mean(0)
        if curvature == "fisher"
        else torch.full_like(target.data.y, BETA).double()
    )
    P = 0.7 * 4 * torch.eye(3, dtype=torch.float64) + 0.3 * (
        design.T @ (weights.unsqueeze(1) * design) + prior.diag()
    )
    force = prior * before.mu - errors.mean(0) @ design
    torch.testing.assert_close(full.P, P, **CLOSE)
    torch.testing.assert_close(full.mu, before.mu - 0.3 * torch.linalg.solve(P, force), **CLOSE)
    ((_, diagonal, _),) = steps(NaturalGradient(**settings, structure="diagonal"), *given)
    torch.testing.assert_close(diagonal.P, P.diagonal(), **CLOSE)
    torch.testing.assert_close(diagonal.mu, before.mu - 0.3 * force / P.diagonal(), **CLOSE)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_the_hessian_leads_to_the_exact_solution(structure):
    """A logistic regression.

    All data, and rates that forget the start as t^-3 and average the errors of many samples.

    Divergences within 1e-4.
    """
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = (x.sum(1) + torch.randn(40, generator=generator, dtype=torch.float64) > 0.3).double()
    problem, hyper = (
        Problem(LinearModel(), Bernoulli(), 3, prior=GaussianPrior(0.1)),
        doubles(prior_precision=0.7),
    )
    exact, data = ExactGaussian(structure).fit(problem, x, y, hyper), batch_of(x, y, 40)
    method = NaturalGradient(curvature="hessian", structure=structure, samples=2000)
    state = method.init(problem, normals({"theta": (problem.dim,)}, generator))
    for update in range(1, 151):
        noise = normals(method.step_noise(problem), generator)
        state = method.step(
            state, data, hyper | doubles(learning_rate=3 / (update + 5)), noise, problem
        )
    found = method.posterior(state)
    assert max(kl_divergence(found, exact), kl_divergence(exact, found)) < 1e-4
