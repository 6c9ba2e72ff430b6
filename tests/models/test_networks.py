"""Linear and Mlp against torch.nn modules with the same parameters, for every activation function."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from bdl.models import MODELS
from bdl.models.networks import ACTIVATIONS, Linear, Mlp

CASES = [
    pytest.param(Linear(), 4, 1, id="linear"),
    pytest.param(Linear(), 3, 5, id="linear-5-outputs"),
    pytest.param(Mlp(), 6, 1, id="default"),
    pytest.param(Mlp(hidden=(4,)), 3, 2, id="one-layer"),
    pytest.param(Mlp(hidden=(7, 1, 5)), 2, 3, id="three-layers"),
]
MODULES = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "softplus": nn.Softplus,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
CASES += [pytest.param(Mlp((4, 3), name), 3, 2, id=name) for name in MODULES if name != "relu"]
FEATURES = {"boston": 13, "concrete": 8, "energy": 8, "yacht": 6}


def reference(model, d_in: int, d_out: int) -> nn.Sequential:
    """The torch module of the same architecture, with random parameters, in float64."""
    torch.manual_seed(0)
    widths = (d_in, *getattr(model, "hidden", ()), d_out)
    activation = MODULES[getattr(model, "activation", "relu")]
    layers = [part for sizes in pairwise(widths) for part in (nn.Linear(*sizes), activation())]
    return nn.Sequential(*layers[:-1]).double()


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_outputs_and_gradients_match_torch(model, d_in, d_out):
    net = reference(model, d_in, d_out)
    theta = parameters_to_vector(net.parameters()).detach().requires_grad_()
    x = torch.randn(11, d_in, dtype=torch.float64)
    expected, actual = net(x), model(theta, x, d_out)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)

    expected.square().sum().backward()
    (gradient,) = torch.autograd.grad(actual.square().sum(), theta)
    wanted = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_widths_are_those_of_the_layers(model, d_in, d_out):
    layers = [layer for layer in reference(model, d_in, d_out) if isinstance(layer, nn.Linear)]
    assert model.widths(d_in, d_out) == (d_in, *(layer.out_features for layer in layers))


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_dim_and_bias_mask_match_torch(model, d_in, d_out):
    parameters = dict(reference(model, d_in, d_out).named_parameters())
    expected = [torch.full((value.numel(),), name.endswith("bias")) for name, value in parameters.items()]
    mask = model.bias_mask(d_in, d_out)
    assert mask.dtype == torch.bool
    assert torch.equal(mask, torch.cat(expected))
    assert model.dim(d_in, d_out) == len(mask)


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_vmap_equals_the_loop(model, d_in, d_out):
    generator = torch.Generator().manual_seed(1)
    theta = torch.randn(3, model.dim(d_in, d_out), generator=generator, dtype=torch.float64)
    x = torch.randn(3, 9, d_in, generator=generator, dtype=torch.float64)
    actual = torch.func.vmap(lambda t, rows: model(t, rows, d_out))(theta, x)
    expected = torch.stack([model(t, rows, d_out) for t, rows in zip(theta, x, strict=True)])
    assert actual.shape == (3, 9, d_out)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_errors_are_the_gradients_by_what_the_layers_put_out(model, d_in, d_out):
    """Errors times inputs, summed over examples, are the gradient of the weights; errors alone that of the biases."""
    net = reference(model, d_in, d_out)
    theta = parameters_to_vector(net.parameters()).detach()
    x = torch.randn(6, d_in, dtype=torch.float64)
    net(x).square().sum().backward()
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    found = model.backpropagate(theta, x, d_out, lambda f: 2 * f)
    for layer, (inputs, errors) in zip(layers, found, strict=True):
        torch.testing.assert_close(errors.sum(0), layer.bias.grad, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(errors.T @ inputs, layer.weight.grad, rtol=1e-11, atol=1e-12)


def test_every_activation_is_tested():
    assert MODULES.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_the_start_is_noise_by_fan_in_and_zero_biases(model, d_in, d_out):
    noise = torch.randn(model.dim(d_in, d_out), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = []
    for n_in, n_out in pairwise(model.widths(d_in, d_out)):
        used = noise[sum(map(len, expected)) :][: n_in * n_out]
        expected += [used / n_in**0.5, torch.zeros(n_out, dtype=torch.float64)]
    torch.testing.assert_close(model.initial(noise, d_in, d_out), torch.cat(expected), rtol=1e-7, atol=0)


def test_a_linear_map_without_bias_starts_at_scaled_noise():
    assert Linear(bias=False).initial(torch.tensor([2.0, -4.0, 1.0, 0.5]), 4, 1).tolist() == [1.0, -2.0, 0.5, 0.25]


@pytest.mark.parametrize(("dataset", "dim"), [("boston", 751), ("concrete", 501), ("energy", 501), ("yacht", 401)])
def test_dimensions_of_the_published_uci_models(dataset, dim):
    assert Mlp().dim(FEATURES[dataset], 1) == dim
    assert Linear().dim(FEATURES[dataset], 1) == FEATURES[dataset] + 1


def test_the_bias_of_a_linear_regression_is_the_last_entry():
    theta, x = torch.tensor([2.0, -3.0, 10.0]), torch.tensor([[1.0, 1.0], [0.5, 2.0]])
    assert Linear()(theta, x, 1).tolist() == [[9.0], [5.0]]


def test_hidden_units_are_rectified_and_outputs_are_not():
    """One hidden unit, f = -2 relu(3 x - 1) + 0.5, worked by hand."""
    theta, x = torch.tensor([3.0, -1.0, -2.0, 0.5]), torch.tensor([[0.0], [1.0]])
    assert Mlp(hidden=(1,))(theta, x, 1).tolist() == [[0.5], [-3.5]]


def test_registered_names():
    assert MODELS.get("linear")() == Linear()
    assert MODELS.get("mlp")() == Mlp(hidden=(50,))
