"""Bayes by Backprop under priors without a precision."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from bdl.errors import InputError
from bdl.methods.bbb import BayesByBackprop, elbo_gradients
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.priors import GaussianPrior, HorseshoePrior, SpikeSlabPrior, StudentTPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import DiagonalGaussian, Scaled, StudentT

from .targets import repeated

HYPER = {
    name: torch.tensor(value, dtype=torch.float64)
    for name, value in {
        "learning_rate": 0.01,
        "prior_precision": 0.25,
        "prior_scale": 2.0,
        "global_scale": 0.1,
        "slab_share": 0.5,
        "slab_scale": 1.0,
        "spike_scale": 0.01,
        "noise_precision": 4.0,
    }.items()
}


@dataclass(frozen=True)
class Sampled(GaussianPrior):
    """The Gaussian prior, which keeps its precision to itself."""

    precision = None

    def log_prob(self, phi, hyper, layout):
        return GaussianPrior().log_prob(phi, hyper, layout)


@dataclass(frozen=True)
class Expected(Sampled):
    """One that knows its mean under a Gaussian."""

    def expected_log_prob(self, mu: Tensor, var: Tensor, hyper, layout):
        return self.log_prob(mu, hyper, layout) - 0.5 * hyper["prior_precision"] * var.sum()


SEED = 5


def sparse_regression(prior, draw) -> tuple[Problem, Batch]:
    """Thirty rows, twelve inputs of which two count."""
    x = draw(30, 12)
    y = 2 * x[:, 0] - 3 * x[:, 5] + 0.5 * draw(30)
    batch = Batch(x, y, torch.tensor(30.0).double(), torch.tensor(1.0).double())
    return Problem(Linear(bias=False), Gaussian(), 12, prior=prior), batch


def train(method, problem, batch, draw, updates):
    state, step = method.init(problem, {"theta": draw(problem.dim)}), repeated(method, problem)
    for _ in range(updates):
        shape = method.step_noise(problem)["z"]
        state = step(state, batch, HYPER, {"z": draw(*shape)})
    return method.posterior(state)


@pytest.mark.parametrize("prior", [Sampled(), Expected()], ids=["sampled", "expected"])
def test_the_general_gradients_are_the_closed_ones(draw, prior):
    """Symmetric samples of covariance I: the sampled KL of two Gaussians differs from its mean by a constant in mu
    alone, so only the gradients of mu agree; with the expected density both do."""
    net = Problem(Mlp(hidden=(3,)), Gaussian(), 2, prior=GaussianPrior())
    params = {"mu": draw(net.dim), "rho": draw(net.dim)}
    points = net.dim**0.5 * torch.eye(net.dim, dtype=torch.float64)
    z = torch.cat([points, -points])
    batch = Batch(draw(5, 2), draw(5), torch.tensor(40.0).double(), torch.tensor(1.5).double())
    expected = elbo_gradients(params, batch, HYPER, z, net)
    other = Problem(net.model, net.likelihood, 2, prior=prior)
    actual = torch.func.grad(BayesByBackprop()._negative_elbo)(params, batch, HYPER, z, other)
    for name in ("mu", "rho"):
        torch.testing.assert_close(actual[name], expected[name], rtol=1e-9, atol=1e-9)


def test_many_degrees_of_freedom_give_what_a_gaussian_prior_gives(draw):
    """A t prior of scale 2 and the Gaussian of precision 1/4, from the same noise."""
    method, results = BayesByBackprop(samples=8), []
    for prior in (GaussianPrior(), StudentTPrior(1e8)):
        generator = torch.Generator().manual_seed(1)

        def own(*shape, generator=generator):
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        problem, batch = sparse_regression(prior, own)
        results.append(train(method, problem, batch, own, 1000))
    gaussian, student = results
    assert ((gaussian.loc - student.loc).abs() < 0.2 * gaussian.var.sqrt()).all(), "a t prior's KL is sampled"


@pytest.mark.parametrize("prior", [HorseshoePrior(), SpikeSlabPrior()], ids=["horseshoe", "spike-slab"])
def test_a_sparse_prior_shrinks_what_does_not_count_and_leaves_the_rest(draw, prior):
    problem, batch = sparse_regression(prior, draw)
    q = train(BayesByBackprop(samples=4, initial_rho=-2), problem, batch, draw, 1500)
    mean, count = q.mean(), torch.tensor([0, 5])
    others = torch.ones(12, dtype=torch.bool).index_fill(0, count, False)
    assert (mean[count] - torch.tensor([2.0, -3.0]).double()).abs().max() < 0.35
    least_squares = torch.linalg.lstsq(batch.x, batch.y).solution
    assert mean[others].abs().mean() < 0.4 * least_squares[others].abs().mean()


def test_the_families(draw):
    scaled = Problem(Mlp(hidden=(3,)), Gaussian(), 2, prior=HorseshoePrior())
    noise = {"theta": draw(scaled.dim)}
    method = BayesByBackprop(initial_scale=1.0)
    state = method.init(scaled, noise)
    q = method.posterior(state)
    assert isinstance(q, Scaled)
    assert method.step_noise(scaled) == {"z": (4, 13 + 14)}
    z = draw(27)
    pushed = scaled.push(method._latent(state.params).sample(z), HYPER)
    torch.testing.assert_close(q.check().sample(z), pushed, rtol=1e-12, atol=1e-12)

    plain = Problem(Mlp(hidden=(3,)), Gaussian(), 2, prior=StudentTPrior())
    heavy = BayesByBackprop(initial_scale=1.0, degrees=1.0)
    found = heavy.posterior(heavy.init(plain, noise))
    assert isinstance(found, StudentT)
    assert found.check().degrees == 1
    assert heavy.step_noise(plain) == {"z": (4, 26)}
    assert isinstance(method.posterior(method.init(plain, noise)), DiagonalGaussian)


def test_what_does_not_fit_is_refused():
    scaled = Problem(Linear(), Gaussian(), 2, prior=HorseshoePrior())
    with pytest.raises(
        InputError, match="degrees: under HorseshoePrior, whose scales are latent, bbb needs a Gaussian"
    ):
        BayesByBackprop(degrees=3.0).check(scaled)

    class Doubled(StudentTPrior):
        def latent_dim(self, layout):
            return 2 * layout.dim

    with pytest.raises(InputError, match="does not know the latent variables of Doubled"):
        BayesByBackprop().check(Problem(Linear(), Gaussian(), 2, prior=Doubled()))
