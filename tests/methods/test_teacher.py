"""The weights that made the targets: counted as printed, and as right as the noise allows on other rows."""

import numpy as np
import pytest
import torch

from bdl.data.teachers import SparseLinear, SparseNetwork
from bdl.errors import InputError
from bdl.methods.teacher import Teacher
from bdl.models.likelihoods import GaussianLikelihood
from bdl.models.networks import LinearModel, Mlp
from bdl.models.problem import Problem

LINEAR = Problem(LinearModel(bias=False), GaussianLikelihood(), 1000)
NETWORK = Problem(Mlp((200, 200)), GaussianLikelihood(), 200)


def draw(source, index):
    split = source.split(index)
    return [
        torch.from_numpy(part[rows])
        for rows in (split.train, split.test)
        for part in (source.x, source.y)
    ]


def test_weights_of_a_linear_draw():
    x, y, _, _ = draw(SparseLinear()(), 3)
    found = Teacher("sparse_linear").fit(LINEAR, x, y, {})
    np.testing.assert_allclose(found.loc, SparseLinear().weights(3), rtol=1e-12)


def test_a_network_in_another_scale():
    """Its predictions are off by the noise, of variance 1, in the unit of the targets.

    Zeros stay zeros.
    """
    x, y, x_test, y_test = draw(SparseNetwork()(), 2)
    centre, size, low, unit = x.mean(0), x.std(0), y.mean(), y.std()
    found = Teacher("sparse_network").fit(NETWORK, (x - centre) / size, (y - low) / unit, {})
    predicted = NETWORK.model(found.loc, (x_test - centre) / size, 1)[:, 0] * unit + low
    assert (predicted - y_test).var().item() == pytest.approx(1, abs=4.5 * (2 / 220) ** 0.5)
    first = found.loc[:40_000].view(200, 200)
    assert int((first == 0).sum()) == 39_800
    np.testing.assert_allclose(first[-1] / size, SparseNetwork().weights(2)[0][-1], rtol=1e-9)


def test_a_network_of_sigmoid_units():
    """It predicts a constant, from which other rows are off by the noise, of variance 1."""
    x, y, x_test, y_test = draw(SparseNetwork(activation="sigmoid")(), 4)
    problem = Problem(Mlp((200, 200), "sigmoid"), GaussianLikelihood(), 200)
    weights = Teacher("sparse_network_sigmoid").fit(problem, x, y, {}).loc
    predicted = problem.model(weights, x_test, 1)[:, 0]
    assert predicted.std() < 1e-12
    assert (predicted - y_test).square().mean().item() == pytest.approx(1, abs=0.45)
    with pytest.raises(InputError, match="the training rows are no draw of sparse_network;"):
        Teacher("sparse_network").fit(problem, x, y, {})


def test_rows_of_no_draw_are_refused():
    x, y, _, _ = draw(SparseLinear()(), 0)
    with pytest.raises(
        InputError, match="the training rows are no draw of sparse_linear; use it on that data set"
    ):
        Teacher("sparse_linear").fit(LINEAR, x, y.flip(0), {})
    with pytest.raises(InputError, match="the training rows are no draw of sparse_linear"):
        Teacher("sparse_linear").fit(LINEAR, x[:100], y[:100], {})
