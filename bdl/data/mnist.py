"""The MNIST digits of LeCun, Bottou, Bengio and Haffner (1998)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bdl.data.files import RemoteFile
from bdl.data.fileset import Array, FileSet
from bdl.data.splits import Split, leading_split

PUBLIC = "https://ossci-datasets.s3.amazonaws.com/mnist"

_SHA256 = {
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
        return [RemoteFile(self.name, f"mnist/{file}", f"{PUBLIC}/{file}", digest) for file, digest in _SHA256.items()]

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
