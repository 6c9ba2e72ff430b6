"""How trials see a data set: class labels stay whole numbers, whatever is standardised."""

import numpy as np
import pytest
import torch

from bdl.data import Dataset, Standardise
from bdl.training.direct import TrainingData
from bdl.training.trials import Pool, View, fitted_scaling


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """Ten classes of different sizes: the mean and the deviation of the labels are no round numbers."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(10), rng.binomial(9, 0.7, 490)]).astype(float)
    return Dataset("digits", rng.normal(3, 5, (500, 4)), labels, "classification")


def test_minibatches_have_the_labels_themselves(digits):
    row_sets = [np.arange(0, 500, 3), np.arange(450)]
    pool = Pool.load(digits)
    views = View.fit(digits, pool, row_sets)
    for index, rows in enumerate(row_sets):
        view = View(*(part[index] for part in views))
        batch = view.batch(pool.x, pool.y, torch.from_numpy(rows))
        assert batch.y.tolist() == digits.y[rows].tolist()
        assert batch.y_unit == 1
        torch.testing.assert_close(batch.x.mean(0), torch.zeros(4), rtol=0, atol=1e-5)  # float32 sums of 450 terms
        torch.testing.assert_close(batch.x.var(0, correction=0), torch.ones(4), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("standardise", "mean"), [("both", 0), ("inputs", 0), ("none", 3)])
def test_both_is_inputs_for_labels(digits, standardise: Standardise, mean):
    dataset = Dataset("digits", digits.x, digits.y, "classification", standardise=standardise)
    rows = np.arange(100)
    data = TrainingData.of(dataset, rows)
    assert data.y.tolist() == digits.y[rows].tolist()
    assert data.y_unit == 1
    assert data.x.mean() == pytest.approx(mean, abs=4.5 * 5 / np.sqrt(400) if mean else 1e-12)
    scaling = fitted_scaling(dataset, [rows])
    assert (scaling.y_mean[0], scaling.y_scale[0]) == (0, 1)
