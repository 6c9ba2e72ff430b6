"""Linear and Mlp against torch.nn modules with the same parameters."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from bdl.models import MODELS
from bdl.models.networks import Linear, Mlp

CASES = [
    pytest.param(Linear(), 4, 1, id="linear"),
    pytest.param(Linear(), 3, 5, id="linear-5-outputs"),
    pytest.param(Mlp(), 6, 1, id="default"),
    pytest.param(Mlp(hidden=(4,)), 3, 2, id="one-layer"),
    pytest.param(Mlp(hidden=(7, 1, 5)), 2, 3, id="three-layers"),
]
FEATURES = {"boston": 13, "concrete": 8, "energy": 8, "yacht": 6}


def reference(model, d_in: int, d_out: int) -> nn.Sequential:
    """The torch module of the same architecture, with random parameters, in float64."""
    torch.manual_seed(0)
    widths = (d_in, *getattr(model, "hidden", ()), d_out)
    layers = [part for sizes in pairwise(widths) for part in (nn.Linear(*sizes), nn.ReLU())]
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
