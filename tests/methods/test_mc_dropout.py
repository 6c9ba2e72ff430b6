"""MC dropout against networks with dropout layers, PyTorch's Adam, and closed forms."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from bdl.methods.mc_dropout import McDropout
from bdl.models.likelihoods import Gaussian
from bdl.models.networks import Mlp
from bdl.models.priors import GaussianPrior
from bdl.models.problem import Batch, Problem
from bdl.posteriors import Dropout

from .targets import linear_gaussian, normals, repeat

NET = Problem(Mlp(hidden=(4, 3)), Gaussian(), 2)
UNITS = 2 + 4 + 3

SEED = 6


class Dropped(nn.Module):
    """A network 2-4-3-1 whose inputs and hidden units are multiplied by the masks that it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*sizes) for sizes in itertools.pairwise((2, 4, 3, 1))).double()

    def forward(self, x, kept, rate):
        for layer, own in zip(self.layers, kept.split([2, 4, 3], dim=-1), strict=True):
            x = layer((x if layer is self.layers[0] else torch.relu(x)) * own / (1 - rate))
        return x.squeeze(-1)


def test_masked_parameters_are_a_network_with_dropout_layers(draw):
    torch.manual_seed(0)
    net, rate, noise, x = Dropped(), 0.3, draw(20, UNITS), draw(6, 2)
    theta = parameters_to_vector(net.parameters()).detach()
    q = Dropout(theta, NET.layout.units, torch.full((UNITS,), rate, dtype=torch.float64))
    kept = (noise > -0.5244005127080407).double()  # the normal quantile of 0.3
    assert 0 < kept.mean() < 1
    for one, own in zip(q.sample(noise), kept, strict=True):
        torch.testing.assert_close(NET.model(one, x, 1).squeeze(-1), net(x, own, rate), rtol=1e-12, atol=1e-12)


def test_expected_prediction_of_a_linear_network_is_the_unmasked_one(draw):
    """Positive inputs and parameters leave every ReLU open, so the network is multilinear in its masks.

    The expectation is the sum over all 2^9 masks.
    """
    theta, x, rate = draw(NET.dim).abs(), draw(5, 2).abs(), 0.2
    q = Dropout(theta, NET.layout.units, torch.full((UNITS,), rate, dtype=torch.float64))
    noise = 9 * torch.tensor(list(itertools.product([-1.0, 1.0], repeat=UNITS)), dtype=torch.float64)
    outputs = torch.func.vmap(lambda one: NET.model(one, x, 1))(q.sample(noise))
    dropped = (noise < 0).double().sum(1)
    weights = rate**dropped * (1 - rate) ** (UNITS - dropped)
    torch.testing.assert_close((weights[:, None, None] * outputs).sum(0), NET.model(theta, x, 1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("decay", ["published", "corrected"])
def test_steps_are_those_of_plain_torch(draw, decay):
    """The published loss is that of the authors' code: mean squared error of standardised targets, and Keras' l2.

    The sum over N rows is N tau s^2 / 2 times it, and so is eps.
    """
    n, unit, rate, length, batches = 40.0, 2.5, 0.3, 0.9, 3
    hyper = {"learning_rate": 0.05, "dropout_rate": rate, "prior_precision": length**2, "noise_precision": 0.6}
    tau, scale = hyper["noise_precision"], n * hyper["noise_precision"] * unit**2 / 2
    method = McDropout(gradients_per_update=batches, decay=decay)
    problem = Problem(NET.model, Gaussian(), 2, prior=GaussianPrior(0.7))
    torch.manual_seed(0)
    net = Dropped()
    noise = {"theta": parameters_to_vector(net.parameters()).detach() / method.initial_scale}
    state = method.init(problem, noise)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05, eps=1e-8 / scale)
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in hyper.items()}
    for _ in range(10):
        x, y, noise = draw(batches, 5, 2), draw(batches, 5), draw(batches, UNITS)
        batch = Batch(x, y, *torch.tensor([n, unit], dtype=torch.float64))
        state = method.step(state, batch, tensors, {"units": noise}, problem)
        kept = (noise > -0.5244005127080407).double()
        loss = sum((y[i] - net(x[i], kept[i], rate)).square().mean() / batches for i in range(batches))
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
    torch.testing.assert_close(state.params["theta"], expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("bias_precision", [None, 0.2])
def test_dropout_of_inputs_is_a_ridge_regression(bias_precision):
    """With rate p, E_m |y - X (m o w) - b|^2 = |y - X w - b|^2 + p / (1 - p) sum_j |x_j|^2 w_j^2.

    At p = 1/2 all masks are equally likely: with each of them once, the gradient vanishes at the closed form.
    """
    target = linear_gaussian(bias_precision=bias_precision)
    data, method = target.data, McDropout(gradients_per_update=4)
    beta = target.hyper["noise_precision"] * data.y_unit**2
    design = torch.cat([data.x, torch.ones_like(data.x[:, :1])], dim=1)
    prior = target.problem.prior_precision(target.hyper).expand(3) * torch.tensor([2.0, 2.0, 1.0])
    ridge = prior + beta * design.square().sum(0) * torch.tensor([1.0, 1.0, 0.0])
    optimum = torch.linalg.solve(beta * design.T @ design + ridge.diag(), beta * design.T @ data.y)

    rates = {"learning_rate": 0.1, "dropout_rate": 0.5}
    hyper = target.hyper | {name: torch.tensor(value, dtype=torch.float64) for name, value in rates.items()}
    masks = torch.tensor(list(itertools.product([-1.0, 1.0], repeat=2)), dtype=torch.float64)

    def gradient(theta):
        """Adam starts from zero, so its first moment after one step is (1 - beta1) times the gradient."""
        state = method.init(target.problem, {"theta": theta / method.initial_scale})
        after = method.step(state, repeat(data, 4), hyper, {"units": masks}, target.problem)
        return after.optim.first["theta"] / 0.1

    assert gradient(optimum).abs().max() < 1e-12
    hessian = torch.func.jacrev(gradient)(optimum)
    torch.testing.assert_close(hessian, beta * design.T @ design + ridge.diag(), rtol=1e-10, atol=1e-10)


def test_the_posterior_has_the_rate_of_training_and_a_normal_a_unit(draw):
    method = McDropout(gradients_per_update=1)
    state = method.init(NET, {"theta": draw(NET.dim)})
    assert not method.posterior(state).rate.any()
    names = ("learning_rate", "dropout_rate", *NET.hyper)
    hyper = dict(zip(names, torch.tensor([0.1, 0.25, 1.0, 1.0], dtype=torch.float64), strict=True))
    batch = Batch(draw(5, 2), draw(5), *torch.tensor([5.0, 1.0], dtype=torch.float64))
    noise = normals(method.step_noise(NET), torch.Generator().manual_seed(0))
    q = method.posterior(method.step(state, batch, hyper, noise, NET)).check()
    assert q.rate.tolist() == [0.25] * UNITS
    assert q.noise_dim == UNITS
