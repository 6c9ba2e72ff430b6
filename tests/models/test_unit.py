"""A single unit: by hand, and its derivatives against autograd."""

import pytest
import torch

from bdl.models.networks import Unit

THETA = torch.tensor([0.5, -1.0, 0.25], dtype=torch.float64)
X = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, -2.0]], dtype=torch.float64)


def test_it_is_the_function_of_a_sum_without_a_bias():
    unit = Unit()
    expected = torch.tensor([0.5, -1.0], dtype=torch.float64).tanh().unsqueeze(-1)
    torch.testing.assert_close(unit(THETA, X, 1), expected)
    assert (unit.dim(3, 1), unit.widths(3, 1), unit.bias) == (3, (3, 1), False)
    assert not unit.bias_mask(3, 1).any()
    assert unit.initial(torch.tensor([2.0, 4.0, -6.0, 0.0]), 4, 1).tolist() == [1, 2, -3, 0]


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_errors_are_derivatives_by_what_the_unit_adds_up(activation):
    unit = Unit(activation)
    ((inputs, errors),) = unit.backpropagate(THETA, X, 1, lambda f: 2 * f)
    wanted = torch.func.grad(lambda theta: unit(theta, X, 1).square().sum())(THETA)
    torch.testing.assert_close(errors[:, 0] @ inputs, wanted)
