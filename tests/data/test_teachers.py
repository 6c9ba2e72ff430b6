"""Sparse teachers: counts of Tables 4.4 and 4.5 (2018), and targets that follow from the weights."""

import numpy as np
import pytest

from bdl.data import load
from bdl.data.teachers import SparseLinear, SparseNetwork


def test_the_linear_teacher():
    data, draw = load("sparse_linear"), SparseLinear()
    assert (data.x.shape, data.splits) == ((2500, 1000), 5)
    for index in range(5):
        weights, (train, test, _) = draw.weights(index), data.split(index)
        sizes = np.abs(weights)
        assert ((sizes < 0.05).sum(), (sizes < 0.25).sum(), (sizes >= 30).sum()) == (990, 990, 10)
        assert sizes.max() < 60
        assert (len(train), len(test)) == (250, 250)
        for rows in (train, test):
            errors = data.y[rows] - data.x[rows] @ weights
            assert errors.var() == pytest.approx(3, rel=5 * (2 / 250) ** 0.5)
    assert data.x.mean() == pytest.approx(2, abs=0.01)
    assert data.x.var() == pytest.approx(4, rel=0.01)


def test_the_network_teacher():
    data, draw = load("sparse_network"), SparseNetwork()
    assert (data.x.shape, data.splits) == ((2200, 200), 5)
    first, second, last = draw.weights(3)
    assert ((np.abs(first) < 1e-4).sum(), (np.abs(first) >= 1).sum()) == (39_800, 200)
    assert ((first[-1] >= 4) & (first[-1] <= 6)).all()
    assert np.array_equal(first[:-1], np.zeros((199, 200)))
    assert np.abs(last).max() < 0.1
    train, test, _ = data.split(3)
    assert (len(train), len(test)) == (220, 220)
    x = data.x[train]
    only = np.maximum(x @ first[-1], 0) * second[-1, -1] * last[0, -1]  # one unit of each layer does anything
    assert (data.y[train] - only).var() == pytest.approx(1, rel=5 * (2 / 220) ** 0.5)
    assert not np.array_equal(data.x[data.split(0).train], x)
