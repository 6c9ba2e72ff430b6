"""Natural-gradient variational inference: its fixed points, and what it has in common with SLANG."""

import pytest
import torch

from bdl.errors import InputError
from bdl.methods.exact_gaussian import ExactGaussian
from bdl.methods.natural_gradient import NaturalGradient
from bdl.methods.slang import Slang
from bdl.models.likelihoods import Bernoulli
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import DiagonalGaussian, FullGaussian, LowRankPrecision, kl_divergence

from .targets import linear_gaussian, normals, repeat

CLOSE = {"rtol": 1e-10, "atol": 1e-12}


@pytest.fixture(scope="module")
def logistic():
    """A logistic regression of 40 rows with four parameters."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    y = (x.sum(1) + torch.randn(40, generator=generator, dtype=torch.float64) > 0.3).double()
    one = torch.ones((), dtype=torch.float64)
    problem = Problem(Linear(), Bernoulli(), 3, prior=GaussianPrior(bias_precision=0.1))
    return problem, Batch(x, y, 40 * one, one), {"prior_precision": 0.7 * one}


def test_one_step_in_closed_form():
    """Gaussian likelihood: errors beta u^2 (y - f) at each sample, curvature beta u^2 whatever the sample."""
    problem, data, hyper, _ = linear_gaussian(bias_precision=0.2)
    design = torch.cat([data.x, torch.ones(len(data.x), 1, dtype=torch.float64)], dim=1)
    prior, precision = torch.tensor([1.5, 1.5, 0.2], dtype=torch.float64), 0.4 * 1.3**2
    given = hyper | {"learning_rate": torch.tensor(0.3, dtype=torch.float64)}
    noise = normals({"theta": (2, 3)}, torch.Generator().manual_seed(0))
    start_noise = normals({"theta": (3,)}, torch.Generator().manual_seed(1))
    for curvature in ("fisher", "hessian"):
        method = NaturalGradient(curvature=curvature, samples=2, initial_scale=0.5, initial_precision=4.0)
        before = method.init(problem, start_noise)
        after = method.step(before, repeat(data, 1), given, noise, problem)
        theta = before.mu + noise["theta"] / 2  # samples of N(mu, I / 4)
        errors = precision * (data.y - theta @ design.T)
        weights = errors.square().mean(0) if curvature == "fisher" else precision * torch.ones_like(data.y)
        P = 0.7 * 4 * torch.eye(3, dtype=torch.float64) + 0.3 * (
            design.T @ (weights.unsqueeze(1) * design) + prior.diag()
        )
        force = prior * before.mu - errors.mean(0) @ design
        torch.testing.assert_close(after.P, P, **CLOSE)
        torch.testing.assert_close(after.mu, before.mu - 0.3 * torch.linalg.solve(P, force), **CLOSE)
        diagonal = NaturalGradient(
            curvature=curvature, structure="diagonal", samples=2, initial_scale=0.5, initial_precision=4.0
        )
        mean_field = diagonal.step(diagonal.init(problem, start_noise), repeat(data, 1), given, noise, problem)
        torch.testing.assert_close(mean_field.P, P.diagonal(), **CLOSE)
        torch.testing.assert_close(mean_field.mu, before.mu - 0.3 * force / P.diagonal(), **CLOSE)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_the_hessian_leads_to_the_exact_solution(logistic, structure):
    """All data, and rates that forget the start as t^-3 and average the errors of 2000 samples each."""
    problem, data, hyper = logistic
    exact = ExactGaussian(structure).fit(problem, data.x, data.y, hyper)
    method, generator = (
        NaturalGradient(curvature="hessian", structure=structure, samples=2000),
        torch.Generator().manual_seed(0),
    )
    state = method.init(problem, normals({"theta": (problem.dim,)}, generator))
    for update in range(1, 301):
        given = hyper | {"learning_rate": torch.tensor(3 / (update + 5), dtype=torch.float64)}
        noise = normals(method.step_noise(problem), generator)
        state = method.step(state, repeat(data, 1), given, noise, problem)
    found = method.posterior(state)
    assert max(kl_divergence(found, exact), kl_divergence(exact, found)) < 1e-4


def driven(logistic, slang: Slang, updates: int):
    """States of SLANG and of the full empirical-Fisher update whose samples are those of SLANG."""
    problem, data, hyper = logistic
    full, generator = NaturalGradient(samples=slang.samples), torch.Generator().manual_seed(0)
    zero = {"theta": torch.zeros(problem.dim, dtype=torch.float64)}
    ours, theirs = slang.init(problem, zero), full.init(problem, zero)
    given = hyper | {"learning_rate": torch.tensor(0.05, dtype=torch.float64)}
    for _ in range(updates):
        rows = torch.randint(len(data.y), (8,), generator=generator)
        batch = repeat(data._replace(x=data.x[rows], y=data.y[rows]), 1)
        noise = normals(slang.step_noise(problem), generator)
        theta = slang.posterior(ours).sample(noise["theta"])
        same = {"theta": full.posterior(theirs).whiten(theta - theirs.mu)}
        ours = slang.step(ours, batch, given, noise, problem)
        theirs = full.step(theirs, batch, given, same, problem)
        yield ours, theirs


def test_slang_of_full_rank_is_the_full_update(logistic):
    problem = logistic[0]
    slang = Slang(rank=problem.dim, samples=3, momentum=0.0, initial_scale=0)
    for ours, theirs in driven(logistic, slang, 50):
        torch.testing.assert_close(ours.U @ ours.U.T + ours.d.diag(), theirs.P, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(ours.mu, theirs.mu, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("rank", [1, 2])
def test_slang_has_the_diagonal_of_the_full_update(logistic, rank):
    """With the same samples, at every step."""
    slang = Slang(rank=rank, samples=3, initial_scale=0)
    for ours, theirs in driven(logistic, slang, 50):
        diagonal = LowRankPrecision(ours.mu, ours.U, ours.d).precision_diagonal()
        torch.testing.assert_close(diagonal, theirs.P.diagonal(), **CLOSE)


def test_settings_that_do_not_fit(logistic):
    network = Problem(Mlp(hidden=(3,)), Bernoulli(), 3)
    with pytest.raises(InputError, match="needs a linear model with one output: use curvature fisher"):
        NaturalGradient(curvature="hessian").check(network)
    NaturalGradient().check(network)
    assert NaturalGradient(lr_factors=(1, 2)).hyper_below == {"learning_rate": 0.5}
    assert Slang(lr_factors=(1, 4)).hyper_below == {"learning_rate": 0.25}


def test_families(logistic):
    problem = logistic[0]
    zero = {"theta": torch.zeros(problem.dim, dtype=torch.float64)}
    full, diagonal = (
        NaturalGradient(initial_precision=4.0),
        NaturalGradient(structure="diagonal", initial_precision=4.0),
    )
    covariance = full.posterior(full.init(problem, zero)).covariance()
    torch.testing.assert_close(covariance, torch.eye(problem.dim, dtype=torch.float64) / 4)
    assert isinstance(diagonal.posterior(diagonal.init(problem, zero)), DiagonalGaussian)
    assert (
        kl_divergence(FullGaussian.from_covariance(zero["theta"], covariance), full.posterior(full.init(problem, zero)))
        == 0
    )
