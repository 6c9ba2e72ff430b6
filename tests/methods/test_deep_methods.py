"""Methods for deep networks: ensembles, Laplace's approximation of the last layer, dropout before it, and clipping."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bdl.data import Dataset
from bdl.methods.counters import StepCounters
from bdl.methods.deep_ensemble import DeepEnsemble
from bdl.methods.last_layer_laplace import LastLayerLaplace
from bdl.methods.mc_dropout import McDropout
from bdl.methods.optim import OPTIMIZERS
from bdl.methods.point_estimate import Adam
from bdl.models.likelihoods import Categorical
from bdl.models.modules import Module
from bdl.models.networks import Linear, Mlp
from bdl.models.problem import Batch, Problem
from bdl.posteriors import LastLayer
from bdl.training.fitting import finished
from bdl.training.program import Program
from bdl.training.schedule import Schedule
from bdl.training.trials import Pool

from .targets import linear_gaussian, normals, repeat

HYPER = {"learning_rate": torch.tensor(0.01), "prior_precision": torch.tensor(0.7)}


NET = f"{Path(__file__).with_name('networks.py')}:small_net"


@pytest.fixture
def labels() -> Batch:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, 2, generator=generator)
    return Batch(x, (x.sum(1) > 0).float() + (x[:, 0] > 1), torch.tensor(40.0), torch.tensor(1.0))


def net(**settings) -> Problem:
    model = Module(NET, **settings)
    return Problem(model, Categorical(), 2, 3)


def test_members_are_single_fits():
    """Each has a start and minibatches of its own, and moves as Adam alone does."""
    target, method = linear_gaussian(dtype=torch.float32), DeepEnsemble(members=3)
    problem, generator = target.problem, torch.Generator().manual_seed(1)
    noise = normals(method.init_noise(problem), generator, torch.float32)
    hyper = target.hyper | {"learning_rate": torch.tensor(0.1)}
    whole = repeat(target.data, 3)
    batches = whole._replace(x=whole.x + torch.arange(3.0).view(3, 1, 1))
    after = method.posterior(method.step(method.init(problem, noise), batches, hyper, {}, problem)).draws
    for number, draw in enumerate(after):
        alone = Adam().init(problem, {"theta": noise["theta"][number]})
        own = batches._replace(x=batches.x[number], y=batches.y[number])
        assert torch.equal(draw, Adam().step(alone, own, hyper, {}, problem).params["theta"])


@pytest.mark.parametrize("model", [Mlp((4,)), Module(NET)], ids=["mlp", "normalised"])
def test_the_last_layer_has_the_gauss_newton_matrix_at_the_point(labels, model):
    """Of two minibatches of 10 of 40 rows, so that the sum counts twice; by autograd, class by class."""
    problem, method = Problem(model, Categorical(), 2, 3), LastLayerLaplace(descent_epochs=1)
    theta = normals({"theta": (problem.dim,)}, torch.Generator().manual_seed(2), torch.float32)
    state = method.step(method.init(problem, theta), labels, HYPER, {}, problem)
    point = state.point.params["theta"]
    for update in (5, 6):
        assert method.phase(StepCounters(update, 1, False, 4.0)) == "look"
        state = method.look(state, labels, HYPER, {}, problem)
    posterior = method.posterior(state)
    assert torch.equal(posterior.mean(), point)
    J = torch.autograd.functional.jacobian(lambda own: problem.model(own, labels.x, 3), point)[..., -15:].double()
    p = torch.softmax(problem.model(point, labels.x, 3), -1).double()
    H = sum(J[i].T @ (p[i].diag() - p[i].outer(p[i])) @ J[i] for i in range(10))
    expected = torch.linalg.inv(4 * H + 0.7 * torch.eye(15))
    torch.testing.assert_close(posterior.covariance()[-15:, -15:].double(), expected, rtol=1e-3, atol=1e-5)
    assert posterior.covariance()[:-15].abs().sum() == 0


def test_samples_of_the_last_layer_have_its_moments():
    root = torch.tensor([[2.0, 0.0], [0.5, 1.5]], dtype=torch.float64)
    posterior = LastLayer(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), root).check()
    noise = normals({"z": (200_000, 2)}, torch.Generator().manual_seed(0))["z"]
    draws = posterior.sample(noise)
    expected = torch.linalg.inv(root @ root.T)
    torch.testing.assert_close(torch.cov(draws[:, 1:].T), expected, rtol=0.02, atol=0.002)
    torch.testing.assert_close(posterior.variance()[1:], expected.diagonal())
    assert draws[:, 0].unique().tolist() == [1.0]


def test_dropout_before_the_last_layer_drops_its_inputs_alone():
    problem, method = net(), McDropout(gradients_per_update=1, initial_scale=None)
    method.check(problem)
    state = method.init(problem, normals(method.init_noise(problem), torch.Generator().manual_seed(0), torch.float32))
    source = state.source.long().tolist()
    assert source[-15:] == [0, 1, 2, 3] * 3 + [4] * 3
    assert set(source[:-15]) == {4}


def test_adam_averages_minibatches_and_clips_the_gradient_of_all_data(labels):
    problem = Problem(Linear(), Categorical(), 2, 3)
    method = Adam(gradients_per_update=2, max_grad_norm=0.5)
    batches = labels._replace(x=labels.x.view(2, 5, 2), y=labels.y.view(2, 5))
    start = method.init(problem, {"theta": torch.ones(problem.dim)})
    theta = start.params["theta"].clone().requires_grad_()
    (40 * -problem.log_likelihoods(theta, labels, HYPER).mean() + 0.35 * theta.square().sum()).backward()
    assert theta.grad.norm() > 0.5
    gradient = {"theta": 0.5 * theta.grad / theta.grad.norm()}
    steps, _ = OPTIMIZERS["adam"].update(gradient, start.optim, {"theta": 0.01})
    found = method.step(start, batches, HYPER, {}, problem).params["theta"]
    torch.testing.assert_close(found, start.params["theta"] + steps["theta"], rtol=1e-5, atol=1e-6)


def test_statistics_are_recomputed_from_training_rows(labels):
    problem = net(batch_norm="recompute")
    theta = problem.initial(torch.randn(problem.dim, generator=torch.Generator().manual_seed(3)))
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(4))
    found = problem.recomputed(theta, x)  # two minibatches of 128 rows
    hidden = [part @ theta[:8].view(4, 2).T + theta[8:12] for part in (x[:128], x[128:256])]
    torch.testing.assert_close(found["1.running_mean"], sum(part.mean(0) for part in hidden) / 2)
    torch.testing.assert_close(found["1.running_var"], sum(part.var(0) for part in hidden) / 2)
    assert problem.buffers() == {}
    mapped = torch.func.vmap(problem.recomputed, (0, None))(theta.expand(2, -1), x)
    torch.testing.assert_close(mapped["1.running_var"][1], found["1.running_var"])


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
    rng = np.random.default_rng(0)
    x = rng.standard_normal((90, 2))
    data = Dataset("toy", x, (x @ [1, 2] > 0).astype(float), "classification")
    problem = Problem(Module(NET, batch_norm="recompute"), Categorical(), 2, 2)
    program = Program(data, Pool.load(data), problem, method, Schedule(3, 10))
    hyper = {"learning_rate": 0.05, "prior_precision": 0.1, **settings}
    fitting = program.fitting(program.trials([("a",), ("b",)], [np.arange(80), np.arange(10, 90)], [hyper, hyper]))
    end = finished(fitting)
    assert end.diverged.tolist() == [0, 0]
    assert bool(fitting.posterior(end, 1).mean().isfinite().all())
