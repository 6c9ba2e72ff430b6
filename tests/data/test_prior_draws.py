"""Draws from the prior: the law of parameters, inputs and targets, and when the parameters are known."""

import numpy as np
import pytest
from scipy.special import expit

from bdl.data import DATASETS, prepare
from bdl.data.teachers import PriorDraws
from bdl.errors import InputError


@pytest.mark.parametrize("settings", [{"correlation": 1.0}, {"draws": 0}, {"noise_precision": 0.0}, {"hidden": [0]}])
def test_settings_that_make_no_sense(settings):
    with pytest.raises(InputError, match=f"prior_draws': {next(iter(settings))}"):
        DATASETS.build("prior_draws", settings)


def test_numbers_follow_from_the_parameters():
    data = PriorDraws(draws=200, rows=40, inputs=2, prior_precision=4.0, noise_precision=0.25)()
    assert (data.splits, data.x.shape, data.generating.shape) == (200, (10_000, 2), (200, 3))
    # deviations within five standard errors of a variance or a correlation
    assert data.generating.var() == pytest.approx(0.25, rel=5 * (2 / 600) ** 0.5)
    assert np.corrcoef(data.x.T)[0, 1] == pytest.approx(0.9, abs=5 * 0.19 / 100)
    residuals = []
    for index, theta in enumerate(data.generating):
        train, test, _ = data.split(index)
        assert (len(train), len(test)) == (40, 10)
        rows = np.concatenate([train, test])
        residuals.append(data.y[rows] - data.x[rows] @ theta[:2] - theta[2])
    assert np.var(residuals) == pytest.approx(4, rel=5 * (2 / 10_000) ** 0.5)


def test_labels_have_the_probabilities_of_a_network():
    data = PriorDraws(task="classification", draws=400, inputs=2, hidden=[3])()
    probabilities = []
    for index, theta in enumerate(data.generating):
        x = data.x[data.split(index).train]
        hidden = np.tanh(x @ theta[:6].reshape(3, 2).T + theta[6:9])
        probabilities.append(expit(hidden @ theta[9:12] + theta[12]))
    y = np.concatenate([data.y[data.split(index).train] for index in range(400)])
    p = np.concatenate(probabilities)
    for low, high in ((0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)):
        chosen = (p > low) & (p <= high)
        error = np.sqrt((p * (1 - p))[chosen].sum()) / chosen.sum()
        assert y[chosen].mean() == pytest.approx(p[chosen].mean(), abs=5 * error)


def test_smaller_draws_are_parts_of_larger_ones():
    small, large = PriorDraws(draws=2, rows=5)(), PriorDraws(draws=3, rows=9)()
    assert np.array_equal(small.generating, large.generating[:2])
    assert np.array_equal(small.y[small.split(1).test], large.y[large.split(1).test])
    assert np.array_equal(small.x[small.split(1).train], large.x[large.split(1).train[:5]])


@pytest.mark.parametrize(
    ("split", "standardise", "known"),
    [("published", "none", True), ("first", "none", False), ("published", "both", False)],
)
def test_parameters_are_known_for_rows_as_they_were_drawn(split, standardise, known):
    assert (prepare(PriorDraws(draws=2)(), split, standardise).generating is not None) is known
