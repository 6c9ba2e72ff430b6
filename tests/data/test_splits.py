"""Splits, folds and scaling by training rows, and how an experiment prepares a data set.

The published files themselves are compared in test_published.py.
"""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from bdl.data import (
    Dataset,
    Scaling,
    Split,
    folds,
    half_split,
    load_dataset,
    prepare_dataset,
    recipe_split,
)
from bdl.data.splits import group_folds, order_by_content, tail_split, three_way_split
from bdl.errors import InputError
from bdl.training.trials import fit_scaling


def test_the_recipe_is_one_stream_of_permutations() -> None:
    assert recipe_split(10, 0).train.tolist() == [
        2,
        9,
        6,
        4,
        0,
        3,
        1,
        7,
        8,
    ]  # numpy.random.seed(1)
    generator = np.random.RandomState(1)
    for index in range(4):
        split = recipe_split(57, index)
        np.testing.assert_array_equal([*split.train, *split.test], generator.permutation(57))
        assert split.train.dtype == split.test.dtype == np.int64


def test_halves_order_the_rows_by_the_uniform_numbers_of_a_seed() -> None:
    # rand('twister', 1); rand(1, 7): 0.4170 0.7203 0.0001 0.3023 0.1468 0.0923 0.1863
    split = half_split(7, 1)
    assert (split.train.tolist(), split.test.tolist()) == ([2, 5, 4], [6, 3, 0, 1])
    assert split.train.dtype == split.test.dtype == np.int64
    assert half_split(7, 2).train.tolist() != [2, 5, 4]


def test_outer_thirds_test() -> None:
    """Eight rows: two at each end, equal values by row number.

    The others in the order of the recipe's permutation.
    """
    x = np.array([[5.0, 1], [3, 1], [9, 1], [3, 1], [3, 1], [7, 1], [1, 1], [9, 1]])
    split = tail_split(x, 0)
    assert split.test.tolist() == [6, 1, 2, 7]
    assert split.train.tolist() == [
        row for row in np.random.RandomState(1).permutation(8) if row in (0, 3, 4, 5)
    ]
    assert split.train.dtype == split.test.dtype == np.int64
    assert tail_split(x, 1).test.tolist() == [0, 1, 6, 7]


def test_three_parts_have_the_published_sizes_and_every_row_once() -> None:
    split, other = (
        three_way_split(np.zeros(3662, dtype=np.int64), np.arange(3662), seed) for seed in (0, 1)
    )
    assert [len(part) for part in split] == [1832, 1098, 732]
    assert np.array_equal(np.sort(np.concatenate(split)), np.arange(3662))
    assert not np.array_equal(split.test, other.test)


def test_strata_have_their_shares_in_every_part_and_groups_stay_together() -> None:
    strata, groups = np.repeat([0, 1], [80, 20]), np.repeat(np.arange(40), 3)
    for part, (many, few) in zip(
        three_way_split(strata, np.arange(100), 3), [(40, 10), (24, 6), (16, 4)], strict=True
    ):
        assert np.bincount(strata[part]).tolist() == [many, few]
    for seed in range(5):
        parts = [
            set(groups[part])
            for part in three_way_split(np.zeros(120, dtype=np.int64), groups, seed)
        ]
        assert sum(map(len, parts)) == 40
        assert [len(part) for part in parts] == [20, 12, 8]


@pytest.mark.parametrize(("n", "k"), [(10, 5), (11, 5), (277, 10), (2, 2)])
def test_folds_equal_scikit_learn(n: int, k: int) -> None:
    for ours, theirs in zip(folds(n, k), KFold(k).split(np.zeros(n)), strict=True):
        for rows, expected in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(rows, expected)
            assert rows.dtype == np.int64


def test_folds_of_groups_are_whole_and_of_nearly_equal_sizes() -> None:
    groups = np.array([7, 3, 3, 9, 3, 7, 5, 9, 1])
    validations = [validation.tolist() for _, validation in group_folds(groups, 3)]
    # by size 3, 7, 9, 5, 1: of 7 and 9, and of 5 and 1, the one that comes first
    assert validations == [[1, 2, 4], [0, 5, 6], [3, 7, 8]]
    for training, validation in group_folds(groups, 5):
        assert len(set(groups[validation])) == 1
        assert sorted([*training, *validation]) == list(range(9))
    alone = group_folds(np.arange(7), 3)
    assert [len(validation) for _, validation in alone] == [3, 2, 2]


def test_the_order_by_content_is_that_of_the_values() -> None:
    x, y = np.array([[0.0, 1.0], [2.0, 0.5], [-0.0, -1.0], [2.0, 0.5]]), np.array([3, 1, 1, 1])
    table = np.column_stack([y, x])
    expected = table[order_by_content(y, x)]
    for order in ([3, 2, 1, 0], [2, 0, 3, 1]):
        by_content = order_by_content(y[order], x[order] + 0.0)  # with 0 in place of -0
        np.testing.assert_array_equal(table[order][by_content], expected)


def make_table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(300, 6)) * [1, 1e-6, 1e6, 3, 1, 1] + [0, 5, -1e3, 1e4, 0, 0]
    x[:, 4] = 0.1  # a mean of many 0.1 is not exactly 0.1, so the computed variance is not 0
    x[:, 5] = 0.0
    return x, rng.gamma(2.0, 10.0, size=300)


@pytest.mark.parametrize("count", [300, 41, 2, 1])
def test_scaling_equals_scikit_learn(count: int) -> None:
    x, y = make_table()
    rows = np.random.default_rng(1).permutation(300)[:count]
    scaling, rounding = (
        Scaling.fit(x, y, rows),
        1e-13,
    )  # both sides sum a few hundred doubles in different orders
    of_x, of_y = StandardScaler().fit(x[rows]), StandardScaler().fit(y[rows, None])
    np.testing.assert_allclose(scaling.x_mean, of_x.mean_, rtol=rounding, atol=rounding)
    np.testing.assert_allclose(
        scaling.x_scale, of_x.scale_, rtol=1e-9
    )  # the 1e-6 column: 5 / 1e-6 cancels
    np.testing.assert_allclose(scaling.y_mean, of_y.mean_[0], rtol=rounding)
    np.testing.assert_allclose(scaling.y_scale, of_y.scale_[0], rtol=rounding)
    assert scaling.x_scale[4:].tolist() == [1, 1]
    assert [(part.shape, part.dtype) for part in scaling] == [
        (shape, np.float64) for shape in ((6,), (6,), (), ())
    ]


def test_rows_outside_do_not_matter() -> None:
    x, y = make_table()
    train, test, _ = recipe_split(300, 0)
    before = Scaling.fit(x, y, train)
    x[test], y[test] = 1e9, -1e9
    for part, same in zip(before, Scaling.fit(x, y, train), strict=True):
        np.testing.assert_array_equal(part, same)


def test_many_scalings_equal_each_alone_to_the_bit() -> None:
    x, y = make_table()
    row_sets = [np.arange(300), np.arange(17), np.array([4, 9]), recipe_split(300, 2).train]
    many = Scaling.fit_many(x, y, row_sets)
    for index, rows in enumerate(row_sets):
        for stacked, alone in zip(many, Scaling.fit(x, y, rows), strict=True):
            np.testing.assert_array_equal(stacked[index], alone)


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


def test_what_cannot_be_scaled() -> None:
    x, y = make_table()
    with pytest.raises(InputError, match="no rows"):
        Scaling.fit(x, y, np.array([], dtype=np.int64))
    for unit in (1e-170, 1e170):
        with pytest.raises(
            InputError, match="squares float64 does not hold: give it in another unit"
        ):
            Scaling.fit(x, y * unit, np.arange(300))


@pytest.mark.parametrize(
    ("standardise", "inputs", "targets"), [("both", 1, 1), ("inputs", 1, 0), ("none", 0, 0)]
)
def test_only_what_is_named_is_standardised(standardise, inputs, targets) -> None:
    dataset = prepare_dataset(load_dataset("diabetes"), "published", standardise)
    rows = dataset.split(0).train
    scaling = fit_scaling(dataset, [rows])
    for part, fitted, values in (("x", inputs, dataset.x[rows]), ("y", targets, dataset.y[rows])):
        mean, scale = getattr(scaling, f"{part}_mean")[0], getattr(scaling, f"{part}_scale")[0]
        np.testing.assert_allclose(
            mean, values.mean(0) if fitted else np.zeros_like(mean), rtol=1e-12
        )
        np.testing.assert_allclose(
            scale, values.std(0) if fitted else np.ones_like(scale), rtol=1e-12
        )


FIVE = Dataset(
    "five",
    np.arange(10.0).reshape(5, 2),
    np.arange(5.0),
    splits=2,
    published=[
        Split(np.array([3, 1, 4]), np.array([0, 2])),
        Split(np.array([0, 1]), np.array([4])),
    ].__getitem__,
)


@pytest.mark.parametrize(
    ("scheme", "index", "train", "test"),
    [
        ("published", 1, [0, 1], [4]),
        ("first", 0, [3, 1, 4], [0, 2]),
        ("first", 7, [3, 1, 4], [0, 2]),
        ("other-first", 7, [0, 2], []),
        ("half", 7, [4, 0, 3], []),
    ],
)
def test_schemes_of_splits_and_their_first_training_rows(scheme, index, train, test) -> None:
    whole, short = (
        prepare_dataset(FIVE, scheme, "none"),
        prepare_dataset(FIVE, scheme, "none", rows=2),
    )
    assert [rows.tolist() for rows in whole.split(index)] == [train, test, []]
    for one in (short, pickle.loads(pickle.dumps(short))):
        assert [rows.tolist() for rows in one.split(index)] == [train[:2], test, []]
        assert (one.splits, one.checksum) == (whole.splits, whole.checksum)


def test_no_more_rows_than_there_are() -> None:
    dataset = prepare_dataset(FIVE, "published", "none", rows=3)
    assert dataset.split(0).train.tolist() == [3, 1, 4]
    with pytest.raises(
        InputError,
        match=r"^preparation.rows: split 1 of .*'five' has 2 training rows, so 3 cannot",
    ):
        dataset.split(1)


def test_half_is_what_pandas_sample_leaves() -> None:
    """The thesis shuffles with ``DataFrame.sample(frac=1, random_state=1)`` and keeps the second half."""
    order = pd.Series(range(442)).sample(frac=1, random_state=1).to_numpy()
    for scheme, rows in (("half", order[221:]), ("other-half", order[:221])):
        dataset = prepare_dataset(load_dataset("diabetes"), scheme, "inputs")
        assert [part.tolist() for part in dataset.split(7)] == [rows.tolist(), [], []]


def test_which_sets_have_gaps_and_tails() -> None:
    with pytest.raises(
        InputError, match="'diabetes' has no gap splits, which the UCI regressions have; choose"
    ):
        prepare_dataset(load_dataset("diabetes"), "gap", "both")
    tails = prepare_dataset(load_dataset("diabetes"), "tail", "both")
    assert (tails.splits, len(tails.split(9).test), len(tails.split(9).train)) == (
        10,
        2 * 147,
        442 - 2 * 147,
    )
    images = Dataset("images", np.zeros((2, 2, 2), np.uint8), np.arange(2.0))
    with pytest.raises(
        InputError, match="'images' has no tail splits, which tables have; choose published"
    ):
        prepare_dataset(images, "tail", "both")
