"""How trials see a data set: standardised by their own rows.

Class labels stay whole numbers, and images bytes.
"""

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from bdl.data import Dataset, Standardise
from bdl.training.direct import TrainingData
from bdl.training.trials import Pool, Trials, View, fit_scaling

from .toy import HYPER, toy


def test_a_view_standardises_as_scikit_learn_does():
    """Far origins, a column that is constant on the trial's rows, and rows that the scaling was not fitted on."""
    data = toy(n=80)
    data.x[:30, 1] = 1003.0
    pool = Pool.load(data)
    row_sets = [np.arange(30), np.arange(0, 80, 2), np.arange(80)[::-1][:11]]
    trials = Trials.make(data, pool, [("a",), ("b",), ("c",)], row_sets, [HYPER] * 3)
    asked = torch.tensor([[0, 5, 29], [7, 7, 21]])
    for index, own in enumerate(row_sets):
        x_scaler, y_scaler = (
            StandardScaler().fit(data.x[own]),
            StandardScaler().fit(data.y[own, None]),
        )
        batch = View(*(value[index] for value in trials.view)).batch(pool.x[asked], pool.y[asked])
        x = x_scaler.transform(data.x[asked.flatten()]).reshape(2, 3, 3)
        y = y_scaler.transform(data.y[asked.flatten(), None]).reshape(2, 3)
        np.testing.assert_allclose(batch.x, x, rtol=0, atol=1e-5)
        np.testing.assert_allclose(batch.y, y, rtol=0, atol=1e-5)
        assert batch.n.item() == len(own)
        assert batch.y_unit.item() == pytest.approx(data.y[own].std(), rel=1e-6)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """Ten classes of different sizes: the mean and the deviation of the labels are no round numbers."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(10), rng.binomial(9, 0.7, 490)]).astype(float)
    return Dataset("digits", rng.normal(3, 5, (500, 4)), labels, "classification")


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_minibatches_have_the_labels_themselves(digits, dtype, tolerance):
    row_sets = [np.arange(0, 500, 3), np.arange(450)]
    pool = Pool.load(digits, dtype=dtype)
    views = View.fit(digits, pool, row_sets)
    for index, rows in enumerate(row_sets):
        batch = View(*(part[index] for part in views)).batch(pool.x[rows], pool.y[rows])
        assert batch.y.tolist() == digits.y[rows].tolist()
        assert batch.y_unit == 1
        np.testing.assert_allclose(
            batch.x, StandardScaler().fit_transform(digits.x[rows]), rtol=0, atol=tolerance
        )


@pytest.mark.parametrize(("standardise", "mean"), [("both", 0), ("inputs", 0), ("none", 3)])
def test_both_is_inputs_for_labels(digits, standardise: Standardise, mean):
    dataset = Dataset("digits", digits.x, digits.y, "classification", standardise=standardise)
    rows = np.arange(100)
    data = TrainingData.of(dataset, rows)
    assert data.y.tolist() == digits.y[rows].tolist()
    assert data.y_unit == 1
    assert data.x.mean() == pytest.approx(mean, abs=4.5 * 5 / np.sqrt(400) if mean else 1e-12)
    scaling = fit_scaling(dataset, [rows])
    assert (scaling.y_mean[0], scaling.y_scale[0]) == (0, 1)


@pytest.fixture(scope="module")
def images() -> Dataset:
    """Twenty images of 2 x 3 pixels with targets of origin 100."""
    rng = np.random.default_rng(1)
    return Dataset(
        "images", rng.integers(0, 256, (20, 2, 3), dtype=np.uint8), 100 + 5 * rng.normal(size=20)
    )


@pytest.mark.parametrize(("standardise", "unit"), [("both", 255), ("inputs", 255), ("none", 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_images_stay_bytes_until_they_are_used(images, standardise: Standardise, unit, dtype):
    dataset = Dataset("images", images.x, images.y, standardise=standardise)
    pool = Pool.load(dataset, dtype=dtype)
    assert (pool.x.dtype, pool.x.shape) == (torch.uint8, (20, 6))
    row_sets = [np.arange(12), np.arange(5, 20)]
    views = View.fit(dataset, pool, row_sets)
    for index, rows in enumerate(row_sets):
        batch = View(*(part[index] for part in views)).batch(
            *(part[torch.tensor([[3, 19], [0, 7]])] for part in (pool.x, pool.y))
        )
        pixels = images.x.reshape(20, 6)[[[3, 19], [0, 7]]] / unit
        assert str(batch.x.dtype) == f"torch.{dtype}"
        np.testing.assert_allclose(batch.x, pixels, rtol=1e-6)
        y = (
            images.y
            if standardise != "both"
            else (images.y - images.y[rows].mean()) / images.y[rows].std()
        )
        np.testing.assert_allclose(batch.y, y[[[3, 19], [0, 7]]], rtol=1e-6, atol=1e-5)
        direct = TrainingData.of(dataset, rows, np.array([3, 0]))
        np.testing.assert_allclose(direct.x, pixels[[0, 1], [0, 0]], rtol=1e-12)
        assert direct.x.dtype == torch.float64


def test_rows_far_out_do_not_take_the_digits_of_the_others():
    """One value of 1e9 among a hundred around 5: trials without that row see theirs to the digits of float32."""
    rng = np.random.default_rng(2)
    x, y = 5 + rng.normal(size=(101, 2)), rng.normal(size=101)
    x[100, 1], y[100] = 1e9, -1e12
    dataset, rows = Dataset("far", x, y), np.arange(80)
    pool = Pool.load(dataset)
    view = View(*(part[0] for part in View.fit(dataset, pool, [rows])))
    batch = view.batch(pool.x[:80], pool.y[:80])
    np.testing.assert_allclose(batch.x, StandardScaler().fit_transform(x[:80]), rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        batch.y, StandardScaler().fit_transform(y[:80, None])[:, 0], rtol=0, atol=1e-5
    )


def test_ordinary_columns_are_pooled_by_mean_and_deviation():
    """Also one that is constant in its middle half, and one with a heavy tail."""
    rng = np.random.default_rng(3)
    x = (
        np.column_stack([rng.normal(size=400), rng.random(400) > 0.9, rng.standard_t(2, 400)])
        * [1, 30, 5]
        + 7
    )
    dataset = Dataset("ordinary", x, rng.normal(size=400))
    pool = Pool.load(dataset)
    np.testing.assert_array_equal(pool.scaling.x_mean, x.mean(0))
    np.testing.assert_allclose(pool.scaling.x_scale, x.std(0), rtol=1e-12)
