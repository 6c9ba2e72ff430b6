"""Simulations of the thesis on noisy optimisers: moments that it states, targets that follow from weights."""

import numpy as np
import pytest

from bdl.data import DATASETS, load
from bdl.data.simulations import UnitTeacher
from bdl.errors import InputError


@pytest.mark.parametrize("settings", [{"rows": 0}, {"snr": 0}, {"activation": "relu"}])
def test_settings_that_make_no_sense(settings):
    with pytest.raises(InputError, match=f"teacher_unit': {next(iter(settings))}"):
        DATASETS.build("teacher_unit", settings)


def test_a_unit_as_teacher():
    data = UnitTeacher(rows=4000)()
    assert (data.x.shape, data.splits) == ((50_000, 100), 10)
    assert (data.x.mean(), data.x.var()) == (pytest.approx(2, abs=0.01), pytest.approx(4, rel=0.01))
    train, test, _ = data.split(7)
    assert (len(train), len(test)) == (4000, 1000)
    weights, residual, *_ = np.linalg.lstsq(data.x[train], data.y[train], rcond=None)
    assert residual / 3900 == pytest.approx(3, rel=5 * (2 / 3900) ** 0.5)
    assert weights.var() == pytest.approx(1 / 25, rel=5 * (2 / 100) ** 0.5)
    assert ((data.x[test] @ weights - data.y[test]) ** 2).mean() == pytest.approx(3, rel=0.25)


def test_smaller_draws_are_parts_of_larger_ones():
    small, large = UnitTeacher(rows=100)(), UnitTeacher(rows=250)()
    a, b = small.split(3), large.split(3)
    assert np.array_equal(small.x[a.train], large.x[b.train[:100]])
    assert np.array_equal(small.y[a.train], large.y[b.train[:100]])
    assert np.array_equal(small.y[a.test], large.y[b.test])


@pytest.mark.parametrize("activation", ["identity", "tanh"])
@pytest.mark.parametrize("snr", [1.0, 10.0])
def test_signal_and_noise_have_the_ratio(activation, snr):
    """The same draw with next to no noise is the signal."""
    noisy, clean = (UnitTeacher(rows=128, activation=activation, snr=value)() for value in (snr, 1e12))
    rows = slice(0, 1128)  # the first draw
    noise = noisy.y[rows] - clean.y[rows]
    assert clean.y[rows].var() / noise.var() == pytest.approx(snr, rel=5 * (2 / 1128) ** 0.5)
    assert (np.abs(clean.y).max() <= 1 + 1e-4) == (activation == "tanh")


def test_a_network_as_teacher():
    data = load("teacher_network")
    train, test, _ = data.split(9)
    assert (data.x.shape, data.splits, len(train), len(test)) == ((12_200, 200), 10, 220, 1000)
    generator = np.random.default_rng(9)
    hidden, last = generator.normal(size=(200, 200)), generator.normal(size=200)
    errors = data.y[test] - (1 / (1 + np.exp(-data.x[test] @ hidden.T))) @ last
    assert errors.var() == pytest.approx(1, rel=5 * (2 / 1000) ** 0.5)


@pytest.mark.parametrize("variance", [0.02, 0.0004])
def test_waves_come_from_the_same_noise_in_all_places(variance):
    """Inputs are drawn first, then the noise, and the test rows are the first thousand of both."""
    data = DATASETS.build("waves", {"variance": variance})()
    train, test, _ = data.split(0)
    for rows, ends in ((train, (0, 0.5)), (test, (-0.5, 1))):
        assert (data.x[rows].min(), data.x[rows].max()) == pytest.approx(ends, abs=0.01)
    generator = np.random.default_rng(0)
    generator.uniform(size=1200)
    e = np.roll(generator.normal(0, variance**0.5, 1200), -1000)
    x, y = data.x[:1200, 0], data.y[:1200]
    assert np.allclose(y - x - e, 0.3 * np.sin(2 * np.pi * (x + e)) + 0.3 * np.sin(4 * np.pi * (x + e)))


def test_classes_overlap_in_the_middle():
    data = load("overlapping_classes")
    zeros, ones = (data.x[data.y == label, 0] for label in (0, 1))
    assert (zeros.min(), zeros.max()) == (pytest.approx(0, abs=1e-3), pytest.approx(0.6, abs=1e-3))
    assert (ones.min(), ones.max()) == (pytest.approx(0.4, abs=1e-3), pytest.approx(1, abs=1e-3))
    assert (data.task, len(ones) / len(data.y)) == ("classification", pytest.approx(0.5, abs=0.03))
