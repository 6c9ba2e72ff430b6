"""SGD iterates: the descent, the running moments, their expectation under known noise, and the engine."""

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import Tensor

from bdl.data import Dataset
from bdl.methods.sgd_iterates import VARIANCE_FLOOR, SgdIterates
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Problem
from bdl.posteriors import Traced
from bdl.rng import trial_keys
from bdl.training.batches import minibatches
from bdl.training.fitting import Snapshot, finished, initial_state
from bdl.training.program import Program
from bdl.training.schedule import Schedule
from bdl.training.traced import Repeated
from bdl.training.trials import Pool, Trials

from .targets import Target, advance, linear_gaussian, normals, occasions

RATES = {"learning_rate": 0.2, "weight_decay": 0.03, "warmup_learning_rate": 0.05}


def hyper_of(target: Target, **changes: float) -> dict[str, Tensor]:
    """Hyper-parameters of the target and of SGD, in the target's dtype."""
    own = {name: torch.tensor(value, dtype=target.data.x.dtype) for name, value in (RATES | changes).items()}
    return target.hyper | own


def descent(method, target: Target, hyper, n_steps: int, batch_size: int = 4, start: Tensor | None = None):
    """Minibatches of random rows, the initial state, and the state after each step of a plain loop."""
    generator, problem, data = torch.Generator().manual_seed(1), target.problem, target.data
    noise = normals(method.init_noise(problem), generator, data.x.dtype)
    states, batches = [method.init(problem, noise if start is None else {"theta": start})], []
    for update in range(1, n_steps + 1):
        rows = torch.randperm(len(data.y), generator=generator)[:batch_size]
        batches.append(data._replace(x=data.x[rows], y=data.y[rows]))
        per_epoch = len(data.y) // batch_size
        states.append(advance(method, states[-1], update, per_epoch, batches[-1], hyper, {}, problem))
    return batches, states


def iterates(states) -> np.ndarray:
    """Parameters after each step, float64, (steps, D)."""
    return torch.stack([state.theta for state in states[1:]]).double().numpy()


class Recursion:
    """Full-batch SGD on targets with fresh noise every step: theta' = G theta + xi + constant, exactly.

    The noise xi has the known covariance Q, so the stationary covariance solves C = G C G^T + Q, and
    iterates s >= t have covariance G^(s - t) C.
    """

    def __init__(self, rate: float, sigma: float = 0.5) -> None:
        self.target, self.sigma, self.rate = linear_gaussian(), sigma, rate
        data, hyper = self.target.data, self.target.hyper
        self.design = torch.cat([data.x, torch.ones_like(data.x[:, :1])], dim=1)
        X, n = self.design.numpy(), len(data.y)
        precision = (hyper["noise_precision"] * data.y_unit**2).item()
        hessian = (precision * X.T @ X + hyper["prior_precision"].item() * np.eye(3)) / n
        self.G = np.eye(3) - rate * hessian
        self.C = solve_discrete_lyapunov(self.G, (rate * precision * sigma / n) ** 2 * X.T @ X)

    def expected(self, form: np.ndarray) -> np.ndarray:
        """E sum_st form[s, t] theta_s theta_t^T for a symmetric form whose rows sum to 0: (T, T) -> (D, D)."""
        total = form.trace() * self.C
        for lag in range(1, len(form)):
            moved = np.linalg.matrix_power(self.G, lag) @ self.C
            total = total + form.trace(lag) * (moved + moved.T)
        return total

    def run(self, method, n_trials: int, n_steps: int):
        """Posterior covariances of independent trials, (n_trials, D, D)."""
        generator, problem, data = torch.Generator().manual_seed(2), self.target.problem, self.target.data
        hyper = hyper_of(self.target, learning_rate=self.rate)
        signal = self.design @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)

        shapes = {name: (n_trials, *shape) for name, shape in method.init_noise(problem).items()}
        state = torch.func.vmap(lambda noise: method.init(problem, noise))(normals(shapes, generator))
        steps = {}
        for update in range(1, n_steps + 1):

            def step(state, y, update=update):
                return advance(method, state, update, 1, data._replace(y=y), hyper, {}, problem)

            one = steps.setdefault(occasions(method, update, 1), Repeated(torch.func.vmap(step)))
            noise = torch.randn(n_trials, len(signal), generator=generator, dtype=torch.float64)
            state = one(state, signal + self.sigma * noise)
        return torch.func.vmap(lambda one: method.posterior(one).covariance())(state).numpy()


def deviations(n: int) -> np.ndarray:
    """The matrix that subtracts the mean of n values."""
    return np.eye(n) - 1 / n


def assert_mean(samples: np.ndarray, expected: np.ndarray, relative: float) -> None:
    """Within 4.5 standard errors, and those below a share of the largest entry, or it would prove little."""
    error = samples.std(0, ddof=1) / len(samples) ** 0.5
    assert error.max() < relative * abs(expected).max()
    assert (abs(samples.mean(0) - expected) < 4.5 * error).all()


def large_mean_iterates(method):
    """Float32 states whose iterates differ by 0.04 from a mean of up to 2000, and the kept iterates."""
    target = linear_gaussian(dtype=torch.float32)
    far = torch.tensor([1000.0, -500.0, 2000.0])
    moved = target.data.y + target.data.x @ far[:2] + far[2]
    target = target._replace(data=target.data._replace(y=moved))
    hyper = hyper_of(target, weight_decay=0.0, prior_precision=0.0)
    _, states = descent(method, target, hyper, 660, start=far / method.initial_scale)
    return states[-1], iterates(states)[60:]


def toy_trials(lengths: list[int]) -> tuple[Dataset, Trials]:
    """Data, and trials that share a table of 60 rows of 3 inputs and differ in rows and learning rates."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 3))
    data = Dataset("toy", x, 500 + 30 * (x @ [1.0, 0.5, -1.0] + 0.5 * generator.normal(size=60)))
    rows = [generator.permutation(60)[:n] for n in lengths]
    fixed = {"prior_precision": 0.5, "noise_precision": 1e-3}
    hyper = [fixed | {"learning_rate": 0.05 * (i + 1)} for i in range(len(rows))]
    return data, Trials.make(data, Pool.load(data), [("toy", i) for i in range(len(rows))], rows, hyper)


def trained(method, problem: Problem, data: Dataset, trials: Trials, schedule: Schedule) -> Snapshot:
    """What the engine makes of the trials."""
    return finished(Program(data, Pool.load(data), problem, method, schedule).fitting(trials))


def replay(method, problem: Problem, data: Dataset, trials: Trials, schedule: Schedule, index: int) -> np.ndarray:
    """Iterates of one trial of the engine, (epochs, steps per epoch, D): plain SGD by autograd."""
    one, pool = trials.take([index]), Pool.load(data)
    view, hyper = (type(one.view)(*(value[0] for value in one.view)), {k: v[0] for k, v in one.hyper.items()})
    theta = initial_state(method, problem, one, pool.device).theta[0]
    stream = minibatches(one.rows, trial_keys(one.identities, "shuffle"), schedule, batches_per_step=1)
    path = []
    for rows in [rows[0, 0] for _, updates in stream for rows in updates]:
        theta = theta.detach().requires_grad_()
        batch = view.batch(pool.x[rows], pool.y[rows])
        log_joint = problem.log_likelihood(theta, batch, hyper) + problem.log_prior(theta, hyper)
        (gradient,) = torch.autograd.grad(-log_joint / batch.n, theta)
        theta = theta - hyper["learning_rate"] * gradient
        path.append(theta.detach())
    return torch.stack(path).view(schedule.epochs, -1, problem.dim).double().numpy()


def test_hyper_parameters_of_the_settings():
    assert SgdIterates().hyper == ("learning_rate",)
    assert SgdIterates(prior_decay=False).hyper == ("learning_rate", "weight_decay")
    assert SgdIterates(separate_warmup=True).hyper == ("learning_rate", "warmup_learning_rate")


def test_start_is_the_scaled_noise():
    problem, method = linear_gaussian().problem, SgdIterates(initial_scale=0.3)
    noise = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    assert torch.equal(method.init(problem, {"theta": noise}).theta, 0.3 * noise)


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
        gradient = 0.4 * 1.3**2 * X.T @ (X @ theta - batch.y.numpy()) / 4
        early = separate_warmup and i < 6
        decay = 0.0 if early else alpha / 12 if prior_decay else RATES["weight_decay"]
        theta = theta - RATES["warmup_learning_rate" if early else "learning_rate"] * (gradient + decay * theta)
        np.testing.assert_allclose(state.theta.numpy(), theta, rtol=1e-12)


def test_translation_of_the_published_settings():
    """Torch's SGD on the mean squared error with rate eta and decay lambda takes the same steps."""
    target, method = linear_gaussian(), SgdIterates(warmup_epochs=1, prior_decay=False, separate_warmup=True)
    eta, warmup_eta, decay, beta = 0.1, 0.02, 0.05, 0.4 * 1.3**2
    hyper = hyper_of(
        target,
        learning_rate=2 * eta / beta,
        warmup_learning_rate=2 * warmup_eta / beta,
        weight_decay=decay * beta / 2,
    )
    batches, states = descent(method, target, hyper, 8)
    theta = states[0].theta.clone().requires_grad_()
    for i, (batch, state) in enumerate(zip(batches, states[1:], strict=True)):
        early = i < 3
        optimizer = torch.optim.SGD([theta], lr=warmup_eta if early else eta, weight_decay=0 if early else decay)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(target.problem.model(theta, batch.x, 1)[:, 0], batch.y).backward()
        optimizer.step()
        torch.testing.assert_close(state.theta, theta.detach(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("published_form", [True, False])
def test_decay_of_the_prior_settles_at_the_posterior_mean(published_form):
    """With all rows in the batch; the published form of that decay is lambda = 2 alpha / (beta N)."""
    target, beta = linear_gaussian(), 0.4 * 1.3**2
    hyper = hyper_of(target, weight_decay=2 * 1.5 / (beta * 12) * beta / 2)
    method = SgdIterates(prior_decay=not published_form)
    _, states = descent(method, target, hyper, 500, batch_size=12)
    torch.testing.assert_close(states[-1].theta, target.posterior.mean(), rtol=1e-10, atol=0)


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("n_steps", [6, 7, 9, 12, 40])
def test_moments_are_those_of_the_recorded_windows(window, n_steps):
    """Two epochs of three steps are the warm-up; until a window is complete the mean follows the iterates."""
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
    np.testing.assert_allclose(early.path, [*windows[:2], windows[:2].mean(0), windows[:2].mean(0)], rtol=1e-12)
    plain = SgdIterates(**settings)
    _, others = descent(plain, target, hyper, 80, batch_size=len(target.data.y))
    for one, other in zip(found[:2], plain.posterior(others[-1]), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("window", [1, 5])
def test_expected_covariance_under_known_gradient_noise(window):
    """Discrete Lyapunov equation, with the exact bias of an empirical covariance of correlated iterates."""
    recursion, n_windows = Recursion(rate=0.4), 40 // window
    method = SgdIterates(warmup_epochs=80, window=window)
    averages = np.kron(np.eye(n_windows), np.full((1, window), 1 / window))
    form = averages.T @ deviations(n_windows) @ averages / (n_windows - 1)
    assert_mean(recursion.run(method, 1000, 120), recursion.expected(form), relative=0.05)


def test_float32_keeps_the_covariance_of_iterates_far_from_zero():
    """The mean, 2000, is rounded to 1.2e-4, which is 3e-3 of a deviation. Raw moments lose everything."""
    method = SgdIterates(warmup_epochs=20, prior_decay=False)
    state, path = large_mean_iterates(method)
    posterior, exact = method.posterior(state), np.cov(path.T)
    assert posterior.covariance().dtype == torch.float32
    assert np.linalg.norm(posterior.covariance().numpy() - exact) < 3e-3 * np.linalg.norm(exact)
    np.testing.assert_allclose(posterior.mean().numpy(), path.mean(0), rtol=1e-6)
    single = path.astype(np.float32)
    raw = single.T @ single / len(single) - np.outer(single.mean(0), single.mean(0))
    assert np.linalg.norm(raw - exact) > np.linalg.norm(exact)


def test_iterates_of_a_subspace_have_a_posterior_in_float32():
    """Twenty inputs that are copies of two, one of them always zero: rank 3 at most, for any number of steps."""
    target = linear_gaussian(dtype=torch.float32)
    copies = torch.cat([target.data.x.repeat(1, 10), torch.zeros(12, 1)], dim=1)
    target = target._replace(problem=Problem(Linear(), Gaussian(), 21), data=target.data._replace(x=copies))
    method = SgdIterates(warmup_epochs=1)
    _, states = descent(method, target, hyper_of(target, learning_rate=0.02), 300)
    path = iterates(states)[3:]
    for n in (5, 50, 300):
        posterior = method.posterior(states[n]).check()
        exact = np.cov(path[: n - 3].T)
        assert np.linalg.norm(posterior.covariance().numpy() - exact) < 1e-4 * np.linalg.norm(exact)


def test_a_covariance_without_a_factor_is_not_a_number_and_stays_alone():
    target, method = linear_gaussian(), SgdIterates(warmup_epochs=0)
    state = descent(method, target, hyper_of(target), 20)[1][-1]
    states = type(state)(*(leaf.expand(2, *leaf.shape).clone() for leaf in state))
    states.scatter[0, 2, 2] = -1
    factors = torch.func.vmap(lambda one: method.posterior(one).scale_tril)(states)
    assert factors[0].isnan().all()
    torch.testing.assert_close(factors[1], method.posterior(state).scale_tril, rtol=1e-12, atol=0)


def test_engine_gives_each_trial_the_moments_of_its_own_iterates():
    """Five steps an epoch, or four; phase 2 starts with the third epoch of each trial."""
    data, trials = toy_trials([40, 43, 33, 47])
    problem, schedule = Problem(Mlp((2,)), Gaussian(), 3), Schedule(epochs=9, batch_size=8)
    method = SgdIterates(warmup_epochs=2, initial_scale=0.5, window=2)
    fit = trained(method, problem, data, trials, schedule)
    assert fit.state.collected.tolist() == [17, 17, 14, 17]
    for i in range(4):
        path = replay(method, problem, data, trials, schedule, i)[2:].reshape(-1, problem.dim)
        samples = path[: len(path) // 2 * 2].reshape(-1, 2, problem.dim).mean(1)
        posterior = method.posterior(type(fit.state)(*(leaf[i] for leaf in fit.state))).check()
        # float32 that adds in another order
        np.testing.assert_allclose(posterior.mean().numpy(), samples.mean(0), rtol=1e-4, atol=1e-5)
        exact = np.cov(samples.T)
        assert np.linalg.norm(posterior.covariance().numpy() - exact) < 1e-3 * np.linalg.norm(exact)
