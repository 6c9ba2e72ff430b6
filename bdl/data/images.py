"""Pictures in files: decoded once, kept as bytes on disk, and told apart by their pixels."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path

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
