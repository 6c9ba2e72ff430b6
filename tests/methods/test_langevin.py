"""SG-MCMC: the stationary law of full gradients, updates by hand, cycles, and the draws that are kept."""

import numpy as np
import pytest
import torch

from bdl.methods.counters import StepCounters
from bdl.methods.langevin import CyclicalSgmcmc, Sgld, StochasticGradientHmc
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.updates import update_kind

from .targets import advance, doubles, linear_gaussian, normals, steps


@pytest.mark.parametrize(
    ("method", "rate", "updates"),
    [
        (Sgld(), 0.5, 60),
        (StochasticGradientHmc(friction=0.4), 0.8, 60),
        (StochasticGradientHmc(), 0.2, 150),
    ],
)
def test_full_gradients_have_the_stationary_law_of_the_docstring(method, rate, updates):
    """4,000 chains; variances and covariances within 4.5 standard errors, and far from the target's at large steps."""
    target, generator, chains = linear_gaussian(), torch.Generator().manual_seed(0), 4000
    hyper, problem = target.hyper | doubles(learning_rate=rate), target.problem
    start = normals({"theta": (chains, 3)}, generator)
    state = torch.func.vmap(lambda one: method.init(problem, one))(start)
    for _ in range(updates):
        noise = normals({"z": (chains, 3)}, generator)
        state = torch.func.vmap(lambda own, z: method.step(own, target.data, hyper, z, problem))(
            state, noise
        )
    values, vectors = np.linalg.eigh(np.linalg.inv(target.posterior.covariance().numpy()))
    too_large = 1 / (1 - rate * values / 12 / (2 * (2 - getattr(method, "friction", 1.0))))
    law = vectors * (too_large / values) @ vectors.T
    error = np.sqrt((np.outer(law.diagonal(), law.diagonal()) + law**2) / (chains - 1))
    found = state.theta.numpy()
    assert (abs(np.cov(found.T) - law) < 4.5 * error).all()
    assert (
        abs(found.mean(0) - target.posterior.mean().numpy())
        < 4.5 * np.sqrt(law.diagonal() / chains)
    ).all()
    if rate > 0.2:
        assert (abs(target.posterior.covariance().numpy() - law) > 4.5 * error).diagonal().all()


def test_updates_of_minibatches_are_those_of_the_papers():
    """Chen et al. (2014, eq. 15) with eta = l / N.

    With a friction of 1 it is Welling and Teh's (2011, eq. 4).
    """
    problem, target = Problem(Mlp((2,), "tanh"), GaussianLikelihood(), 2), linear_gaussian()
    batch, hyper = (
        target.data._replace(x=target.data.x[:4], y=target.data.y[:4]),
        doubles(learning_rate=0.2),
    )
    for method, friction in ((Sgld(), 1.0), (StochasticGradientHmc(friction=0.3), 0.3)):
        v, eta = torch.zeros(9).double(), 0.2 / 12
        for before, after, noise in steps(method, problem, batch, target.hyper | hyper, 3):
            theta = before.theta.requires_grad_()
            U = -problem.log_likelihood(theta, batch, target.hyper) - problem.log_prior(
                theta, target.hyper
            )
            v = (
                v
                - eta * torch.autograd.grad(U, theta)[0]
                - friction * v
                + (2 * friction * eta) ** 0.5 * noise["z"]
            )
            torch.testing.assert_close(after.theta, (theta + v).detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("updates", [5, 8, 30])
def test_the_last_draws_are_kept(updates):
    """Two updates an epoch, three epochs of warm-up, every second epoch, four draws."""
    target, generator = linear_gaussian(), torch.Generator().manual_seed(0)
    method = Sgld(draws=4, warmup_epochs=3, thinning=2)
    state, path = method.init(target.problem, normals({"theta": (3,)}, generator)), []
    for update in range(1, updates + 1):
        given = (
            target.data,
            target.hyper | doubles(learning_rate=0.1),
            normals({"z": (3,)}, generator),
            target.problem,
        )
        state = advance(method, state, update, 2, *given)
        path.append(state.theta)
    expected = path[7::4][-4:] or path[-1:]
    found = method.posterior(state).draws
    assert len(found) == 4
    assert {tuple(row.tolist()) for row in found} == {tuple(row.tolist()) for row in expected}


def test_a_cycle_explores_without_noise_and_then_samples_with_falling_steps():
    """Five updates an epoch of 2 of 12 rows, which leaves two rows over.

    Cycles of three epochs.
    """
    target, generator = linear_gaussian(), torch.Generator().manual_seed(0)
    method, problem = CyclicalSgmcmc(friction=1.0, cycle_epochs=3, warmup_epochs=2), target.problem
    batch = target.data._replace(x=target.data.x[:2], y=target.data.y[:2])
    state = method.init(problem, normals({"theta": (3,)}, generator))
    for update in range(1, 31):
        epoch, within = divmod(update - 1, 5)
        rate = 0.5 * 0.1 * (np.cos(np.pi * (epoch % 3 + within / 6) / 3) + 1)
        noise = normals({"z": (3,)}, generator)
        counters = StepCounters(update, update // 5, update % 5 == 0, 5.0)
        explores, kept = epoch % 3 < 2, epoch % 3 == 2 and within == 4
        ends = (*("end_epoch",) * (within == 4), *("keep_draw",) * kept)
        assert update_kind(method, counters) == ("explore" if explores else "step", *ends)
        still = noise if not explores else {"z": torch.zeros(3).double()}
        expected = (
            Sgld()
            .step(state, batch, target.hyper | doubles(learning_rate=rate), still, problem)
            .theta
        )
        state = advance(
            method,
            state,
            update,
            5,
            batch,
            target.hyper | doubles(learning_rate=0.1),
            noise,
            problem,
        )
        torch.testing.assert_close(state.theta, expected, rtol=1e-10, atol=1e-12)
    assert state.n_draws == 2
    assert state.epochs == 6
