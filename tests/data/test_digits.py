"""The digits: USPS threes and fives, and MNIST."""

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest

from bdl.data import Dataset, load

pytestmark = [pytest.mark.data, pytest.mark.usefixtures("files")]


def test_usps() -> None:
    dataset = load("usps_3v5")
    assert (dataset.x.shape, dataset.task, dataset.classes, dataset.splits) == ((1540, 256), "classification", 2, 20)
    # published counts: 658 threes and 556 fives in zip.train, 166 and 160 in zip.test
    assert np.bincount(dataset.y.astype(int)).tolist() == [658 + 166, 556 + 160]
    assert np.bincount(dataset.y[:1214].astype(int)).tolist() == [658, 556]
    assert (dataset.x.min(), dataset.x.max()) == (-1, 1)
    assert dataset.y[:6].tolist() == [1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(dataset.x[0, :6], [-1, -1, -1, -0.813, -0.671, -0.809])


def test_smoothed_usps() -> None:
    """A pixel's weights are those of a normal density at whole numbers up to four standard deviations."""
    plain, smooth = load("usps_3v5"), load("usps_3v5_smoothed")
    np.testing.assert_array_equal(smooth.y, plain.y)
    weights = np.exp(-0.5 * (np.arange(-3, 4) / 0.75) ** 2)
    weights /= weights.sum()
    padded = np.pad(plain.x[:20].reshape(-1, 16, 16), ((0, 0), (3, 3), (3, 3)), constant_values=-1)
    rows = sum(w * padded[:, :, i : i + 16] for i, w in enumerate(weights))
    both = sum(w * rows[:, i : i + 16] for i, w in enumerate(weights))
    np.testing.assert_allclose(smooth.x[:20], both.reshape(20, 256), atol=1e-12)


def test_usps_splits() -> None:
    dataset = load("usps_3v5")
    for index in (0, 19):
        split = dataset.split(index)
        assert (len(split.train), len(split.test)) == (770, 770)
        order = np.argsort(np.random.RandomState(index + 1).random_sample(1540))
        np.testing.assert_array_equal(np.concatenate(split), order)
    copy = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(copy.split(3).train, dataset.split(3).train)


@pytest.fixture(scope="module")
def mnist(source: str, shared_cache: Path) -> Dataset:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BDL_DATA_MIRROR", source)
        patch.setenv("BDL_DATA_DIR", str(shared_cache))
        return load("mnist")


def test_mnist(mnist: Dataset) -> None:
    assert (mnist.x.dtype, mnist.images, mnist.d) == (np.uint8, True, 784)
    assert (mnist.x.shape, mnist.task, mnist.classes, mnist.splits) == ((70_000, 28, 28), "classification", 10, 1)
    train, test, _ = mnist.split(0)
    assert (train[0], train[-1], test[0], test[-1]) == (0, 59_999, 60_000, 69_999)
    counts = [np.bincount(mnist.y[rows].astype(int)).tolist() for rows in (train, test)]
    assert counts[0] == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts[1] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert mnist.y[:6].tolist() == [5, 0, 4, 1, 9, 2]
    # the constants that everyone standardises the training images with
    scaled = mnist.x[train] / mnist.x_unit
    assert (round(scaled.mean(), 4), round(scaled.std(), 4)) == (0.1307, 0.3081)


def test_mnist_keeps_every_grey_value(mnist: Dataset, shared_cache: Path) -> None:
    content = gzip.decompress((shared_cache / "mnist/t10k-images-idx3-ubyte.gz").read_bytes())
    assert mnist.x[60_000:].tobytes() == content[16:]
