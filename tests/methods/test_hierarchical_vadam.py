"""Vadam with learnt scales: updates by hand, fixed points, and sparse problems."""

import pytest
import torch

from bdl.methods.counters import StepCounters
from bdl.methods.hierarchical_vadam import HierarchicalVadam
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Batch, Problem

from .targets import repeated

HYPER = {
    name: torch.tensor(value, dtype=torch.float64)
    for name, value in {"learning_rate": 0.05, "prior_precision": 1.0, "noise_precision": 4.0}.items()
}

SEED = 5


def regression(draw) -> tuple[Problem, Batch]:
    """Sixty rows, twelve inputs of which two count, noise of standard deviation 0.5."""
    x = draw(60, 12)
    y = 2 * x[:, 0] - 3 * x[:, 5] + 0.5 * draw(60)
    batch = Batch(x, y, torch.tensor(60.0).double(), torch.tensor(1.0).double())
    return Problem(Linear(bias=False), Gaussian(), 12), batch


def train(method, problem, batch, draw, updates):
    """Each update is an epoch."""
    state, step = method.init(problem, {"theta": draw(problem.dim)}), repeated(method, problem)
    for _ in range(updates):
        noise = {"theta": draw(method.samples, problem.dim)}
        state = step(state, batch, HYPER, noise)
        state = method.learn(state, batch, HYPER, noise, problem)
    return state


def test_one_round_by_hand(draw):
    """Groups of the units that weights leave: two inputs of two weights each, one hidden unit, and the biases."""
    problem = Problem(Mlp((2,)), Gaussian(), 2)
    kappa, method = 0.3, HierarchicalVadam(shared="leaving", global_scale=0.3)
    state = method.init(problem, {"theta": draw(9)})
    state = state._replace(local=draw(5).exp(), whole=draw().exp(), weights=state.weights._replace(var=draw(9).exp()))
    new = method.learn(state, None, HYPER, {}, problem)
    members = [[0, 2], [1, 3], [6], [7], [4, 5, 8]]  # weights (2 x 2), two biases, weights (1 x 2), a bias
    second = state.weights.mu.square() + state.weights.var
    E = torch.stack([second[own].sum() for own in members])
    n = torch.tensor([2.0, 2, 1, 1, 3], dtype=torch.float64)
    local = (n + 1) / (2 / (1 + state.local) + state.whole * E)
    whole = 10 / (2 / (1 / kappa**2 + state.whole) + (local * E).sum())
    torch.testing.assert_close(new.local, local, rtol=1e-12, atol=0)
    torch.testing.assert_close(new.whole, whole, rtol=1e-12, atol=0)
    for group, own in enumerate(members):
        torch.testing.assert_close(new.alpha[own], (local[group] * whole).expand(len(own)), rtol=1e-12, atol=0)

    ard = HierarchicalVadam(scales="ard", shared="leaving").learn(state, None, HYPER, {}, problem)
    torch.testing.assert_close(ard.alpha[[0, 2]], (2 / E[0]).expand(2), rtol=1e-12, atol=0)


def test_the_first_update_takes_the_precision_that_is_given(draw):
    problem, batch = regression(draw)
    method = HierarchicalVadam()
    state = method.init(problem, {"theta": draw(12)})
    noise = {"theta": draw(1, 12)}
    plain = method._inner.step(state.weights, batch, HYPER, noise, problem)
    torch.testing.assert_close(method.step(state, batch, HYPER, noise, problem).weights.mu, plain.mu, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("optimizer", "scales", "shares"),
    [
        ("vogn", "ard", (0, 0.5)),
        ("vogn", "horseshoe", (0, 0.75)),
        ("vadam", "ard", (0.75, 1)),
        ("vadam", "horseshoe", (0.75, 1)),
    ],
)
def test_what_does_not_count_is_shrunk_and_the_rest_is_not(draw, optimizer, scales, shares):
    """As a share of the least-squares sizes, whose standard error is 0.065; Vadam's variances are too wide for it."""
    problem, batch = regression(draw)
    method = HierarchicalVadam(scales=scales, optimizer=optimizer, samples=4)
    mean = method.posterior(train(method, problem, batch, draw, 700)).loc
    others = torch.ones(12, dtype=torch.bool).index_fill(0, torch.tensor([0, 5]), False)
    least_squares = torch.linalg.lstsq(batch.x, batch.y).solution
    assert (mean[[0, 5]] - torch.tensor([2.0, -3.0]).double()).abs().max() < 0.25
    share = mean[others].abs().mean() / least_squares[others].abs().mean()
    assert shares[0] < share < shares[1]


def test_scales_are_learnt_when_epochs_end():
    method = HierarchicalVadam()
    assert [method.due(StepCounters(n, n // 3, n % 3 == 0, 3.0)) for n in (1, 2, 3)] == [(), (), ("learn",)]
