"""SGD iterates, SWAG and MultiSWAG: the descent, the moments of recorded iterates, and the engine."""

import numpy as np
import pytest
import torch
from torch import Tensor

from bdl.data import Dataset
from bdl.methods.counters import StepCounters
from bdl.methods.deep_ensemble import MultiSwag
from bdl.methods.sgd_iterates import VARIANCE_FLOOR, SgdIterates
from bdl.methods.swag import Swag
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import Traced
from bdl.rng import trial_keys
from bdl.training.batches import iterate_minibatches
from bdl.training.fitting import Snapshot, make_initial_state, run_to_end
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool, Trials

from .targets import BETA, Target, advance, linear_gaussian, normals

RATES = {"learning_rate": 0.2, "weight_decay": 0.03, "warmup_learning_rate": 0.05}


def hyper_of(target: Target, **changes: float) -> dict[str, Tensor]:
    """Hyper-parameters of the target and of SGD, in the target's dtype."""
    own = {
        name: torch.tensor(value, dtype=target.data.x.dtype)
        for name, value in (RATES | changes).items()
    }
    return target.hyper | own


def descent(
    method, target: Target, hyper, n_steps: int, batch_size: int = 4, start: Tensor | None = None
):
    """Minibatches of random rows, the initial state, and the state after each step of a plain loop."""
    generator, problem, data = torch.Generator().manual_seed(1), target.problem, target.data
    noise = normals(method.init_noise(problem), generator, data.x.dtype)
    states, batches = [method.init(problem, noise if start is None else {"theta": start})], []
    for update in range(1, n_steps + 1):
        rows = torch.randperm(len(data.y), generator=generator)[:batch_size]
        batches.append(data._replace(x=data.x[rows], y=data.y[rows]))
        per_epoch = len(data.y) // batch_size
        states.append(
            advance(method, states[-1], update, per_epoch, batches[-1], hyper, {}, problem)
        )
    return batches, states


def iterates(states) -> np.ndarray:
    """Parameters after each step, float64, (steps, D)."""
    return torch.stack([state.theta for state in states[1:]]).double().numpy()


def toy_trials(lengths: list[int]) -> tuple[Dataset, Trials]:
    """Data, and trials that share a table of 60 rows of 3 inputs and differ in rows and learning rates."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3))
    data = Dataset("toy", x, 500 + 30 * (x @ [1.0, 0.5, -1.0] + 0.5 * generator.normal(size=60)))
    rows = [generator.permutation(60)[:n] for n in lengths]
    fixed = {"prior_precision": 0.5, "noise_precision": 1e-3}
    hyper = [fixed | {"learning_rate": 0.05 * (i + 1)} for i in range(len(rows))]
    return data, Trials.make(
        data, Pool.load(data), [("toy", i) for i in range(len(rows))], rows, hyper
    )


def trained(
    method, problem: Problem, data: Dataset, trials: Trials, schedule: Schedule
) -> Snapshot:
    """What the engine makes of the trials."""
    return run_to_end(
        TrainingSetup(data, Pool.load(data), problem, method, schedule).fitting(trials)
    )


def replay(
    method, problem: Problem, data: Dataset, trials: Trials, schedule: Schedule, index: int
) -> np.ndarray:
    """Iterates of one trial of the engine, (epochs, steps per epoch, D): plain SGD by autograd."""
    one, pool = trials.take([index]), Pool.load(data)
    view, hyper = (
        type(one.view)(*(value[0] for value in one.view)),
        {k: v[0] for k, v in one.hyper.items()},
    )
    theta = make_initial_state(method, problem, one, pool.device).theta[0]
    stream = iterate_minibatches(
        one.rows, trial_keys(one.identities, "shuffle"), schedule, batches_per_step=1
    )
    path = []
    for rows in [rows[0, 0] for _, updates in stream for rows in updates]:
        theta = theta.detach().requires_grad_()
        batch = view.batch(pool.x[rows], pool.y[rows])
        log_joint = problem.log_likelihood(theta, batch, hyper) + problem.log_prior(theta, hyper)
        (gradient,) = torch.autograd.grad(-log_joint / batch.n, theta)
        theta = theta - hyper["learning_rate"] * gradient
        path.append(theta.detach())
    return torch.stack(path).view(schedule.epochs, -1, problem.dim).double().numpy()


@pytest.mark.parametrize("bias_precision", [None, 0.01])
@pytest.mark.parametrize("prior_decay", [True, False])
@pytest.mark.parametrize("separate_warmup", [True, False])
def test_steps_are_the_closed_form(bias_precision, prior_decay, separate_warmup):
    """theta' = theta - rate (precision X^T (X theta - y) / M + decay theta), three steps an epoch."""
    target = linear_gaussian(bias_precision=bias_precision)
    method = SgdIterates(warmup_epochs=2, prior_decay=prior_decay, separate_warmup=separate_warmup)
    batches, states = descent(method, target, hyper_of(target), 10)
    alpha = np.array([1.5, 1.5, 1.5 if bias_precision is None else bias_precision])
    theta = states[0].theta.numpy()
    for i, (batch, state) in enumerate(zip(batches, states[1:], strict=True)):
        X = np.column_stack([batch.x.numpy(), np.ones(4)])
        gradient = BETA * X.T @ (X @ theta - batch.y.numpy()) / 4
        early = separate_warmup and i < 6
        decay = 0.0 if early else alpha / 12 if prior_decay else RATES["weight_decay"]
        theta = theta - RATES["warmup_learning_rate" if early else "learning_rate"] * (
            gradient + decay * theta
        )
        np.testing.assert_allclose(state.theta.numpy(), theta, rtol=1e-12)


def test_translation_of_the_published_settings():
    """Torch's SGD on the mean squared error with rate eta and decay lambda takes the same steps."""
    target, method = (
        linear_gaussian(),
        SgdIterates(warmup_epochs=1, prior_decay=False, separate_warmup=True),
    )
    eta, warmup_eta, decay = 0.1, 0.02, 0.05
    rates = {"learning_rate": 2 * eta / BETA, "warmup_learning_rate": 2 * warmup_eta / BETA}
    hyper = hyper_of(target, **rates, weight_decay=decay * BETA / 2)
    batches, states = descent(method, target, hyper, 8)
    theta = states[0].theta.clone().requires_grad_()
    for i, (batch, state) in enumerate(zip(batches, states[1:], strict=True)):
        early = i < 3
        optimizer = torch.optim.SGD(
            [theta], lr=warmup_eta if early else eta, weight_decay=0 if early else decay
        )
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(
            target.problem.model(theta, batch.x, 1)[:, 0], batch.y
        ).backward()
        optimizer.step()
        torch.testing.assert_close(state.theta, theta.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("n_steps", [6, 7, 12, 40])
def test_moments_are_those_of_the_recorded_windows(window, n_steps):
    """Two epochs of three steps are the warm-up.

    Until a window is complete the mean follows the iterates.
    """
    target, method = linear_gaussian(), SgdIterates(warmup_epochs=2, window=window)
    _, states = descent(method, target, hyper_of(target), n_steps)
    path = iterates(states)[6:]
    samples = path[: len(path) // window * window].reshape(-1, window, 3).mean(1)
    if not len(samples):
        samples = path.mean(0, keepdims=True) if len(path) else iterates(states)[-1:]
        assert states[-1].collected == 0
    else:
        assert states[-1].collected == len(samples)
    covariance = np.cov(samples.T, ddof=1) if len(samples) > 1 else np.zeros((3, 3))
    posterior = method.posterior(states[-1]).check()
    np.testing.assert_allclose(posterior.mean().numpy(), samples.mean(0), rtol=1e-12)
    covariance = covariance + VARIANCE_FLOOR * np.eye(3)
    np.testing.assert_allclose(posterior.covariance().numpy(), covariance, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("window", [1, 3])
def test_posterior_keeps_the_first_windows_and_where_they_start(window):
    """Rows still to come are the mean, and the moments are those of a fit that keeps nothing."""
    target = linear_gaussian()
    settings = {"warmup_epochs": 2, "window": window, "separate_warmup": True}
    method, hyper = SgdIterates(**settings, kept=4), hyper_of(target)
    _, states = descent(method, target, hyper, 80, batch_size=len(target.data.y))
    seen = iterates(states)
    windows = seen[2 : 2 + 4 * window].reshape(4, window, -1).mean(1)
    found = method.posterior(states[-1]).check()
    assert isinstance(found, Traced)
    np.testing.assert_allclose(found.start, seen[1], rtol=1e-12)
    np.testing.assert_allclose(found.path, windows, rtol=1e-12)
    early = method.posterior(states[2 + 2 * window])
    np.testing.assert_allclose(
        early.path, [*windows[:2], windows[:2].mean(0), windows[:2].mean(0)], rtol=1e-12
    )
    plain = SgdIterates(**settings)
    _, others = descent(plain, target, hyper, 80, batch_size=len(target.data.y))
    assert all(map(torch.equal, found[:2], plain.posterior(others[-1])))


@pytest.mark.parametrize(
    "method", [SgdIterates(warmup_epochs=20, prior_decay=False), Swag(warmup_epochs=20)]
)
def test_float32_keeps_moments_of_iterates_far_from_zero(method):
    """They differ by 0.04 from a mean of up to 2000, which is rounded to 1.2e-4.

    Raw moments lose everything.
    """
    target, far = linear_gaussian(dtype=torch.float32), torch.tensor([1000.0, -500.0, 2000.0])
    target = target._replace(data=target.data._replace(y=target.data.y + target.design @ far))
    hyper = hyper_of(target, weight_decay=0.0, prior_precision=0.0)
    _, states = descent(method, target, hyper, 660, start=far / method.initial_scale)
    path, posterior = iterates(states)[60:], method.posterior(states[-1])
    if isinstance(method, Swag):
        np.testing.assert_allclose(2 * posterior.diag.numpy(), path[2::3].var(0), rtol=3e-3)
    else:
        exact = np.cov(path.T)
        assert np.linalg.norm(posterior.covariance().numpy() - exact) < 3e-3 * np.linalg.norm(
            exact
        )
        np.testing.assert_allclose(posterior.mean().numpy(), path.mean(0), rtol=1e-6)


def test_iterates_of_a_subspace_have_a_posterior_in_float32():
    """Twenty inputs that are copies of two, one of them always zero: rank 3 at most, for any number of steps."""
    target = linear_gaussian(dtype=torch.float32)
    copies = torch.cat([target.data.x.repeat(1, 10), torch.zeros(12, 1)], dim=1)
    target = target._replace(
        problem=Problem(LinearModel(), GaussianLikelihood(), 21),
        data=target.data._replace(x=copies),
    )
    method = SgdIterates(warmup_epochs=1)
    _, states = descent(method, target, hyper_of(target, learning_rate=0.02), 300)
    path = iterates(states)[3:]
    for n in (5, 50, 300):
        posterior = method.posterior(states[n]).check()
        exact = np.cov(path[: n - 3].T)
        assert np.linalg.norm(posterior.covariance().numpy() - exact) < 1e-4 * np.linalg.norm(
            exact
        )


def test_a_covariance_without_a_factor_is_not_a_number_and_stays_alone():
    target, method = linear_gaussian(), SgdIterates(warmup_epochs=0)
    state = descent(method, target, hyper_of(target), 20)[1][-1]
    states = type(state)(*(leaf.expand(2, *leaf.shape).clone() for leaf in state))
    states.scatter[0, 2, 2] = -1
    factors = torch.func.vmap(lambda one: method.posterior(one).scale_tril)(states)
    assert factors[0].isnan().all()
    torch.testing.assert_close(factors[1], method.posterior(state).scale_tril, rtol=1e-12, atol=0)


def published(collected: np.ndarray, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of SWAG from lists and raw moments, as equations 3.1 to 3.5 have them.

    The covariance is half of the diagonal and half of the low-rank part, divided by the number of
    columns less one.
    """
    columns = [theta - collected[: t + 1].mean(0) for t, theta in enumerate(collected)][-rank:]
    mean, D = collected.mean(0), np.column_stack(columns)
    variance = np.maximum((collected**2).mean(0) - mean**2, VARIANCE_FLOOR)
    return mean, 0.5 * (np.diag(variance) + D @ D.T / max(len(columns) - 1, 1))


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("collected", [1, 2, 4, 8])
def test_swag_of_the_recorded_iterates(rank, collected):
    """Three steps an epoch, two epochs of warm-up; steps within an epoch change nothing."""
    target, method = linear_gaussian(), Swag(warmup_epochs=2, rank=rank)
    _, states = descent(method, target, hyper_of(target), 3 * (2 + collected) + 2)
    mean, covariance = published(iterates(states)[8::3], rank)
    posterior = method.posterior(states[-1]).check()
    assert states[-1].collected == collected
    np.testing.assert_allclose(posterior.mean().numpy(), mean, rtol=1e-12)
    # raw moments of order 1 cancel down to their rounding
    np.testing.assert_allclose(posterior.covariance().numpy(), covariance, rtol=1e-10, atol=1e-14)


def test_before_the_first_collection_swag_is_a_narrow_gaussian_at_the_iterate():
    target, method = linear_gaussian(), Swag(warmup_epochs=2)
    _, states = descent(method, target, hyper_of(target), 8)
    for state in states:
        posterior = method.posterior(state).check()
        assert torch.equal(posterior.mean(), state.theta)
        assert torch.equal(
            posterior.variance(), torch.full((3,), 0.5 * VARIANCE_FLOOR, dtype=torch.float64)
        )


def test_members_of_multi_swag_are_fits_by_swag():
    """Two members, two updates in an epoch, that is four in one of a member.

    Seven of these, of which two warm up.
    """
    target, generator = linear_gaussian(), torch.Generator().manual_seed(0)
    method, single, hyper = (
        MultiSwag(members=2, rank=3, warmup_epochs=4),
        Swag(0.1, 2, 3),
        hyper_of(target),
    )
    start = normals(method.init_noise(target.problem), generator)
    together = method.init(target.problem, start)
    alone = [single.init(target.problem, {"theta": theta}) for theta in start["theta"]]
    for update in range(1, 29):
        rows = torch.randint(12, (2, 3), generator=generator)
        batches = target.data._replace(x=target.data.x[rows], y=target.data.y[rows])
        together = advance(method, together, update, 2, batches, hyper, {}, target.problem)
        for number in range(2):
            own = batches._replace(x=batches.x[number], y=batches.y[number])
            alone[number] = advance(
                single, alone[number], update, 4, own, hyper, {}, target.problem
            )
    assert together.collected.tolist() == [5, 5]
    for found, expected in zip(
        method.posterior(together).check().components(), alone, strict=True
    ):
        assert all(map(torch.equal, found, single.posterior(expected)))


def test_the_engine_collects_once_in_an_epoch_of_each_member():
    """Five minibatches an epoch and two members: every second epoch ends within no update."""
    data, trials = toy_trials([40, 43])
    method = MultiSwag(0.5, members=2, rank=3, warmup_epochs=2)
    fit = trained(
        method,
        Problem(Mlp((2,)), GaussianLikelihood(), 3),
        data,
        trials,
        Schedule(epochs=9, batch_size=8),
    )
    assert fit.state.collected.tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize("swag", [False, True])
def test_the_engine_gives_each_trial_the_moments_of_its_own_iterates(swag):
    """Five steps an epoch, or four; phase 2 starts with the third epoch of each trial."""
    data, trials = toy_trials([40, 43, 33, 47])
    problem, schedule = (
        Problem(Mlp((2,)), GaussianLikelihood(), 3),
        Schedule(epochs=9, batch_size=8),
    )
    method = Swag(0.5, 2, 3) if swag else SgdIterates(0.5, 2, window=2)
    fit = trained(method, problem, data, trials, schedule)
    assert fit.state.collected.tolist() == ([7] * 4 if swag else [17, 17, 14, 17])
    for i in range(4):
        path = replay(method, problem, data, trials, schedule, i)[2:]
        if swag:
            mean, covariance = published(path[:, -1], 3)
        else:
            path = path.reshape(-1, problem.dim)
            samples = path[: len(path) // 2 * 2].reshape(-1, 2, problem.dim).mean(1)
            mean, covariance = samples.mean(0), np.cov(samples.T)
        posterior = method.posterior(type(fit.state)(*(leaf[i] for leaf in fit.state))).check()
        # float32 that adds in another order
        np.testing.assert_allclose(posterior.mean().numpy(), mean, rtol=1e-4, atol=1e-5)
        assert np.linalg.norm(posterior.covariance().numpy() - covariance) < 1e-3 * np.linalg.norm(
            covariance
        )


@pytest.mark.parametrize("warmup", [0, 3, 4, 5, 12])
def test_members_collect_in_the_first_epoch_that_is_not_idle(warmup):
    """Rounds of all members end at multiples of their number."""
    method = MultiSwag(members=5, rank=3, warmup_epochs=warmup)
    collecting = [
        epochs
        for epochs in range(1, 40)
        if method.due(StepCounters(updates=epochs, epochs=epochs, ended=True))
    ]
    assert collecting[0] == method.idle_epochs + 1
