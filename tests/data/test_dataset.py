"""The Dataset contract, on made-up numbers and on the bundled diabetes set."""

import hashlib
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bdl.data import Dataset, Split, load
from bdl.errors import InputError

IMAGES = np.arange(48, dtype=np.uint8).reshape(3, 2, 2, 4)
X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
Y = np.array([7.0, 8.0, 9.0])


def test_checksum_is_the_hash_of_little_endian_doubles() -> None:
    expected = hashlib.sha256(struct.pack("<9d", *range(1, 10))).hexdigest()
    assert Dataset("toy", X, Y).checksum == expected
    assert Dataset("toy", np.asfortranarray(X), Y).checksum == expected, "memory layout does not matter"
    assert Dataset("other", X, Y).checksum == expected, "the name does not matter"


@pytest.mark.parametrize("entry", [0, 5])
def test_checksum_sees_the_last_bit(entry: int) -> None:
    changed = X.copy()
    changed.flat[entry] = np.nextafter(changed.flat[entry], np.inf)
    assert Dataset("toy", changed, Y).checksum != Dataset("toy", X, Y).checksum
    assert Dataset("toy", X, np.nextafter(Y, 0)).checksum != Dataset("toy", X, Y).checksum


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:2], "x has 3 rows and y 2: give one target a row"),
        (X[:, 0], Y, r"x is float64 of shape \(3,\): give numbers, \(n, d\); reshape\(-1, 1\) makes one column"),
        (X, X, r"y is float64 of shape \(3, 2\): give one target a row, \(n,\)"),
        (np.full((3, 2), None), Y, r"x has gaps \(None\)"),
        (X, np.array(["a", "b", "c"]), "y is text, not numbers"),
        (X + 1j, Y, "x is complex128, not numbers"),
        ([[1.0, 2.0], [3.0], [4.0]], Y, "x has rows of different lengths"),
        (np.ma.masked_greater(X, 3), Y, "x has masked values"),
        (X, np.ma.masked_equal(Y, Y[0]), "y has masked values"),
        (X[:, :0], Y, "x has no columns: give at least one"),
        (X[:0], Y[:0], "x has no rows: give at least one"),
        (X[:, :, None], Y, r"x is float64 of shape \(3, 2, 1\): give numbers, \(n, d\), or images of uint8"),
        (IMAGES[..., None], Y, r"x is uint8 of shape \(3, 2, 2, 4, 1\)"),
        (IMAGES[:2], Y, "x has 2 rows and y 3"),
        (np.where(X == 4, np.nan, X), Y, "x has NaN or infinite values, the first in row 1 of column 1, from 0"),
        (X, np.where(Y == 8, np.inf, Y), "y has NaN or infinite values, the first in row 1, from 0"),
    ],
)
def test_bad_arrays(x: np.ndarray, y: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Dataset("toy", x, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.tolist(),
        lambda x: x.astype(np.float32),
        lambda x: x.astype(np.int8),
        pd.DataFrame,
        np.ma.asarray,
    ],
    ids=["lists", "float32", "integers", "frame", "masked array without a mask"],
)
def test_numbers_of_any_kind_become_doubles(make: Callable[[np.ndarray], object]) -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.arange(3.0)
    made = Dataset("toy", make(x), make(y) if make is not pd.DataFrame else pd.Series(y))
    assert (made.x.dtype, made.y.dtype) == (np.float64, np.float64)
    assert made.checksum == Dataset("toy", x, y).checksum


@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 2, 2, 4)])
def test_images_stay_bytes(shape: tuple[int, ...]) -> None:
    dataset = Dataset("toy", IMAGES.reshape(shape), Y)
    assert (dataset.images, dataset.d, dataset.x.dtype) == (True, 16, np.uint8)
    assert [replace(dataset, standardise=way).x_unit for way in ("both", "inputs", "none")] == [255, 255, 1]
    expected = hashlib.sha256(bytes(range(48)) + struct.pack("<3d", 7, 8, 9)).hexdigest()
    assert dataset.checksum == expected


@pytest.mark.parametrize("x", [X, X.astype(np.uint8)], ids=["numbers", "bytes"])
def test_tables_are_no_images(x: np.ndarray) -> None:
    dataset = Dataset("toy", x, Y)
    assert (dataset.images, dataset.d, dataset.x_unit) == (False, 2, 1)
    assert dataset.checksum == Dataset("toy", X, Y).checksum


def test_augmentation_needs_its_function() -> None:
    augmented = Dataset("toy", IMAGES, Y, augment=lambda x, noise: x + noise[:, :1], augment_noise=1)
    assert augmented.augment_noise == 1
    for count, augment in ((1, None), (-1, augmented.augment)):
        with pytest.raises(InputError, match=f"augment_noise is {count}; give the number of normals that augment"):
            Dataset("toy", IMAGES, Y, augment=augment, augment_noise=count)


def test_classes_are_counted() -> None:
    assert Dataset("toy", X, np.array([2.0, 0.0, 1.0]), "classification").classes == 3
    assert Dataset("toy", X, np.array([1.0, 0.0, 1.0]), "classification").classes == 2
    assert Dataset("toy", X, np.array([1.0, 0.0, 1.0])).classes == 0, "a regression has none"


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ([-1, 1, 1], "-1, 1"),
        ([1, 2, 1], "1, 2"),
        ([0, 2, 0], "0, 2"),
        ([0, 0.5, 1], "0, 0.5, 1"),
        ([0, 1, 2, 3, 4, 5, 7], "0, 1, 2, 3, ..."),
    ],
)
def test_other_labels_are_refused_and_can_be_recoded_as_told(labels: list[float], shown: str) -> None:
    x, y = np.zeros((len(labels), 1)), np.array(labels, dtype=float)
    with pytest.raises(InputError) as caught:
        Dataset("toy", x, y, "classification")
    told, recipe = str(caught.value).split("recode them with ")
    assert told == f"dataset 'toy': labels are {shown}; they must be 0 to C - 1 with none left out: "
    recoded = Dataset("toy", x, eval(recipe, {"np": np, "y": y}), "classification")
    assert recoded.classes == len(set(labels))
    np.testing.assert_array_equal(np.argsort(recoded.y, kind="stable"), np.argsort(y, kind="stable"))


def test_one_class_is_none() -> None:
    with pytest.raises(InputError, match="all labels are the same; a classification needs two classes"):
        Dataset("toy", X, np.zeros(3), "classification")


def test_published_splits_come_from_their_reader() -> None:
    splits = [Split(np.array([0, 1]), np.array([2])), Split(np.array([2, 1]), np.array([0]))]
    dataset = Dataset("toy", X, Y, splits=2, published=splits.__getitem__)
    assert dataset.split(1) is splits[1]
    for index in (-1, 2):
        with pytest.raises(InputError, match=f"dataset 'toy' has no split {index}; choose 0 to 1"):
            dataset.split(index)


def test_unpublished_splits_have_no_end() -> None:
    dataset = Dataset("toy", X, Y)
    assert sorted([*dataset.split(1000).train, *dataset.split(1000).test]) == [0, 1, 2]
    with pytest.raises(InputError, match="has no split -1; choose from 0 up"):
        dataset.split(-1)


def test_diabetes() -> None:
    dataset = load("diabetes")
    assert (dataset.name, dataset.task, dataset.splits) == ("diabetes", "regression", None)
    assert dataset.x.dtype == dataset.y.dtype == np.float64
    # First patient of the study: age 59, sex 2, body-mass index 32.1, blood pressure 101, outcome 151.
    np.testing.assert_array_equal(dataset.x[0, :4], [59, 2, 32.1, 101])
    assert dataset.y[0] == 151
    assert dataset.x.shape == (442, 10)
    # Published summary of the outcome: mean 152.13, standard deviation 77.09 (n - 1).
    assert (round(dataset.y.mean(), 2), round(dataset.y.std(ddof=1), 2)) == (152.13, 77.09)
    assert dataset.checksum == "e9c1f7559552854a24dc45b41c446ce5f79f96e5da081bcce24b57492720b3f7"
    split = dataset.split(3)
    assert (len(split.train), len(split.test)) == (398, 44)


def test_pickles_for_worker_processes() -> None:
    dataset = load("diabetes")
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.checksum == dataset.checksum
    np.testing.assert_array_equal(copy.split(2).test, dataset.split(2).test)
