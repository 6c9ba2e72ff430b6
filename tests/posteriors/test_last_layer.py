"""A Gaussian over the last layer: its samples, and that they take one solve."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bdl.posteriors import LastLayer

ROOT = torch.tensor([[2.0, 0.0], [1.0, 0.5]], dtype=torch.float64)


def test_samples_are_the_mean_and_the_inverse_transposed_root():
    posterior = LastLayer(torch.tensor([7.0, 1.0, -1.0], dtype=torch.float64), ROOT)
    noise = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)  # R^-T is ((1/2, -1), (0, 2))
    expected = torch.tensor([[[7, 1.5, -1], [7, 0, 1]]], dtype=torch.float64)
    torch.testing.assert_close(posterior.sample(noise), expected)
    torch.testing.assert_close(posterior.sample(noise[0, 1]), expected[0, 1])


@pytest.mark.parametrize("shape", [(2,), (100, 2), (3, 5, 2)])
def test_samples_do_not_copy_the_matrix(shape):
    given = []

    class Solves(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function is torch.ops.aten.linalg_solve_triangular.default:
                given.append((args[0].ndim, args[1].ndim))  # more dimensions of either are copies of the other
            return function(*args, **(kwargs or {}))

    with Solves():
        LastLayer(torch.zeros(5), ROOT.float()).sample(torch.ones(shape))
    assert given == [(2, 2)]
