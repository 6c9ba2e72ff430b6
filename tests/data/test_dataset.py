"""The Dataset contract, on made-up numbers and on the bundled diabetes set.

Arrays of all kinds are in tests/api.
"""

import hashlib
import pickle
import struct
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bdl.data import Dataset, Split, load_dataset
from bdl.errors import InputError

IMAGES = np.arange(48, dtype=np.uint8).reshape(3, 2, 2, 4)
X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
Y = np.array([7.0, 8.0, 9.0])


def test_checksum_is_the_hash_of_little_endian_doubles() -> None:
    """Of whatever the numbers are in; bytes with two axes are a table."""
    expected = hashlib.sha256(struct.pack("<9d", *range(1, 10))).hexdigest()
    masked = np.ma.asarray(X)  # without a mask
    for x in (
        X,
        np.asfortranarray(X),
        X.tolist(),
        X.astype(np.float32),
        X.astype(np.uint8),
        pd.DataFrame(X),
        masked,
    ):
        made = Dataset("any", x, pd.Series(Y))
        assert (made.checksum, made.x.dtype, made.y.dtype) == (expected, np.float64, np.float64)
        assert (made.images, made.d, made.x_unit) == (False, 2, 1)
    last = X.copy()
    last[2, 1] = np.nextafter(6, 7)
    assert (
        Dataset("toy", last, Y).checksum
        != expected
        != Dataset("toy", X, np.nextafter(Y, 0)).checksum
    )


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 2, 2, 4)])
def test_images_stay_bytes(shape: tuple[int, ...]) -> None:
    dataset = Dataset("toy", IMAGES.reshape(shape), Y)
    assert (dataset.images, dataset.d, dataset.x.dtype) == (True, 16, np.uint8)
    assert [replace(dataset, standardise=way).x_unit for way in ("both", "inputs", "none")] == [
        255,
        255,
        1,
    ]
    expected = hashlib.sha256(bytes(range(48)) + struct.pack("<3d", 7, 8, 9)).hexdigest()
    assert dataset.checksum == expected


def test_the_checksum_is_that_of_the_origin_and_not_of_rounding() -> None:
    one, other = (Dataset("eyes", x, Y, origin="ab") for x in (X, X * (1 + 1e-15)))
    assert not np.array_equal(one.x, other.x)
    others = {replace(one, origin="ac").checksum, replace(one, y=Y[::-1]).checksum}
    assert one.checksum == other.checksum not in others


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:2], "x has 3 rows and y 2: give one target a row"),
        (
            X[:, :, None],
            Y,
            r"x is float64 of shape \(3, 2, 1\): give numbers, \(n, d\), or images of uint8",
        ),
        (IMAGES[..., None], Y, r"x is uint8 of shape \(3, 2, 2, 4, 1\)"),
        (X, np.ma.masked_equal(Y, Y[0]), "y has masked values"),
        (
            np.where(X == 4, np.nan, X),
            Y,
            "x has NaN or infinite values, the first in row 1 of column 1, from 0",
        ),
    ],
)
def test_bad_arrays(x: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=f"^dataset 'toy': {message}"):
        Dataset("toy", x, y)


def test_augmentation_needs_its_function() -> None:
    augmented = Dataset(
        "toy", IMAGES, Y, augment=lambda x, noise: x + noise[:, :1], augment_noise=1
    )
    for count, augment in ((1, None), (-1, augmented.augment)):
        with pytest.raises(
            InputError, match=f"augment_noise is {count}; give the number of normals that augment"
        ):
            Dataset("toy", IMAGES, Y, augment=augment, augment_noise=count)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ([-1, 1, 1], "-1, 1"),
        ([0, 2, 0], "0, 2"),
        ([0, 0.5, 1], "0, 0.5, 1"),
        ([0, 1, 2, 3, 4, 6], "0, 1, 2, 3, ..."),
    ],
)
def test_other_labels_are_refused_and_can_be_recoded_as_told(
    labels: list[float], shown: str
) -> None:
    x, y = np.zeros((len(labels), 1)), np.array(labels, dtype=float)
    with pytest.raises(InputError) as caught:
        Dataset("toy", x, y, "classification")
    told, recipe = str(caught.value).split("recode them with ")
    assert (
        told == f"dataset 'toy': labels are {shown}; they must be 0 to C - 1 with none left out: "
    )
    recoded = Dataset("toy", x, eval(recipe, {"np": np, "y": y}), "classification")
    assert recoded.classes == len(set(labels))
    np.testing.assert_array_equal(
        np.argsort(recoded.y, kind="stable"), np.argsort(y, kind="stable")
    )
    assert replace(recoded, task="regression").classes == 0


def test_one_class_is_none() -> None:
    with pytest.raises(
        InputError, match="all labels are the same; a classification needs two classes"
    ):
        Dataset("toy", X, np.zeros(3), "classification")


def test_folds_keep_groups_whole_and_the_checksum_has_them() -> None:
    x, y, rows = np.zeros((6, 1)), np.arange(6.0), np.array([5, 0, 3, 1])
    grouped = Dataset("toy", x, y, groups=np.array([4, 4, 7, 7, 7, 4]))
    assert grouped.count_fold_units(rows) == 2
    folds = [
        (training.tolist(), validation.tolist()) for training, validation in grouped.folds(rows, 2)
    ]
    assert folds == [([3], [5, 0, 1]), ([5, 0, 1], [3])]
    single = Dataset("toy", x, y)
    assert single.count_fold_units(rows) == 4
    assert [validation.tolist() for _, validation in single.folds(rows, 2)] == [[5, 0], [3, 1]]
    regrouped = Dataset("toy", x, y, groups=np.array([4, 4, 7, 7, 7, 7]))
    assert len({dataset.checksum for dataset in (grouped, single, regrouped)}) == 3
    for groups in (np.zeros(5, dtype=np.int64), np.zeros(6)):
        with pytest.raises(InputError, match="groups must be a whole number for each of the 6"):
            Dataset("toy", x, y, groups=groups)


def test_splits_are_published_or_without_end() -> None:
    splits = [Split(np.array([0, 1]), np.array([2])), Split(np.array([2, 1]), np.array([0]))]
    published, endless = (
        Dataset("toy", X, Y, splits=2, published=splits.__getitem__),
        Dataset("toy", X, Y),
    )
    assert published.split(1) is splits[1]
    assert sorted(np.concatenate(endless.split(1000))) == [0, 1, 2]
    for dataset, index, known in (
        (published, -1, "0 to 1"),
        (published, 2, "0 to 1"),
        (endless, -1, "from 0 up"),
    ):
        with pytest.raises(
            InputError, match=f"dataset 'toy' has no split {index}; choose {known}"
        ):
            dataset.split(index)


def test_diabetes() -> None:
    dataset = load_dataset("diabetes")
    assert (dataset.name, dataset.task, dataset.splits, dataset.x.shape) == (
        "diabetes",
        "regression",
        None,
        (442, 10),
    )
    # First patient of the study: age 59, sex 2, body-mass index 32.1, blood pressure 101, outcome
    # 151.
    np.testing.assert_array_equal([*dataset.x[0, :4], dataset.y[0]], [59, 2, 32.1, 101, 151])
    # Published summary of the outcome: mean 152.13, standard deviation 77.09 (n - 1).
    assert (round(dataset.y.mean(), 2), round(dataset.y.std(ddof=1), 2)) == (152.13, 77.09)
    assert dataset.checksum == "e9c1f7559552854a24dc45b41c446ce5f79f96e5da081bcce24b57492720b3f7"
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.checksum == dataset.checksum
    np.testing.assert_array_equal(copy.split(2).test, dataset.split(2).test)
