"""Linear, Mlp and Unit against torch.nn modules with the same parameters, for every activation function."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from bdl.models.networks import ACTIVATIONS, LinearModel, Mlp, Unit

MODULES = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "softplus": nn.Softplus}
CASES = [
    pytest.param(LinearModel(), 4, 1, id="linear"),
    pytest.param(LinearModel(), 3, 5, id="linear-5-outputs"),
    pytest.param(LinearModel(bias=False), 3, 2, id="linear-no-bias"),
    pytest.param(Mlp(), 6, 1, id="default"),
    pytest.param(Mlp(hidden=(7, 1, 5)), 2, 3, id="three-layers"),
    *(pytest.param(Mlp((4, 3), name), 3, 2, id=name) for name in ACTIVATIONS),
    *(pytest.param(Unit(name), 3, 2, id=f"unit-{name}") for name in ("tanh", "relu")),
]


def reference(model, d_in: int, d_out: int) -> nn.Sequential:
    """The torch module of the same architecture, with random parameters, in float64."""
    torch.manual_seed(0)
    widths = (d_in, *getattr(model, "hidden", ()), d_out)
    assert model.widths(d_in, d_out) == widths
    activation = MODULES[getattr(model, "activation", "relu")]
    layers = [
        part
        for sizes in pairwise(widths)
        for part in (nn.Linear(*sizes, model.bias), activation())
    ]
    return nn.Sequential(*(layers if isinstance(model, Unit) else layers[:-1])).double()


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_outputs_gradients_and_errors_match_torch(model, d_in, d_out):
    """Errors times inputs, summed over examples, are the gradient of the weights.

    Errors alone that of the biases.
    """
    net = reference(model, d_in, d_out)
    theta = parameters_to_vector(net.parameters()).detach().requires_grad_()
    x = torch.randn(11, d_in, dtype=torch.float64)
    expected, actual = net(x), model(theta, x, d_out)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)

    expected.square().sum().backward()
    (gradient,) = torch.autograd.grad(actual.square().sum(), theta)
    wanted = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-13)

    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    found = model.backpropagate(theta.detach(), x, d_out, lambda f: 2 * f)
    for layer, (inputs, errors) in zip(layers, found, strict=True):
        torch.testing.assert_close(errors.T @ inputs, layer.weight.grad, rtol=1e-11, atol=1e-12)
        if model.bias:
            torch.testing.assert_close(errors.sum(0), layer.bias.grad, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_biases_and_the_start(model, d_in, d_out):
    """Weights start at noise over the root of their fan-in, and biases at 0."""
    parameters = dict(reference(model, d_in, d_out).named_parameters())
    mask = torch.cat(
        [torch.full((value.numel(),), name.endswith("bias")) for name, value in parameters.items()]
    )
    assert torch.equal(model.bias_mask(d_in, d_out), mask)
    assert model.dim(d_in, d_out) == len(mask)
    noise = torch.randn(len(mask), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    fan_in = torch.cat(
        [torch.full((value.numel(),), value.shape[-1]) for value in parameters.values()]
    )
    expected = torch.where(mask, 0.0, noise / fan_in**0.5)
    torch.testing.assert_close(model.initial(noise, d_in, d_out), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize(("model", "d_in", "d_out"), CASES)
def test_vmap_equals_the_loop(model, d_in, d_out):
    generator = torch.Generator().manual_seed(1)
    theta = torch.randn(3, model.dim(d_in, d_out), generator=generator, dtype=torch.float64)
    x = torch.randn(3, 9, d_in, generator=generator, dtype=torch.float64)
    actual = torch.func.vmap(lambda t, rows: model(t, rows, d_out))(theta, x)
    expected = torch.stack([model(t, rows, d_out) for t, rows in zip(theta, x, strict=True)])
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("d_in", "dim"), [(13, 751), (8, 501), (6, 401)], ids=["boston", "concrete", "yacht"]
)
def test_dimensions_of_the_published_uci_models(d_in, dim):
    assert Mlp().dim(d_in, 1) == dim
