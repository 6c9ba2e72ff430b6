"""Scaling against scikit-learn's StandardScaler, constant columns, and rows kept out."""

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from bdl.data import Scaling, load, recipe_split
from bdl.errors import InputError

ROUNDING = 1e-13  # relative; both sides sum a few hundred doubles in different orders


def make_table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 6)) * [1, 1e-6, 1e6, 3, 1, 1] + [0, 5, -1e3, 1e4, 0, 0]
    x[:, 4] = 0.1  # a mean of many 0.1 is not exactly 0.1, so the computed variance is not 0
    x[:, 5] = 0.0
    return x, rng.gamma(2.0, 10.0, size=300)


def assert_equals_sklearn(scaling: Scaling, x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> None:
    of_x, of_y = StandardScaler().fit(x[rows]), StandardScaler().fit(y[rows, None])
    np.testing.assert_allclose(scaling.x_mean, of_x.mean_, rtol=ROUNDING, atol=ROUNDING)
    np.testing.assert_allclose(scaling.x_scale, of_x.scale_, rtol=1e-9)  # the 1e-6 column: 5 / 1e-6 cancels
    np.testing.assert_allclose(scaling.y_mean, of_y.mean_[0], rtol=ROUNDING)
    np.testing.assert_allclose(scaling.y_scale, of_y.scale_[0], rtol=ROUNDING)


def test_hand_made() -> None:
    x, y = np.array([[1.0, 5.0], [3.0, 5.0], [100.0, 7.0]]), np.array([2.0, 6.0, -9.0])
    scaling = Scaling.fit(x, y, np.array([0, 1]))
    assert scaling.x_mean.tolist() == [2, 5]
    assert scaling.x_scale.tolist() == [1, 1], "population deviation of (1, 3) is 1; a constant column gives 1"
    assert (float(scaling.y_mean), float(scaling.y_scale)) == (4, 2)


@pytest.mark.parametrize("count", [300, 41, 2, 1])
def test_equals_scikit_learn(count: int) -> None:
    x, y = make_table()
    rows = np.random.default_rng(1).permutation(300)[:count]
    scaling = Scaling.fit(x, y, rows)
    assert_equals_sklearn(scaling, x, y, rows)
    assert scaling.x_scale[4:].tolist() == [1, 1]
    assert all(part.dtype == np.float64 for part in scaling)
    assert [part.shape for part in scaling] == [(6,), (6,), (), ()]


def test_equals_scikit_learn_on_diabetes() -> None:
    dataset = load("diabetes")
    rows = dataset.split(0).train
    assert_equals_sklearn(Scaling.fit(dataset.x, dataset.y, rows), dataset.x, dataset.y, rows)


def test_rows_outside_do_not_matter() -> None:
    x, y = make_table()
    train, test, _ = recipe_split(300, 0)
    before = Scaling.fit(x, y, train)
    x[test], y[test] = 1e9, -1e9
    for part, same in zip(before, Scaling.fit(x, y, train), strict=True):
        np.testing.assert_array_equal(part, same)


def test_many_equals_each_alone_to_the_bit() -> None:
    x, y = make_table()
    row_sets = [np.arange(300), np.arange(17), np.array([4, 9]), recipe_split(300, 2).train]
    many = Scaling.fit_many(x, y, row_sets)
    assert [part.shape for part in many] == [(4, 6), (4, 6), (4,), (4,)]
    for index, rows in enumerate(row_sets):
        for stacked, alone in zip(many, Scaling.fit(x, y, rows), strict=True):
            np.testing.assert_array_equal(stacked[index], alone)


def test_nothing_to_fit() -> None:
    x, y = make_table()
    with pytest.raises(InputError, match="no rows"):
        Scaling.fit(x, y, np.array([], dtype=np.int64))
    with pytest.raises(InputError, match="no sets of rows"):
        Scaling.fit_many(x, y, [])


@pytest.mark.parametrize("count", [2, 1000, 200_000])
def test_a_spread_about_a_distant_mean_is_no_constant(count: int) -> None:
    """Half of the values are one above the others: the deviation is 1/2, at any distance that float64 resolves."""
    values = 1e12 + np.arange(count) % 2
    scaling = Scaling.fit(values[:, None], values, np.arange(count))
    assert float(scaling.y_scale) == scaling.x_scale[0] == pytest.approx(0.5, rel=1e-6)
    assert float(scaling.y_mean) == pytest.approx(1e12 + 0.5, rel=1e-15)


def test_constants_that_were_rounded_differently_are_constants() -> None:
    values = np.array([0.3, 0.1 + 0.2, 0.3])
    assert float(Scaling.fit(values[:, None], values, np.arange(3)).y_scale) == 1


@pytest.mark.parametrize("unit", [1e-170, 1e170])
def test_squares_beyond_double_precision_are_refused(unit: float) -> None:
    x, y = make_table()
    with pytest.raises(InputError, match="squares float64 does not hold: give it in another unit"):
        Scaling.fit(x, y * unit, np.arange(300))
