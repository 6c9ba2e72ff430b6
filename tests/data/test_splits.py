"""The split recipe and the folds; the published files themselves are compared in test_uci.py."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from bdl.data import folds, half_split, leading_split, recipe_split
from bdl.data.splits import tail_split
from bdl.errors import InputError


def test_first_split_is_the_first_permutation_of_seed_one() -> None:
    split = recipe_split(10, 0)
    # numpy.random.seed(1); numpy.random.permutation(10)
    assert split.train.tolist() == [2, 9, 6, 4, 0, 3, 1, 7, 8]
    assert split.test.tolist() == [5]
    assert split.train.dtype == split.test.dtype == np.int64


def test_later_splits_go_on_with_the_same_stream() -> None:
    generator = np.random.RandomState(1)
    for index in range(4):
        order = generator.permutation(57)
        split = recipe_split(57, index)
        np.testing.assert_array_equal([*split.train, *split.test], order)


@pytest.mark.parametrize(
    ("n", "train"),
    [
        (506, 455),
        (1030, 927),
        (768, 691),
        (308, 277),
        (8192, 7373),
        (11934, 10741),
        (9568, 8611),
        (1599, 1439),
    ],
)
def test_training_sizes_of_the_published_sets(n: int, train: int) -> None:
    split = recipe_split(n, 0)
    assert (len(split.train), len(split.test)) == (train, n - train)


def test_halves_order_the_rows_by_the_uniform_numbers_of_a_seed() -> None:
    # rand('twister', 1); rand(1, 7): 0.4170 0.7203 0.0001 0.3023 0.1468 0.0923 0.1863
    split = half_split(7, 1)
    assert split.train.tolist() == [2, 5, 4]
    assert split.test.tolist() == [6, 3, 0, 1]
    assert split.train.dtype == split.test.dtype == np.int64
    assert half_split(7, 2).train.tolist() != [2, 5, 4]


def test_leading_rows_train() -> None:
    split = leading_split(5, 3)
    assert (split.train.tolist(), split.test.tolist()) == ([0, 1, 2], [3, 4])
    assert split.train.dtype == split.test.dtype == np.int64


def test_outer_thirds_test() -> None:
    """Eight rows: two at each end, equal values by row number; the others in the order of the recipe's permutation."""
    x = np.array([[5.0, 1], [3, 1], [9, 1], [3, 1], [3, 1], [7, 1], [1, 1], [9, 1]])
    split = tail_split(x, 0)
    assert split.test.tolist() == [6, 1, 2, 7]
    order = np.random.RandomState(1).permutation(8)
    assert split.train.tolist() == [row for row in order if row in (0, 3, 4, 5)]
    assert split.train.dtype == split.test.dtype == np.int64
    assert tail_split(x, 1).test.tolist() == [0, 1, 6, 7]


@pytest.mark.parametrize(("n", "k"), [(10, 5), (11, 5), (455, 5), (277, 10), (7, 7), (2, 2)])
def test_folds_equal_scikit_learn(n: int, k: int) -> None:
    ours, theirs = folds(n, k), list(KFold(k).split(np.zeros(n)))
    assert len(ours) == k
    for (train, val), (train_sk, val_sk) in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(train, train_sk)
        np.testing.assert_array_equal(val, val_sk)
        assert train.dtype == val.dtype == np.int64


@pytest.mark.parametrize(("n", "k"), [(4, 5), (4, 1), (4, 0), (0, 2)])
def test_impossible_folds(n: int, k: int) -> None:
    with pytest.raises(InputError, match=f"cannot cut {n} rows into {k} folds"):
        folds(n, k)
