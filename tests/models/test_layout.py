"""Where parameters stand: unit by unit, counted by hand."""

import pytest

from bdl.errors import InputError
from bdl.models.base import Layout
from bdl.models.modules import Module
from bdl.models.networks import Linear, Mlp


def test_weights_know_the_unit_and_the_layer_that_they_leave():
    layout = Layout(Mlp(hidden=(3,)), 2, 1)
    assert (layout.dim, layout.n_units, layout.n_layers) == (13, 5, 2)
    assert layout.units.tolist() == [
        0,
        1,
        0,
        1,
        0,
        1,
        5,
        5,
        5,
        2,
        3,
        4,
        5,
    ]  # two inputs, three hidden units, 5 for biases
    assert layout.layers.tolist() == [0, 0, 0, 0, 0, 0, 2, 2, 2, 1, 1, 1, 2]
    assert layout.n_entered == 4
    assert layout.entered.tolist() == [0, 0, 1, 1, 2, 2, 4, 4, 4, 3, 3, 3, 4]
    assert layout.biases.tolist() == [False] * 6 + [True] * 3 + [False] * 3 + [True]


@pytest.mark.parametrize(
    ("layout", "units", "layers"),
    [
        (Layout(Linear(), 2, 2), [0, 1, 0, 1, 2, 2], [0, 0, 0, 0, 1, 1]),
        (Layout(Linear(bias=False), 3, 1), [0, 1, 2], [0, 0, 0]),
    ],
)
def test_linear_models(layout, units, layers):
    assert layout.units.tolist() == units
    assert layout.layers.tolist() == layers


def test_of_other_models_the_last_layer_has_units_if_it_is_dense():
    assert Layout(Module("torch.nn:Linear"), 3, 1).units.tolist() == [0, 1, 2, 3]
    assert Layout(Module("torch.nn:Linear"), 3, 1).last_layer == (3, 1, True)
    with pytest.raises(InputError, match="model Module is not made of dense layers: use linear or mlp"):
        _ = Layout(Module("torch.nn:Linear"), 3, 1).layers
