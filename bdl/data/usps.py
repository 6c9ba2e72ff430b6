"""Threes and fives of the USPS digits, in the files of Hastie, Tibshirani and Friedman (2009)."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter

from bdl.data.files import RemoteFile
from bdl.data.fileset import Array, FileSet
from bdl.data.splits import Split, half_split

PUBLIC = "https://hastie.su.domains/ElemStatLearn/datasets"

_SHA256 = {
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
        return [RemoteFile(self.name, f"usps/{file}", f"{PUBLIC}/{file}", digest) for file, digest in _SHA256.items()]

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
