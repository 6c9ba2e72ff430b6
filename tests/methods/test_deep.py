"""Methods for deep networks: ensembles, Laplace's approximation of the last layer, MC dropout, and clipping."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from bdl.data import Dataset
from bdl.methods.counters import StepCounters
from bdl.methods.deep_ensemble import DeepEnsemble
from bdl.methods.last_layer_laplace import LastLayerLaplace
from bdl.methods.mc_dropout import McDropout
from bdl.methods.optim import OPTIMIZERS
from bdl.methods.point_estimate import Adam
from bdl.models.likelihoods import Categorical, GaussianLikelihood
from bdl.models.modules import Module
from bdl.models.networks import LinearModel, Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.training.fitting import run_to_end
from bdl.training.schedule import Schedule
from bdl.training.setup import TrainingSetup
from bdl.training.trials import Pool

from .targets import BETA, batch_of, doubles, linear_gaussian, normals, repeat

HYPER = {"learning_rate": torch.tensor(0.01), "prior_precision": torch.tensor(0.7)}
NET = f"{Path(__file__).with_name('networks.py')}:small_net"
SEED = 6


@pytest.fixture
def labels() -> Batch:
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    return batch_of(x, (x.sum(1) > 0).float() + (x[:, 0] > 1), 40)


def test_members_are_single_fits():
    """Each has a start and minibatches of its own, and moves as Adam alone does."""
    target, method = linear_gaussian(dtype=torch.float32), DeepEnsemble(members=3)
    problem, generator = target.problem, torch.Generator().manual_seed(1)
    noise = normals(method.init_noise(problem), generator, torch.float32)
    hyper = target.hyper | {"learning_rate": torch.tensor(0.1)}
    whole = repeat(target.data, 3)
    batches = whole._replace(x=whole.x + torch.arange(3.0).view(3, 1, 1))
    after = method.posterior(
        method.step(method.init(problem, noise), batches, hyper, {}, problem)
    ).draws
    for number, draw in enumerate(after):
        alone = Adam().init(problem, {"theta": noise["theta"][number]})
        own = batches._replace(x=batches.x[number], y=batches.y[number])
        assert torch.equal(draw, Adam().step(alone, own, hyper, {}, problem).params["theta"])


@pytest.mark.parametrize("model", [Mlp((4,)), Module(NET)], ids=["mlp", "normalised"])
def test_the_last_layer_has_the_gauss_newton_matrix_at_the_point(labels, model):
    """Of two minibatches of 10 of 40 rows, so that the sum counts twice.

    By autograd, class by class.
    """
    problem, method = Problem(model, Categorical(), 2, 3), LastLayerLaplace(descent_epochs=1)
    theta = normals({"theta": (problem.dim,)}, torch.Generator().manual_seed(2), torch.float32)
    state = method.step(method.init(problem, theta), labels, HYPER, {}, problem)
    point = state.point.params["theta"]
    for update in (5, 6):
        assert method.phase(StepCounters(update, 1, False, 4.0)) == "add_curvature"
        state = method.add_curvature(state, labels, HYPER, {}, problem)
    posterior = method.posterior(state)
    assert torch.equal(posterior.mean(), point)
    J = torch.autograd.functional.jacobian(lambda own: problem.model(own, labels.x, 3), point)[
        ..., -15:
    ].double()
    p = torch.softmax(problem.model(point, labels.x, 3), -1).double()
    H = sum(J[i].T @ (p[i].diag() - p[i].outer(p[i])) @ J[i] for i in range(10))
    expected = torch.linalg.inv(4 * H + 0.7 * torch.eye(15))
    torch.testing.assert_close(
        posterior.covariance()[-15:, -15:].double(), expected, rtol=1e-3, atol=1e-5
    )
    assert posterior.covariance()[:-15].abs().sum() == 0


def test_a_last_layer_whose_matrix_rounding_made_indefinite_has_no_posterior(labels):
    """One of two trials has a curvature in which float32 loses the prior."""
    problem, method = Problem(Mlp((4,)), Categorical(), 2, 3), LastLayerLaplace(descent_epochs=1)
    theta = normals({"theta": (problem.dim,)}, torch.Generator().manual_seed(2), torch.float32)
    state = method.step(method.init(problem, theta), labels, HYPER, {}, problem)
    generator = torch.Generator().manual_seed(3)
    direction = 1e5 * torch.randn(15, generator=generator)
    curvatures = torch.stack([torch.zeros(15, 15), direction.outer(direction)])

    def posterior(curvature):
        return method.posterior(state._replace(curvature=curvature, n_rows=state.rows))

    roots = torch.vmap(posterior)(curvatures).precision_root
    torch.testing.assert_close(roots[0], 0.7**0.5 * torch.eye(15))
    assert roots[1].isnan().all()


def test_adam_averages_minibatches_and_clips_the_gradient_of_all_data(labels):
    problem = Problem(LinearModel(), Categorical(), 2, 3)
    method = Adam(gradients_per_update=2, max_grad_norm=0.5)
    batches = labels._replace(x=labels.x.view(2, 5, 2), y=labels.y.view(2, 5))
    start = method.init(problem, {"theta": torch.ones(problem.dim)})
    theta = start.params["theta"].clone().requires_grad_()
    (
        40 * -problem.log_likelihoods(theta, labels, HYPER).mean() + 0.35 * theta.square().sum()
    ).backward()
    assert theta.grad.norm() > 0.5
    gradient = {"theta": 0.5 * theta.grad / theta.grad.norm()}
    change, _ = OPTIMIZERS["adam"].update(gradient, start.optim, {"theta": 0.01})
    found = method.step(start, batches, HYPER, {}, problem).params["theta"]
    torch.testing.assert_close(
        found, start.params["theta"] + change["theta"], rtol=1e-5, atol=1e-6
    )


def test_statistics_are_recomputed_from_training_rows():
    problem = Problem(Module(NET, batch_norm="recompute"), Categorical(), 2, 3)
    theta = problem.initial(torch.randn(problem.dim, generator=torch.Generator().manual_seed(3)))
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(4))
    found = problem.recompute_statistics(theta, x)  # two minibatches of 128 rows
    order = np.random.default_rng(0).permutation(300)
    parts = x[order[:128]], x[order[128:256]]
    hidden = [part @ theta[:8].view(4, 2).T + theta[8:12] for part in parts]
    torch.testing.assert_close(found["1.running_mean"], sum(part.mean(0) for part in hidden) / 2)
    torch.testing.assert_close(found["1.running_var"], sum(part.var(0) for part in hidden) / 2)
    assert problem.buffers() == {}
    mapped = torch.func.vmap(problem.recompute_statistics, (0, None))(theta.expand(2, -1), x)
    torch.testing.assert_close(mapped["1.running_var"][1], found["1.running_var"])
    ordered = problem.recompute_statistics(theta, x[x[:, 0].argsort()])
    torch.testing.assert_close(ordered["1.running_var"], found["1.running_var"], rtol=0.2, atol=0)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        (DeepEnsemble(members=2), {}),
        (LastLayerLaplace(descent_epochs=2), {}),
        (McDropout(initial_scale=None), {"dropout_rate": 0.1}),
        (Adam(gradients_per_update=2), {}),
    ],
)
def test_the_engine_trains_them_on_a_normalised_network(method, settings):
    x = np.random.default_rng(0).standard_normal((90, 2))
    data = Dataset("toy", x, (x @ [1, 2] > 0).astype(float), "classification")
    problem = Problem(Module(NET, batch_norm="recompute"), Categorical(), 2, 2)
    program = TrainingSetup(data, Pool.load(data), problem, method, Schedule(3, 10))
    hyper = {"learning_rate": 0.05, "prior_precision": 0.1, **settings}
    fitting = program.fitting(
        program.trials([("a",), ("b",)], [np.arange(80), np.arange(10, 90)], [hyper, hyper])
    )
    end = run_to_end(fitting)
    assert end.diverged.tolist() == [0, 0]
    assert bool(fitting.posterior(end, 1).mean().isfinite().all())


class Dropped(nn.Module):
    """A network 2-4-3-1 whose inputs and hidden units are multiplied by the masks that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(*sizes) for sizes in itertools.pairwise((2, 4, 3, 1))
        ).double()

    def forward(self, x, kept, rate):
        for layer, own in zip(self.layers, kept.split([2, 4, 3], dim=-1), strict=True):
            x = layer((x if layer is self.layers[0] else torch.relu(x)) * own / (1 - rate))
        return x.squeeze(-1)


@pytest.mark.parametrize("decay", ["published", "corrected"])
def test_steps_of_dropout_are_those_of_dropout_layers(draw, decay):
    """The published loss is that of the authors' code: mean squared error of standardised targets, and Keras' l2.

    The sum over N rows is N tau s^2 / 2 times it, and so is eps.
    """
    n, unit, rate, length, batches, units = 40.0, 2.5, 0.3, 0.9, 3, 2 + 4 + 3
    hyper = doubles(
        learning_rate=0.05, dropout_rate=rate, prior_precision=length**2, noise_precision=0.6
    )
    tau, scale = 0.6, n * 0.6 * unit**2 / 2
    method = McDropout(gradients_per_update=batches, decay=decay)
    problem = Problem(Mlp(hidden=(4, 3)), GaussianLikelihood(), 2, prior=GaussianPrior(0.7))
    torch.manual_seed(0)
    net = Dropped()
    state = method.init(
        problem, {"theta": parameters_to_vector(net.parameters()).detach() / method.initial_scale}
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05, eps=1e-8 / scale)
    for _ in range(10):
        batch, noise = (
            batch_of(draw(batches, 5, 2), draw(batches, 5), n, unit),
            draw(batches, units),
        )
        state = method.step(state, batch, hyper, {"units": noise}, problem)
        kept = (noise > -0.5244005127080407).double()  # the normal quantile of 0.3
        loss = sum(
            (batch.y[i] - net(batch.x[i], kept[i], rate)).square().mean() / batches
            for i in range(batches)
        )
        for layer in net.layers:
            if decay == "published":
                loss = loss + length**2 * (1 - rate) / (2 * n * tau) * layer.weight.square().sum()
            else:
                loss = loss + 0.5 * length**2 / (1 - rate) * layer.weight.square().sum() / scale
                loss = loss + 0.5 * 0.7 * layer.bias.square().sum() / scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    expected = parameters_to_vector(net.parameters()).detach()
    q, x = method.posterior(state).check(), draw(6, 2)
    torch.testing.assert_close(q.loc, expected, rtol=1e-9, atol=1e-10)
    assert q.rate.tolist() == [rate] * units
    predicted = problem.model(q.sample(noise[0]), x, 1).squeeze(-1)
    torch.testing.assert_close(predicted, net(x, kept[0], rate), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_dropout_of_inputs_is_a_ridge_regression(bias_precision):
    """With rate p, E_m |y - X (m o w) - b|^2 = |y - X w - b|^2 + p / (1 - p) sum_j |x_j|^2 w_j^2.

    At p = 1/2 all masks are equally likely: with each of them once, the gradient vanishes at the
    closed form.
    """
    target, method = (
        linear_gaussian(bias_precision=bias_precision),
        McDropout(gradients_per_update=4),
    )
    design = target.design
    prior = target.problem.prior_precision(target.hyper).expand(3) * torch.tensor([2.0, 2.0, 1.0])
    ridge = prior + BETA * design.square().sum(0) * torch.tensor([1.0, 1.0, 0.0])
    precision = BETA * design.T @ design + ridge.diag()
    hyper = target.hyper | doubles(learning_rate=0.1, dropout_rate=0.5)
    masks = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=2)), dtype=torch.float64)

    def gradient(theta):
        """Adam starts from zero, so its first moment after one step is (1 - beta1) times the gradient."""
        state = method.init(target.problem, {"theta": theta / method.initial_scale})
        after = method.step(state, repeat(target.data, 4), hyper, {"units": masks}, target.problem)
        return after.optim.first["theta"] / 0.1

    optimum = torch.linalg.solve(precision, BETA * design.T @ target.data.y)
    assert gradient(optimum).abs().max() < 1e-12
    torch.testing.assert_close(
        torch.func.jacrev(gradient)(optimum), precision, rtol=1e-10, atol=1e-10
    )


def test_dropout_of_a_network_that_is_not_dense_drops_the_inputs_of_its_last_layer_alone():
    problem, method = Problem(Module(NET), Categorical(), 2, 3), McDropout(initial_scale=None)
    method.check(problem)
    state = method.init(
        problem,
        normals(method.init_noise(problem), torch.Generator().manual_seed(0), torch.float32),
    )
    source = state.source.long().tolist()
    assert source[-15:] == [0, 1, 2, 3] * 3 + [4] * 3
    assert set(source[:-15]) == {4}
    assert not method.posterior(state).rate.any()
