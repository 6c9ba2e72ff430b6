"""Online factor analysis of SGD's iterates: the estimators fed by hand, a known covariance, what stands still."""

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from bdl.methods.iterates_fa import IteratesFa
from bdl.methods.online_em import OnlineEm
from bdl.methods.online_px_em import OnlinePxEm
from bdl.methods.online_sga import OnlineSga
from bdl.methods.sgd_iterates import VARIANCE_FLOOR
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.fitting import make_initial_state
from bdl.training.schedule import Schedule

from .targets import advance, linear_gaussian, normals
from .test_sgd_iterates import descent, hyper_of, iterates, replay, toy_trials, trained

ESTIMATORS = {"em": OnlineEm, "sga": OnlineSga, "px-em": OnlinePxEm}

each = pytest.mark.parametrize("name", ESTIMATORS)


def by_hand(name, kept, start):
    """State and posterior of an estimator fed with the iterates kept, (T, D): the first hundred are its units."""
    origin, unit = kept[:100].mean(0), kept[:100].std(0)
    estimator, state = ESTIMATORS[name](start.loadings.shape[-2]), start
    for theta in torch.tensor((kept[100:] - origin) / unit):
        state = estimator.update(state, theta)
    posterior = estimator.posterior(state)
    factors = unit[:, None] * posterior.factors.numpy()
    covariance = factors @ factors.T + np.diag(unit**2 * posterior.diag.numpy())
    return state, origin + unit * posterior.loc.numpy(), covariance


@each
def test_is_the_estimator_fed_with_the_iterates(name):
    """Three steps an epoch, two epochs of warm-up, a hundred iterates for the units, a hundred for the estimator."""
    target, method = linear_gaussian(), IteratesFa(estimator=name, latent_dim=2, warmup_epochs=2)
    _, states = descent(method, target, hyper_of(target), 400)
    state, mean, covariance = by_hand(name, iterates(states)[6:], states[0].estimate)
    assert states[-1].estimate.n_observations == 294
    torch.testing.assert_close(
        tree_leaves(states[-1].estimate), tree_leaves(state), rtol=1e-9, atol=1e-11
    )
    posterior = method.posterior(states[-1]).check()
    np.testing.assert_allclose(posterior.mean().numpy(), mean, rtol=1e-10)
    np.testing.assert_allclose(posterior.covariance().numpy(), covariance, rtol=1e-9, atol=1e-13)
    assert (posterior.variance() > 1e6 * VARIANCE_FLOOR).all()


@each
def test_before_the_end_of_the_warm_ups_it_is_a_narrow_gaussian_at_the_iterate(name):
    target, method = linear_gaussian(), IteratesFa(estimator=name, latent_dim=2, warmup_epochs=2)
    _, states = descent(method, target, hyper_of(target), 207)
    for n, state in enumerate(states):
        unchanged = map(torch.equal, tree_leaves(state.estimate), tree_leaves(states[0].estimate))
        assert all(unchanged) == (n <= 106)
        posterior = method.posterior(state).check()
        narrow = torch.equal(
            posterior.covariance(), VARIANCE_FLOOR * torch.eye(3, dtype=torch.float64)
        )
        assert narrow == torch.equal(posterior.mean(), state.theta) == (n <= 206)


def test_the_engine_feeds_each_trial_with_its_own_iterates():
    """Five steps an epoch, or four; the third epoch of each trial begins its units."""
    data, trials = toy_trials([40, 43, 33, 47])
    problem, schedule = (
        Problem(Mlp((2,)), GaussianLikelihood(), 3),
        Schedule(epochs=70, batch_size=8),
    )
    method = IteratesFa(estimator="em", latent_dim=3, warmup_epochs=2, initial_scale=0.5)
    fit = trained(method, problem, data, trials, schedule)
    assert fit.state.estimate.n_observations.tolist() == [240, 240, 172, 240]
    start = make_initial_state(method, problem, trials, torch.device("cpu")).estimate
    for i in (1, 2):
        kept = replay(method, problem, data, trials, schedule, i)[2:].reshape(-1, problem.dim)
        own = tree_map(
            lambda leaf, i=i: leaf[i].double() if leaf.is_floating_point() else leaf[i], start
        )
        _, mean, covariance = by_hand("em", kept, own)
        posterior = method.posterior(tree_map(lambda leaf, i=i: leaf[i], fit.state)).check()
        # float32 that adds in another order
        np.testing.assert_allclose(posterior.mean().numpy(), mean, rtol=1e-4, atol=1e-5)
        assert np.linalg.norm(posterior.covariance().numpy() - covariance) < 1e-3 * np.linalg.norm(
            covariance
        )


@each
@pytest.mark.parametrize("n_moving", [0, 150])
def test_a_parameter_that_stands_still_stays_narrow_and_may_move_later(name, n_moving):
    """Its input is zero until the last steps, without decay."""
    method, target = (
        IteratesFa(estimator=name, latent_dim=2, warmup_epochs=2),
        linear_gaussian(dtype=torch.float32),
    )
    generator, path = torch.Generator().manual_seed(0), []
    problem, hyper = target.problem, hyper_of(target, prior_precision=0.0)
    noise = normals(method.init_noise(problem), generator, torch.float32)
    state = method.init(problem, noise)
    for update in range(1, 401):
        rows, moves = torch.randperm(12, generator=generator)[:4], float(update > 400 - n_moving)
        batch = target.data._replace(
            x=target.data.x[rows] * torch.tensor([1.0, moves]), y=target.data.y[rows]
        )
        state = advance(method, state, update, 3, batch, hyper, {}, problem)
        path.append(state.theta)
    spread = torch.stack(path[6:]).std(0)
    posterior = method.posterior(state).check()
    assert posterior.covariance().isfinite().all()
    if n_moving:
        assert spread[1] > 0.01
    else:
        assert spread[1] == 0
        assert posterior.variance()[1] <= 2e-4 * posterior.variance()[[0, 2]].mean()
        assert posterior.mean()[1] == state.theta[1]
