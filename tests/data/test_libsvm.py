"""The LIBSVM sets: shapes, labels, the splits of SLANG."""

import numpy as np
import pytest

from bdl.data import FetchCount, fetch, load
from bdl.errors import InputError

pytestmark = [pytest.mark.data, pytest.mark.usefixtures("files")]

# name: (rows, inputs, rows labelled 1, training rows, those labelled 1 in split 0)
KNOWN = {
    "australian": (690, 14, 307, 345, 157),
    "breast_cancer": (683, 10, 239, 341, 122),
    "a1a": (32561, 123, 7841, 1605, 395),
}


@pytest.mark.parametrize("name", KNOWN)
def test_content(name: str) -> None:
    n, d, positive, train, positive_train = KNOWN[name]
    dataset = load(name)
    assert (dataset.name, dataset.x.shape, dataset.task, dataset.classes) == (name, (n, d), "classification", 2)
    assert dataset.x.dtype == np.float64
    assert dataset.x.flags.c_contiguous
    assert dataset.y.sum() == positive
    split = dataset.split(0)
    assert (len(split.train), len(split.test), dataset.y[split.train].sum()) == (train, n - train, positive_train)
    assert sorted([*split.train, *split.test]) == list(range(n))
    assert not (dataset.x == 1).all(0).any(), "no column of ones"


def test_first_rows() -> None:
    """As the LIBSVM collection prints them."""
    australian, cancer, a1a = (load(name) for name in KNOWN)
    np.testing.assert_array_equal(australian.x[0, :5], [1, -0.749474, -0.181429, 0, -0.538462])
    np.testing.assert_array_equal(cancer.x[0, :5], [-0.860107, -0.111111, -1, -1, -1])
    # -1 3:1 11:1 14:1 19:1 39:1 42:1 55:1 64:1 67:1 73:1 75:1 76:1 80:1 83:1, columns counted from 1
    assert (np.flatnonzero(a1a.x[0]) + 1).tolist() == [3, 11, 14, 19, 39, 42, 55, 64, 67, 73, 75, 76, 80, 83]
    assert [dataset.y[0] for dataset in (australian, cancer, a1a)] == [0, 0, 0]


@pytest.mark.parametrize("name", ["australian", "breast_cancer"])
def test_split_has_the_seed_of_the_next_number(name: str) -> None:
    dataset = load(name)
    assert dataset.splits == 20
    for index in (0, 19):
        order = np.argsort(np.random.RandomState(index + 1).random_sample(len(dataset.y)))
        np.testing.assert_array_equal(np.concatenate(dataset.split(index)), order)
    with pytest.raises(InputError, match="has no split 20; choose 0 to 19"):
        dataset.split(20)


def test_a1a_has_the_published_parts_only() -> None:
    dataset = load("a1a")
    assert dataset.splits == 1
    np.testing.assert_array_equal(np.concatenate(dataset.split(0)), np.arange(32561))
    assert set(np.unique(dataset.x)) == {0, 1}
    # four inputs occur in no training row, which is why the file's training part has 119 columns
    assert not dataset.x[:1605, 119:].any()
    assert dataset.x[1605:, 119:].any()


def test_files_are_right() -> None:
    for name in KNOWN:
        load(name)
        assert fetch(name) == FetchCount(present=1, downloaded=0)
