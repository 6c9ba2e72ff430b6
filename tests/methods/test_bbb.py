"""Gradients of the ELBO by autograd.

Bayes by Backprop and full-covariance VI find the best of their Gaussians.
"""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from bdl.methods import bbb, vifa
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.cholesky_vi import CholeskyVi
from bdl.methods.optim import DescentState
from bdl.models.likelihoods import Bernoulli, Categorical, GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior, HorseshoePrior, SpikeSlabPrior, StudentTPrior
from bdl.models.problem import Problem
from bdl.posteriors import (
    DiagonalGaussian,
    FactorAnalysis,
    FullGaussian,
    Scaled,
    StudentT,
    kl_divergence,
)
from bdl.training.traced import TracedFunction

from .targets import batch_of, doubles, linear_gaussian, normals, sigma_points

SEED = 5
LIKELIHOODS = {
    "gaussian": (GaussianLikelihood(), 1, lambda y: y),
    "bernoulli": (Bernoulli(), 1, lambda y: (y > 0).double()),
    "categorical": (Categorical(), 3, lambda y: (y > -0.5).long() + (y > 0.5).long()),
}


def posterior(params):
    if "mu" in params:
        return DiagonalGaussian(params["mu"], softplus(params["rho"]).square())
    if "m" in params:
        return FullGaussian(
            params["m"], params["A"].tril(-1) + params["A"].diagonal().exp().diag()
        )
    return FactorAnalysis(params["c"], params["F"], params["gamma"].exp())


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("bias_precision", [None, 0.2])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize(
    "name", ["bbb", "cholesky-vi", "vifa of one factor", "vifa of all factors"]
)
def test_gradients_equal_autograd_of_the_negative_elbo(
    draw, name, samples, bias_precision, likelihood
):
    """Reparametrised -E_q[log p(D | theta)] for the given noise, plus KL(q || prior) by the general formula.

    Parameters are far from the initial ones; VIFA has a minibatch for each sample.
    """
    family, d_out, labels = LIKELIHOODS[likelihood]
    problem = Problem(Mlp(hidden=(3,)), family, 2, d_out, GaussianPrior(bias_precision))
    dim, hyper = problem.dim, {own: draw().exp() for own in problem.hyper}
    rows = (samples, 5) if "vifa" in name else (5,)
    batch, z = batch_of(draw(*rows, 2), labels(draw(*rows)), 40.0, 2.5), draw(samples, dim)
    if "vifa" in name:
        rank = 1 if "one" in name else dim
        params, h = {"c": draw(dim), "F": draw(dim, rank), "gamma": draw(dim)}, draw(samples, rank)
        actual = vifa.factor_elbo_gradients(params, batch, hyper, {"h": h, "z": z}, problem)
        noise, x, y = torch.cat([h, z], 1), batch.x, batch.y
    else:
        params = (
            {"mu": draw(dim), "rho": draw(dim)}
            if name == "bbb"
            else {"m": draw(dim), "A": draw(dim, dim).tril()}
        )
        method, noise = {"bbb": BayesByBackprop(), "cholesky-vi": CholeskyVi()}[name], z
        actual = method.gradients(DescentState(params, None), batch, hyper, {"z": z}, problem)
        x, y = (part.expand(samples, *part.shape) for part in (batch.x, batch.y))

    def negative_elbo(params):
        q = posterior(params)
        parts = zip(q.sample(noise), x, y, strict=True)
        fit = (
            sum(
                problem.log_likelihood(own, batch._replace(x=x, y=y), hyper) for own, x, y in parts
            )
            / samples
        )
        alpha = problem.prior_precision(hyper).expand(dim)
        return kl_divergence(q, DiagonalGaussian(torch.zeros_like(alpha), 1 / alpha)) - fit

    torch.testing.assert_close(
        actual, torch.func.grad(negative_elbo)(params), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("method", [BayesByBackprop(1.0), CholeskyVi(1.0)])
@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_converges_to_the_best_gaussian_for_a_linear_regression(method, bias_precision):
    """The exact mean, and the covariance, or the diagonal of the precision.

    To rounding, as there is no noise.

    The curvature in the mean is P, with eigenvalues up to 24. Half the entropy would give half the
    covariance.
    """
    target = linear_gaussian(seed=4, d_in=3, bias_precision=bias_precision)
    points = {"z": sigma_points(0, 4)["z"]}
    state = method.init(
        target.problem,
        normals(method.init_noise(target.problem), torch.Generator().manual_seed(0)),
    )
    gradients = TracedFunction(partial(method.gradients, problem=target.problem))
    for _ in range(1000):  # plain descent, which unlike Adam comes to rest
        grads = gradients(state, target.data, target.hyper, points)
        state = state._replace(
            params={own: state.params[own] - 0.05 * grad for own, grad in grads.items()}
        )
    q = method.posterior(state).check()
    torch.testing.assert_close(q.mean(), target.posterior.loc, rtol=0, atol=1e-11)
    if isinstance(method, BayesByBackprop):
        torch.testing.assert_close(
            1 / q.variance(), target.posterior.precision_diagonal(), rtol=1e-12, atol=0
        )
    else:
        torch.testing.assert_close(
            q.covariance(), target.posterior.covariance(), rtol=0, atol=1e-11
        )


def test_steps_are_those_of_torch_adam(draw):
    """Published code descends J / N: with eps times N that is the same path, step for step."""
    problem, method = (
        Problem(Mlp(hidden=(3,)), GaussianLikelihood(), 2),
        BayesByBackprop(samples=3, betas=(0.8, 0.999)),
    )
    batch = batch_of(draw(5, 2), draw(5), 40.0, 2.5)
    hyper = {name: draw().exp() for name in problem.hyper} | doubles(learning_rate=0.05)
    state = method.init(
        problem, normals(method.init_noise(problem), torch.Generator().manual_seed(1))
    )
    ours = {name: value.clone().requires_grad_() for name, value in state.params.items()}
    optimizer = torch.optim.Adam(ours.values(), lr=0.05, betas=(0.8, 0.999), eps=1e-8 / 40)
    for _ in range(20):
        z = draw(3, problem.dim)
        state = method.step(state, batch, hyper, {"z": z}, problem)
        theta = ours["mu"] + softplus(ours["rho"]) * z
        fit = sum(problem.log_likelihoods(row, batch, hyper).mean() for row in theta) / 3
        prior = DiagonalGaussian(
            torch.zeros(problem.dim).double(), 1 / hyper["prior_precision"].expand(problem.dim)
        )
        optimizer.zero_grad()
        (kl_divergence(posterior(ours), prior) / 40 - fit).backward()
        optimizer.step()
    for name, value in ours.items():
        torch.testing.assert_close(state.params[name], value.detach(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("method", "scale", "deviation"),
    [
        (BayesByBackprop(), 0.0, 0.313261688),
        (CholeskyVi(initial_scale=0.2, initial_std=2.0), 0.2, 2.0),
    ],
)
def test_initial_state(method, scale, deviation):
    """A rho of -1 is a deviation of log(1 + 1 / e)."""
    noise = {"theta": torch.tensor([1.0, -2.0, 3.0])}
    q = method.posterior(method.init(Problem(LinearModel(), GaussianLikelihood(), 2), noise))
    torch.testing.assert_close(q.mean(), scale * noise["theta"])
    torch.testing.assert_close(q.covariance(), deviation**2 * torch.eye(3))


HYPER = doubles(prior_precision=0.25, global_scale=0.1, noise_precision=4.0)


@dataclass(frozen=True)
class Sampled(GaussianPrior):
    """The Gaussian prior, which keeps its precision to itself."""

    precision = None

    def log_prob(self, phi, hyper, layout):
        return GaussianPrior().log_prob(phi, hyper, layout)


@dataclass(frozen=True)
class Expected(HorseshoePrior):
    """One that knows its mean under a Gaussian, which is asked of the horseshoe alone."""

    latent_dim, push, log_prob = Sampled.latent_dim, Sampled.push, Sampled.log_prob

    def expected_log_prob(self, mu: Tensor, var: Tensor, hyper, layout):
        return self.log_prob(mu, hyper, layout) - 0.5 * hyper["prior_precision"] * var.sum()


@pytest.mark.parametrize("prior", [Sampled(), Expected()], ids=["sampled", "expected"])
def test_the_general_gradients_are_the_closed_ones(draw, prior):
    """By symmetric samples of covariance I, over which quadratic functions have their mean."""
    net = Problem(Mlp(hidden=(3,)), GaussianLikelihood(), 2, prior=GaussianPrior())
    params, z = {"mu": draw(net.dim), "rho": draw(net.dim)}, sigma_points(0, net.dim)["z"]
    batch = batch_of(draw(5, 2), draw(5), 40.0, 1.5)
    expected = bbb.mean_field_elbo_gradients(params, batch, HYPER, z, net)
    other = Problem(net.model, net.likelihood, 2, prior=prior)
    actual = BayesByBackprop().gradients(DescentState(params, None), batch, HYPER, {"z": z}, other)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_families_of_priors_and_degrees(draw):
    scaled, plain = (
        Problem(Mlp((3,)), GaussianLikelihood(), 2, prior=prior)
        for prior in (HorseshoePrior(), StudentTPrior())
    )
    noise, method = {"theta": draw(scaled.dim)}, BayesByBackprop(initial_scale=1.0)
    state, z = method.init(scaled, noise), draw(27)
    q = method.posterior(state)
    assert isinstance(q, Scaled)
    assert method.step_noise(scaled) == {"z": (4, 13 + 14)}
    pushed = scaled.push(method._latent(state.params).sample(z), HYPER)
    torch.testing.assert_close(q.check().sample(z), pushed, rtol=1e-12, atol=1e-12)

    heavy = BayesByBackprop(initial_scale=1.0, degrees=1.0)
    found = heavy.posterior(heavy.init(plain, noise))
    assert isinstance(found, StudentT)
    assert found.check().degrees == 1
    assert heavy.step_noise(plain) == {"z": (4, 26)}


@pytest.mark.parametrize(
    "prior", [HorseshoePrior(), SpikeSlabPrior()], ids=["horseshoe", "spike-slab"]
)
def test_a_sparse_prior_shrinks_what_does_not_count_and_leaves_the_rest(draw, prior):
    """Thirty rows, twelve inputs of which two count."""
    x, count = draw(30, 12), torch.tensor([0, 5])
    batch = batch_of(x, 2 * x[:, 0] - 3 * x[:, 5] + 0.5 * draw(30), 30.0)
    problem = Problem(LinearModel(bias=False), GaussianLikelihood(), 12, prior=prior)
    method = BayesByBackprop(samples=4, initial_rho=-2)
    hyper = HYPER | doubles(learning_rate=0.01, slab_share=0.5, slab_scale=1.0, spike_scale=0.01)
    state, step = (
        method.init(problem, {"theta": draw(problem.dim)}),
        TracedFunction(partial(method.step, problem=problem)),
    )
    for _ in range(1500):
        state = step(state, batch, hyper, {"z": draw(*method.step_noise(problem)["z"])})
    mean, others = (
        method.posterior(state).mean(),
        torch.ones(12, dtype=torch.bool).index_fill(0, count, False),
    )
    assert (mean[count] - torch.tensor([2.0, -3.0]).double()).abs().max() < 0.35
    least_squares = torch.linalg.lstsq(batch.x, batch.y).solution
    assert mean[others].abs().mean() < 0.4 * least_squares[others].abs().mean()
