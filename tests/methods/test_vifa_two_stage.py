"""VIFA in two stages: what moves when, at which rates, and that sums over minibatches are VIFA's gradients."""

import math
from itertools import pairwise

import pytest
import torch

from bdl.methods.optim import OPTIMIZERS, clip_by_norm
from bdl.methods.vifa import elbo_gradients
from bdl.methods.vifa_two_stage import TwoStageVifa

from .targets import advance, linear_gaussian, normals, repeat

ETA = 0.03


@pytest.fixture
def target():
    return linear_gaussian()


def trained(target, method: TwoStageVifa, epochs: int, per_epoch: int):
    """Train as the engine does; give the states after each minibatch, the first one, and the noise of each."""
    generator = torch.Generator().manual_seed(4)
    problem, batches = target.problem, repeat(target.data, 1)
    hyper = target.hyper | {"learning_rate": torch.tensor(ETA, dtype=torch.float64)}
    states = [method.init(problem, normals(method.init_noise(problem), generator))]
    noises = []
    for update in range(1, epochs * per_epoch + 1):
        noises.append(normals(method.step_noise(problem), generator))
        states.append(advance(method, states[-1], update, per_epoch, batches, hyper, noises[-1], problem))
    return states, noises, hyper


def test_it_starts_as_published(target):
    states, _, _ = trained(target, TwoStageVifa(), 0, 1)
    params = states[0].params
    assert params["F"].norm().item() == pytest.approx(1e-5)
    assert params["gamma"].exp().tolist() == pytest.approx([1e-5] * 3)


def test_every_third_minibatch_moves_the_mean_alone_in_the_first_stage(target):
    states, _, _ = trained(target, TwoStageVifa(gradients_per_update=3, mean_epochs=2), 2, 5)
    for update, (before, after) in enumerate(pairwise(states), start=1):
        assert torch.equal(before.params["c"], after.params["c"]) == (update % 3 != 0)
        assert after.fresh == (update % 3 == 0)
        for name in ("F", "gamma"):
            assert torch.equal(after.params[name], states[0].params[name])
    assert states[-1].spread_optim.updates == 0
    assert states[-1].mean_optim.updates == 3
    assert states[-1].epoch == 2


@pytest.mark.parametrize("ramp", ["printed", "as-run"])
def test_a_move_is_that_of_vifa_with_the_rates_of_the_epoch(target, ramp):
    """Epoch 3 of which 1 moves the mean: rates eta b^3, and eta or eta^2 times sigmoid(2)."""
    method = TwoStageVifa(
        latent_dim=2, gradients_per_update=4, mean_epochs=1, ramp=ramp, decay=0.9, initial_std=0.3, max_grad_norm=2.0
    )
    states, noises, hyper = trained(target, method, 4, 4)
    before, after = states[12], states[16]
    noise = {name: torch.stack([own[name] for own in noises[12:16]]) for name in ("h", "z")}
    grads = elbo_gradients(before.params, repeat(target.data, 4), hyper, noise, target.problem)
    grads = {name: clip_by_norm(grad, 2.0) for name, grad in grads.items()}
    rise = (ETA if ramp == "printed" else ETA**2) / (1 + math.exp(-2))
    adam = OPTIMIZERS["adam"]
    mean, _ = adam.update({"c": grads.pop("c")}, before.mean_optim, {"c": ETA * 0.9**3})
    spread, _ = adam.update(grads, before.spread_optim, dict.fromkeys(("F", "gamma"), rise))
    for name, step in (mean | spread).items():
        torch.testing.assert_close(after.params[name], before.params[name] + step, rtol=1e-9, atol=1e-12)


def test_as_run_the_spread_stays_where_it_starts(target):
    """With a rate of 5e-4, the largest published, 76 moves change log psi by less than 2e-5."""
    method = TwoStageVifa(gradients_per_update=1, mean_epochs=0, ramp="as-run")
    generator = torch.Generator().manual_seed(1)
    state = method.init(target.problem, normals(method.init_noise(target.problem), generator))
    hyper = target.hyper | {"learning_rate": torch.tensor(5e-4, dtype=torch.float64)}
    start = state.params["gamma"]
    for update in range(1, 77):
        noise = normals(method.step_noise(target.problem), generator)
        state = advance(method, state, update, 10, repeat(target.data, 1), hyper, noise, target.problem)
    moved = (state.params["gamma"] - start).abs().max().item()
    assert 0 < moved < 2e-5


def test_with_both_stages_it_finds_the_posterior(target):
    """Mean and covariance of a conjugate model, from a start that is too narrow; averaged over the last third."""
    method = TwoStageVifa(latent_dim=2, gradients_per_update=4, mean_epochs=20, initial_std=0.1, decay=1.0)
    states, _, _ = trained(target, method, 90, 20)
    found, truth = [method.posterior(state) for state in states[1200:]], target.posterior
    mean = torch.stack([own.mean() for own in found]).mean(0)
    covariance = torch.stack([own.covariance() for own in found]).mean(0)
    assert (mean - truth.mean()).norm() < 0.05 * truth.mean().norm()
    assert (covariance - truth.covariance()).norm() < 0.3 * truth.covariance().norm()
