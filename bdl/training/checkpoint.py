"""What a fit that is cut off goes on from: its states on disk, replaced as a whole now and then."""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


class Checkpoint:
    """Files of one fit in a folder, one for each part of it, saved every so many seconds.

    `key` is everything that decides the fit, as text: a checkpoint of another fit is not found.
    `text` is what the owner had kept beside the states, such as scores of the curve so far, when
    they were saved last, and `write` returns what is to be kept at the next saving; by default the
    text.
    """

    def __init__(self, folder: Path, key: str, every_seconds: float = 60.0) -> None:
        self.folder, self.every_seconds = folder, every_seconds
        self._stem = sha256(key.encode()).hexdigest()[:32]
        self._saved_at = time.monotonic()
        files = sorted(
            folder.glob(f"{self._stem}-*.safetensors"), reverse=True
        )  # parts are fitted in order
        texts = (_metadata(path).get("text", "") for path in files)
        self.text = next((text for text in texts if text), "")
        self.write: Callable[[], str] = lambda: self.text

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self._saved_at >= self.every_seconds

    def save(self, part: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, int]) -> None:
        """Replace what is kept of a part; a process that dies meanwhile leaves the old file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(part)
        own = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        unfinished = path.with_suffix(f".{os.getpid()}")
        save_file(own, unfinished, {"text": self.write(), "numbers": json.dumps(dict(numbers))})
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
        self._saved_at = time.monotonic()

    def load(self, part: int) -> tuple[dict[str, Tensor], dict[str, int]] | None:
        """Return the tensors and numbers of a part.

        None if there are none, or none that can be read.
        """
        path = self._path(part)
        numbers = _metadata(path).get("numbers")
        if numbers is None:
            return None
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(numbers)  # noqa: SIM118

    def remove(self) -> None:
        """Remove the files, of a fit whose result is safe elsewhere."""
        for path in self.folder.glob(f"{self._stem}-*"):
            path.unlink(missing_ok=True)

    def _path(self, part: int) -> Path:
        return self.folder / f"{self._stem}-{part:04d}.safetensors"


def _metadata(path: Path) -> dict[str, str]:
    with suppress(FileNotFoundError, SafetensorError), safe_open(path, "pt") as file:
        return file.metadata() or {}
    return {}
