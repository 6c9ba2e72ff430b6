"""Noisy K-FAC: factors against autograd, updates by hand, and the exact inverse Fisher information."""

import pytest
import torch
from torch.utils._pytree import tree_map

from bdl.methods.counters import StepCounters
from bdl.methods.noisy_kfac import NoisyKfac, find_axes, split_damping
from bdl.models.gradients import gradient_matrix
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem
from bdl.posteriors.kronecker import from_blocks, to_blocks

from .targets import BETA, batch_of, doubles, linear_gaussian, normals

NETWORK = Problem(Mlp(hidden=(4,), activation="tanh"), Categorical(), 2, 3)
WIDTHS = (2, 4, 3)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    return batch_of(x, torch.randint(3, (8,), generator=generator).double(), 40)


def drawn(method, problem, seed=0):
    """An initial state, and noise for updates without end."""
    generator = torch.Generator().manual_seed(seed)
    state = method.init(problem, normals(method.init_noise(problem), generator))
    return state, iter(lambda: normals(method.step_noise(problem), generator), None)


def test_damping_may_be_a_hyper_parameter(batch):
    """Then it is the same number as the setting."""
    hyper = doubles(prior_precision=1.0, kl_weight=0.5, learning_rate=0.1)
    fixed, free = NoisyKfac(damping=0.3), NoisyKfac(damping=None)
    state, noise = drawn(fixed, NETWORK)
    z = next(noise)
    expected = fixed.begin(state, batch, hyper, z, NETWORK)
    found = free.begin(state, batch, hyper | doubles(damping=0.3), z, NETWORK)
    assert all(torch.equal(a, b) for a, b in zip(found.means, expected.means, strict=True))
    other = free.begin(state, batch, hyper | doubles(damping=0.4), z, NETWORK)
    assert not torch.equal(other.means[0], expected.means[0])


def test_phases():
    method = NoisyKfac(statistics_every=2, inverses_every=4)
    phases = [method.phase(StepCounters(update, 0, False, 100.0)) for update in range(1, 9)]
    assert phases == ["begin", "observe", "step", "invert", "step", "observe", "step", "invert"]
    every = NoisyKfac(statistics_every=1, inverses_every=1)
    assert [every.phase(StepCounters(update, 0, False, 100.0)) for update in (1, 2, 3)] == [
        "begin",
        "invert",
        "invert",
    ]


@pytest.mark.parametrize(
    "problem", [NETWORK, Problem(LinearModel(bias=False), Categorical(), 2, 3)]
)
def test_factors_are_those_of_explicit_gradients(batch, problem):
    """An example's gradient of a layer is e a^T, by autograd of that example alone."""
    hyper = doubles(prior_precision=1.0, kl_weight=1.0, learning_rate=0.0)
    method = NoisyKfac()
    state, noise = drawn(method, problem)
    theta = method.posterior(state).loc
    after = method.begin(state, batch, hyper, next(noise), problem)
    gradients = to_blocks(
        gradient_matrix(problem, theta, batch, hyper), method.posterior(state).units
    )
    inputs = [batch.x]
    if problem is NETWORK:
        weights = to_blocks(theta, WIDTHS)[0]
        hidden = (batch.x @ weights[:, :-1].T + weights[:, -1]).tanh()
        inputs = [torch.cat([a, torch.ones(8, 1).double()], 1) for a in (batch.x, hidden)]
    for (A, S), G, a in zip(after.factors, gradients, inputs, strict=True):
        e = (G @ a.unsqueeze(-1)).squeeze(-1) / a.square().sum(1, keepdim=True)
        torch.testing.assert_close(e.unsqueeze(-1) * a.unsqueeze(1), G, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(A, a.T @ a / 8, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(S, e.T @ e / 8, rtol=1e-10, atol=1e-12)


def dense(pairs, widths=WIDTHS):
    """The matrix over parameters, in their order, whose blocks are S (x) A."""
    matrix = torch.block_diag(*(torch.kron(S, A) for A, S in pairs))
    order = torch.cat([block.flatten() for block in to_blocks(torch.arange(len(matrix)), widths)])
    return torch.zeros_like(matrix).index_put_((order.unsqueeze(1), order), matrix)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_updates_by_hand(batch, damping):
    """With dense matrices: the Kronecker product is formed, inverted, and multiplied by all parameters."""
    lam, alpha, rate, b = 0.7, 1.5, 0.05, 0.2
    method = NoisyKfac(statistics_every=2, inverses_every=4, statistics_weight=b, damping=damping)
    hyper = doubles(prior_precision=alpha, kl_weight=lam, learning_rate=rate)
    state, noises = drawn(method, NETWORK)
    gin = lam * alpha / 40
    mu, factors = method.posterior(state).loc, None
    for update in range(1, 9):
        noise = next(noises)
        theta = mu
        if update > 1:
            root = dense([(own.U * own.inner, own.V * own.outer) for own in state.axes])
            torch.testing.assert_close(
                root @ root.T, method.posterior(state).covariance(), rtol=1e-10, atol=1e-12
            )
            theta = mu + root @ from_blocks(list(noise.values()), WIDTHS)
        fresh = (
            NoisyKfac()
            .init(NETWORK, {"theta": theta})
            ._replace(means=tuple(to_blocks(theta, WIDTHS)))
        )
        observed = (
            NoisyKfac().begin(fresh, batch, hyper, noise, NETWORK).factors
        )  # held against autograd above
        if update == 1:
            factors = observed
        elif update % 2 == 0:
            factors = [
                [(1 - b) * old + b * new for old, new in zip(*both, strict=True)]
                for both in zip(factors, observed, strict=True)
            ]
        if update == 1 or update % 4 == 0:
            solving = torch.linalg.inv(dense([by_hand(A, S, gin + damping) for A, S in factors]))
            covariance = (
                lam / 40 * torch.linalg.inv(dense([by_hand(A, S, gin) for A, S in factors]))
            )
        V = gradient_matrix(NETWORK, theta, batch, hyper).mean(0) - gin * theta
        mu = mu + rate * solving @ V
        move = getattr(method, method.phase(StepCounters(update, 0, False, 100.0)))
        state = move(state, batch, hyper, noise, NETWORK)
        torch.testing.assert_close(method.posterior(state).loc, mu, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(
            method.posterior(state).check().covariance(), covariance, rtol=1e-9, atol=1e-11
        )


def by_hand(A, S, g):
    pi = ((A.trace() / len(A)) / (S.trace() / len(S))) ** 0.5
    return A + pi * g**0.5 * torch.eye(len(A)).double(), S + g**0.5 / pi * torch.eye(
        len(S)
    ).double()


def test_undamped_covariance_is_the_inverse_fisher_information():
    """Of a linear regression whose residuals are all one standard deviation: (beta u^2 X^T X)^-1."""
    target, method = linear_gaussian(), NoisyKfac()
    problem, X = target.problem, target.design
    state, noise = drawn(method, problem)
    y = X @ method.posterior(state).loc + BETA**-0.5 * torch.tensor([1.0, -1.0]).double().repeat(6)
    for weight in (1.0, 0.5):
        hyper = target.hyper | doubles(prior_precision=1e-20, kl_weight=weight, learning_rate=0.01)
        after = method.begin(state, target.data._replace(y=y), hyper, next(noise), problem)
        exact = weight * torch.linalg.inv(BETA * X.T @ X)
        torch.testing.assert_close(
            method.posterior(after).covariance(), exact, rtol=1e-7, atol=1e-10
        )


def test_what_is_not_finite_stays_so(batch):
    """A trial that has diverged does not stop those beside it: eigenvectors of NaN are NaN, not an error."""
    method, hyper = NoisyKfac(), doubles(prior_precision=1.5, kl_weight=0.7, learning_rate=0.05)
    state, _ = drawn(method, NETWORK)
    lost = state._replace(means=tuple(torch.full_like(M, torch.nan) for M in state.means))
    two = tree_map(lambda one, other: torch.stack([one, other]), lost, state)
    run = torch.func.vmap(lambda state: method.begin(state, batch, hyper, {}, NETWORK))
    after = run(two)
    assert after.means[0][0].isnan().all()
    for both, alone in zip(
        after.means, method.begin(state, batch, hyper, {}, NETWORK).means, strict=True
    ):
        torch.testing.assert_close(both[1].abs(), alone.abs(), rtol=1e-9, atol=1e-11)


def test_a_dead_layer_leaves_finite_numbers():
    """Its factor over outputs is zero.

    Damping alone makes the product of both what it should be.
    """
    assert (
        torch.stack(split_damping(torch.eye(3) * 0.5, torch.zeros(2, 2), torch.tensor(1e-4)))
        .isfinite()
        .all()
    )
    problem = Problem(Mlp(hidden=(2,)), GaussianLikelihood(), 2)
    x, y = torch.ones(4, 2), torch.randn(4, generator=torch.Generator().manual_seed(0))
    theta = torch.cat(
        [torch.zeros(4), -torch.ones(2), torch.ones(3)]
    )  # rectifiers that never open
    method = NoisyKfac()
    state = method.init(problem, {"theta": theta})
    state = state._replace(means=tuple(to_blocks(theta, (2, 2, 1))))
    names = ("prior_precision", "noise_precision", "kl_weight", "learning_rate")
    after = method.begin(
        state, batch_of(x, y, 40), dict.fromkeys(names, torch.tensor(1.0)), {}, problem
    )
    q = method.posterior(after).check()
    assert q.loc.isfinite().all()
    assert q.variance().isfinite().all()


def test_eigenvalues_are_those_of_double_precision():
    """Single precision is not to be relied on where inputs are always 0: the factor has 20 such rows."""
    x = torch.rand(30, 60, generator=torch.Generator().manual_seed(5))
    x[:, 40:] = 0
    A, S = x.T @ x / 30, torch.eye(2)
    found = find_axes(A, S, *torch.tensor([1e-30, 1e-30, 1.0]))
    exact = torch.linalg.eigvalsh(A.double()).clamp(min=0).float()
    torch.testing.assert_close(1 / found.inner_step, exact, rtol=1e-6, atol=1e-10)
