"""States on disk from which an interrupted fit goes on; a file is replaced as a whole."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bdl.files import write_atomically


class Checkpoint:
    """Files of one fit in a folder, one for each of its slot groups, saved every so many seconds.

    `key` is everything that decides the fit, as text: files of another fit are not loaded. `text`
    is what the owner stored with the states the last time, such as scores of the curve so far.
    `current_text` returns the text for the next saving, by default the same text.
    """

    def __init__(self, folder: Path, key: str, every_seconds: float = 60.0) -> None:
        self.folder, self.every_seconds = folder, every_seconds
        self._stem = sha256(key.encode()).hexdigest()[:32]
        self._saved_at = time.monotonic()
        # groups are fitted in order, so the last file has the newest text
        files = sorted(folder.glob(f"{self._stem}-*.safetensors"), reverse=True)
        texts = (_metadata(path).get("text", "") for path in files)
        self.text = next((text for text in texts if text), "")
        self.current_text: Callable[[], str] = lambda: self.text

    @property
    def due(self) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self._saved_at >= self.every_seconds

    def save(
        self, group_number: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, int]
    ) -> None:
        """Replace the file of a group; a process that dies meanwhile leaves the old one."""
        cpu_tensors = {
            name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()
        }
        metadata = {"text": self.current_text(), "numbers": json.dumps(dict(numbers))}
        with write_atomically(self._path(group_number)) as new_path:
            save_file(cpu_tensors, new_path, metadata)
        self._saved_at = time.monotonic()

    def load(self, group_number: int) -> tuple[dict[str, Tensor], dict[str, int]] | None:
        """Return the tensors and numbers of a group.

        None if there is no file, or none that can be read.
        """
        path = self._path(group_number)
        numbers = _metadata(path).get("numbers")
        if numbers is None:
            return None
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(numbers)  # noqa: SIM118

    def remove(self) -> None:
        """Remove the files of a fit whose result is stored elsewhere."""
        for path in self.folder.glob(f"{self._stem}-*"):
            path.unlink(missing_ok=True)

    def _path(self, group_number: int) -> Path:
        return self.folder / f"{self._stem}-{group_number:04d}.safetensors"


def _metadata(path: Path) -> dict[str, str]:
    with suppress(FileNotFoundError, SafetensorError), safe_open(path, "pt") as file:
        return file.metadata() or {}
    return {}
