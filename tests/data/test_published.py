"""Sets in downloaded files, UCI, LIBSVM and digits: values, published splits against recipes, lazy reading."""

import gzip
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bdl.data import (
    Dataset,
    fetch_dataset,
    file_states,
    load_dataset,
    prepare_dataset,
    recipe_split,
)
from bdl.errors import InputError

pytestmark = [pytest.mark.data, pytest.mark.usefixtures("files")]
loaded = cache(load_dataset)

# name: (rows, inputs, published splits, first input and target of row 0, test rows of a gap split,
# first of split 0)
UCI = {
    "boston": (506, 13, 20, 0.00632, 24.0, 168, 244),
    "concrete": (1030, 8, 20, 540.0, 79.99, 344, 854),
    "energy": (768, 8, 20, 0.98, 15.55, 256, 120),
    "kin8nm": (8192, 8, 20, -0.015119, 0.536524, 2730, 2292),
    "naval": (11934, 16, 20, 1.138, 0.95, 3978, 9833),
    "power": (9568, 4, 20, 8.34, 480.48, 3190, 1723),
    "protein": (45730, 9, 5, 13558.3, 17.284, 15244, 3),
    "wine": (1599, 11, 20, 7.4, 5.0, 532, 214),
    "yacht": (308, 6, 20, -2.3, 0.11, 102, 88),
}
# name: (rows, inputs, published splits, first inputs of row 0 as published, rows labelled 0 and 1)
CLASSES = {
    "australian": (690, 14, 20, [1, -0.749474, -0.181429, 0, -0.538462], [383, 307]),
    "breast_cancer": (683, 10, 20, [-0.860107, -0.111111, -1, -1, -1], [444, 239]),
    "a1a": (32561, 123, 1, [0, 0, 1, 0, 0], [24720, 7841]),
    # published counts: 658 threes and 556 fives in zip.train, 166 and 160 in zip.test
    "usps_3v5": (1540, 256, 20, [-1, -1, -1, -0.813, -0.671], [658 + 166, 556 + 160]),
}


@pytest.mark.parametrize("name", UCI)
def test_regressions_and_the_recipe_of_their_splits(name: str) -> None:
    n, d, splits, first, target, *_ = UCI[name]
    dataset = loaded(name)
    assert (dataset.name, dataset.x.shape, dataset.y.shape, dataset.splits) == (
        name,
        (n, d),
        (n,),
        splits,
    )
    assert dataset.x.flags.c_contiguous
    assert (round(dataset.x[0, 0], 6), round(dataset.y[0], 6)) == (first, target)
    for index in range(splits):
        published, drawn = dataset.split(index), recipe_split(n, index)
        np.testing.assert_array_equal(published.train, drawn.train)
        np.testing.assert_array_equal(published.test, drawn.test)
        assert published.train.dtype == published.test.dtype == np.int64


@pytest.mark.parametrize("name", CLASSES)
def test_classes_and_the_recipe_of_their_splits(name: str) -> None:
    """Halves by the seed of the next number; a1a has the published parts only."""
    n, d, splits, first, counts = CLASSES[name]
    dataset = loaded(name)
    assert (dataset.name, dataset.x.shape, dataset.task, dataset.splits) == (
        name,
        (n, d),
        "classification",
        splits,
    )
    assert dataset.x.flags.c_contiguous
    assert not (dataset.x == 1).all(0).any(), "no column of ones"
    np.testing.assert_array_equal(dataset.x[0, :5], first)
    assert np.bincount(dataset.y.astype(int)).tolist() == counts
    for index in {0, splits - 1}:
        split = dataset.split(index)
        halves = np.argsort(np.random.RandomState(index + 1).random_sample(n))
        np.testing.assert_array_equal(
            np.concatenate(split), np.arange(n) if name == "a1a" else halves
        )
        assert len(split.train) == (1605 if name == "a1a" else n // 2)
    with pytest.raises(InputError, match=f"has no split {splits}; choose 0 to {splits - 1}"):
        dataset.split(splits)


def test_targets() -> None:
    """Energy predicts the heating load.

    Naval the compressor decay, and its last column goes unused.
    """
    energy, naval = loaded("energy").y, loaded("naval")
    assert (energy.min(), energy.max()) == (
        6.01,
        43.1,
    )  # heating load; the cooling load spans 10.90 to 48.03
    assert (naval.y.min(), naval.y.max()) == (
        0.95,
        1.0,
    )  # compressor; the turbine's spans 0.975 to 1
    assert not any(np.array_equal(naval.x[:, column], naval.y) for column in range(16))


def test_files_are_got_when_needed(
    cache: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BDL_DATA_MIRROR", source)
    folder = cache / "uci/yacht"
    dataset = load_dataset("yacht")
    tables = {"data.txt", "index_features.txt", "index_target.txt"}
    assert {path.name for path in folder.iterdir()} == tables
    dataset.split(7)
    assert {path.name for path in folder.iterdir()} == tables | {
        "index_train_7.txt",
        "index_test_7.txt",
    }
    assert fetch_dataset("yacht") == (5, 44)
    assert [state for _, state in file_states("yacht")] == ["ok"] * 49
    assert [path for path, _ in file_states("yacht", gaps=False)] == [
        path for path, _ in file_states("yacht")
    ][:43]
    (folder / "index_test_7.txt").write_text("0\n")
    with pytest.raises(InputError, match=r"corrupt data file .*index_test_7.txt: expected sha256"):
        dataset.split(7)
    assert fetch_dataset("yacht") == (48, 1)
    copy = pickle.loads(pickle.dumps(dataset))  # as it goes to processes that work
    assert copy.checksum == dataset.checksum
    np.testing.assert_array_equal(copy.split(4).test, dataset.split(4).test)


@pytest.mark.parametrize("name", UCI)
def test_gap_splits_test_the_middle_third(name: str) -> None:
    """One split for each input, by which half of the training rows lie below all test rows and half above, or equal."""
    n, d, *_, size, first = UCI[name]
    dataset = prepare_dataset(loaded(name), "gap", "both")
    assert (dataset.splits, dataset.split(0).test[0]) == (d, first)
    for index in range(d):
        split, x = dataset.split(index), dataset.x[:, index]
        assert len(split.test) == size
        assert sorted([*split.train, *split.test]) == list(range(n))
        assert split.train.dtype == split.test.dtype == np.int64
        third = len(split.train) // 2
        low, high = np.sort(x[split.train])[[third - 1, -third]]
        assert low <= x[split.test].min() <= x[split.test].max() <= high
    assert dataset.split(0).train.tolist() != sorted(dataset.split(0).train), (
        "folds are contiguous"
    )
    with pytest.raises(InputError, match=f"has no split {d}; choose 0 to {d - 1}"):
        dataset.split(d)


def test_changed_gap_files_are_refused(
    cache: Path, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BDL_DATA_MIRROR", source)
    dataset = prepare_dataset(load_dataset("yacht"), "gap", "both")
    assert dataset.split(1).test[0] != dataset.split(0).test[0]
    file = cache / "uci_gap/yacht/index_test_1.txt"
    rows = file.read_text().split()
    file.write_text(
        "\n".join([rows[1], rows[0], *rows[2:]]) + "\n"
    )  # the same rows in another order
    with pytest.raises(
        InputError, match=r"corrupt data file .*uci_gap/yacht/index_test_1.txt: expected sha256"
    ):
        dataset.split(1)


def test_rows_of_a1a() -> None:
    """As the LIBSVM collection prints them.

    Four inputs occur in no training row, whose part has 119 columns.
    """
    x = loaded("a1a").x
    # -1 3:1 11:1 14:1 19:1 39:1 42:1 55:1 64:1 67:1 73:1 75:1 76:1 80:1 83:1, columns counted from
    # 1
    assert (np.flatnonzero(x[0]) + 1).tolist() == [
        3,
        11,
        14,
        19,
        39,
        42,
        55,
        64,
        67,
        73,
        75,
        76,
        80,
        83,
    ]
    assert set(np.unique(x)) == {0, 1}
    assert not x[:1605, 119:].any()
    assert x[1605:, 119:].any()


def test_smoothed_usps() -> None:
    """A pixel's weights are those of a normal density at whole numbers up to four standard deviations."""
    plain, smooth = loaded("usps_3v5"), load_dataset("usps_3v5_smoothed")
    assert (plain.x.min(), plain.x.max()) == (-1, 1)
    assert plain.y[:1214].sum() == 556, "those of zip.train first"
    np.testing.assert_array_equal(smooth.y, plain.y)
    weights = np.exp(-0.5 * (np.arange(-3, 4) / 0.75) ** 2)
    weights /= weights.sum()
    padded = np.pad(plain.x[:20].reshape(-1, 16, 16), ((0, 0), (3, 3), (3, 3)), constant_values=-1)
    rows = sum(w * padded[:, :, i : i + 16] for i, w in enumerate(weights))
    both = sum(w * rows[:, i : i + 16] for i, w in enumerate(weights))
    np.testing.assert_allclose(smooth.x[:20], both.reshape(20, 256), atol=1e-12)


def test_mnist(shared_cache: Path) -> None:
    mnist: Dataset = load_dataset("mnist")
    assert (mnist.x.dtype, mnist.images, mnist.d) == (np.uint8, True, 784)
    assert (mnist.x.shape, mnist.task, mnist.classes, mnist.splits) == (
        (70_000, 28, 28),
        "classification",
        10,
        1,
    )
    train, test, _ = mnist.split(0)
    assert (train[0], train[-1], test[0], test[-1]) == (0, 59_999, 60_000, 69_999)
    counts = [np.bincount(mnist.y[rows].astype(int)).tolist() for rows in (train, test)]
    assert counts[0] == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts[1] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.y[:6].tolist() == [5, 0, 4, 1, 9, 2]
    # the constants that everyone standardises the training images with
    mean, square = mnist.x[train].mean(), np.square(mnist.x[train], dtype=np.uint16).mean()
    assert (round(mean / 255, 4), round((square - mean**2) ** 0.5 / 255, 4)) == (0.1307, 0.3081)
    content = gzip.decompress((shared_cache / "mnist/t10k-images-idx3-ubyte.gz").read_bytes())
    assert mnist.x[60_000:].tobytes() == content[16:]
