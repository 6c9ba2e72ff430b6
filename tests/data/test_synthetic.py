"""The synthetic draws, and the ways in which an experiment prepares a data set."""

import numpy as np
import pytest

from bdl.data import Dataset, load, prepare
from bdl.training.trials import fitted_scaling


@pytest.fixture(scope="module")
def synthetic() -> Dataset:
    return load("synthetic")


def test_each_split_is_a_draw_of_its_own(synthetic):
    splits = [synthetic.split(index) for index in range(10)]
    assert all(len(split.train) == 1000 and len(split.test) == 0 for split in splits)
    assert np.array_equal(np.concatenate([split.train for split in splits]), np.arange(10_000))


def test_draws_follow_the_declared_model(synthetic):
    """Moments of the inputs and of the residuals, within 4.5 standard errors."""
    covariance = np.cov(synthetic.x.T)
    declared = np.array([[1, 0.5], [0.5, 1]])
    # var of a sample covariance entry: (s_ii s_jj + s_ij^2) / n
    error = np.sqrt((1 + declared**2) / len(synthetic.x))
    assert (np.abs(covariance - declared) < 4.5 * error).all()
    for index in range(10):
        rows = synthetic.split(index).train
        residual = synthetic.y[rows] - synthetic.x[rows] @ np.linalg.lstsq(synthetic.x[rows], synthetic.y[rows])[0]
        assert residual.var(ddof=2) == pytest.approx(10, abs=4.5 * 10 * np.sqrt(2 / 998))


def test_half_is_what_pandas_sample_leaves(synthetic):
    """The thesis shuffles with ``DataFrame.sample(frac=1, random_state=1)`` and keeps the second half."""
    pandas = pytest.importorskip("pandas")
    diabetes = prepare(load("diabetes"), "half", "inputs")
    order = pandas.Series(range(442)).sample(frac=1, random_state=1).to_numpy()
    for index in (0, 7):
        split = diabetes.split(index)
        assert split.train.tolist() == order[221:].tolist()
        assert len(split.test) == 0


@pytest.mark.parametrize(("standardise", "inputs", "targets"), [("both", 1, 1), ("inputs", 1, 0), ("none", 0, 0)])
def test_only_what_is_named_is_standardised(standardise, inputs, targets):
    dataset = prepare(load("diabetes"), "published", standardise)
    rows = dataset.split(0).train
    scaling = fitted_scaling(dataset, [rows])
    for part, fitted, values in (("x", inputs, dataset.x[rows]), ("y", targets, dataset.y[rows])):
        mean, scale = getattr(scaling, f"{part}_mean")[0], getattr(scaling, f"{part}_scale")[0]
        np.testing.assert_allclose(mean, values.mean(0) if fitted else np.zeros_like(mean), rtol=1e-12)
        np.testing.assert_allclose(scale, values.std(0) if fitted else np.ones_like(scale), rtol=1e-12)
