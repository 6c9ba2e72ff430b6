"""Handwritten digits: MNIST (LeCun et al. 1998), and threes and fives of USPS in the files of Hastie et al. (2009)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from bdl.data.files import Array, FileSet, RemoteFile
from bdl.data.splits import Split, half_split, leading_split

MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"

_MNIST = {
    "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@dataclass(frozen=True)
class MnistSet(FileSet):
    """Images of 28 x 28 grey values, 0 to 255, row by row, and their digits.

    Parameters
    ----------
    validation
        How many of the 60,000 training rows validate, the last.
    """

    validation: int = 0

    @property
    def files(self) -> list[RemoteFile]:
        """Training and test images, then training and test labels."""
        return [
            RemoteFile(self.name, f"mnist/{file}", f"{MNIST_URL}/{file}", digest) for file, digest in _MNIST.items()
        ]

    def table(self) -> tuple[NDArray[np.uint8], Array]:
        """Read the training rows and then the test rows."""
        parts = [_idx(file.read_bytes()) for file in self.files]
        images, labels = np.concatenate(parts[:2]), np.concatenate(parts[2:])
        return images, labels.astype(np.float64)

    def split(self, index: int) -> Split:
        """Return the published training and test rows."""
        whole = leading_split(self.n, 60_000)
        train, validation = np.split(whole.train, [60_000 - self.validation])
        return Split(train, whole.test, validation)


def _idx(content: bytes) -> NDArray[np.uint8]:
    """Read an array of bytes in IDX format: after three bytes the number of axes, their lengths, and the values."""
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


mnist = MnistSet("mnist", "which digit is written, 0 to 9", 70_000, 784, 1)
mnist_validated = MnistSet(
    "mnist_validated", "mnist, the last 10,000 training images of which validate", 70_000, 784, 1, 10_000
)


USPS_URL = "https://hastie.su.domains/ElemStatLearn/datasets"

_USPS = {
    "zip.train.gz": "abc9f5c75b997cabe66b5d01727d5a681c69298e1641a8d37b55433a52129dc0",
    "zip.test.gz": "6bde17b4f1cd68e0630cd2751d6495b5795d9165ab2dc4a0be8b7002b732f4cc",
}


@dataclass(frozen=True)
class UspsSet(FileSet):
    """Images of 16 x 16 grey values in [-1, 1], label 1 for a five.

    The rows are those of ``zip.train`` and then those of ``zip.test``, in the order of the files. Mishkin et al.
    (2018), "SLANG", have the same digits in another order, so that the splits follow their recipe but are not theirs.

    Parameters
    ----------
    smoothing
        Standard deviation in pixels of the Gaussian that the images are smoothed by; around them is background, -1.
        Their values of ELBO and divergence agree with images that were smoothed by 0.75.
    """

    smoothing: float = 0.0

    @property
    def files(self) -> list[RemoteFile]:
        """The training file and the test file of all ten digits."""
        return [RemoteFile(self.name, f"usps/{file}", f"{USPS_URL}/{file}", digest) for file, digest in _USPS.items()]

    def table(self) -> tuple[Array, Array]:
        """Read both files and keep the threes and fives."""
        rows = np.concatenate([np.loadtxt(file.read().splitlines()) for file in self.files])
        rows = rows[np.isin(rows[:, 0], (3, 5))]
        images = rows[:, 1:].reshape(-1, 16, 16)
        images = gaussian_filter(images, self.smoothing, axes=(1, 2), mode="constant", cval=-1)
        return images.reshape(-1, 256), (rows[:, 0] == 5).astype(np.float64)

    def split(self, index: int) -> Split:
        """Return random halves: split i has the seed i + 1."""
        return half_split(self.n, index + 1)


usps_3v5 = UspsSet("usps_3v5", "whether a handwritten digit is a five (1) or a three", 1540, 256, 20)
usps_3v5_smoothed = UspsSet(
    "usps_3v5_smoothed",
    "whether a handwritten digit is a five (1) or a three, images smoothed by 0.75 pixels",
    1540,
    256,
    20,
    0.75,
)
