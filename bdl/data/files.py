"""Downloaded files of data sets: their place, download and checksum; and sets made of such files.

``BDL_DATA_DIR`` is the data directory (default: ``data`` in the working directory).
``BDL_DATA_MIRROR``, a directory or an http address with the same layout, is tried before a file's
public address.
"""

import errno
import gzip
import hashlib
import os
import shutil
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from bdl.data.conversion import Inputs
from bdl.data.dataset import Dataset, Task
from bdl.data.splits import Split
from bdl.errors import InputError
from bdl.files import write_atomically
from bdl.types import Array

FileState = Literal["ok", "shipped", "missing", "corrupt"]
"""Of a cached file; one that is shipped is not cached, and comes with the package."""

_GZIP = b"\x1f\x8b"
"""First bytes of every gzip file."""


def data_directory() -> Path:
    """Return the directory that downloaded data are kept in."""
    return Path(os.environ.get("BDL_DATA_DIR") or "data").expanduser()


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set that is downloaded once and verified on every read.

    `path` is where it lies in the data directory and in a mirror, with forward slashes; `sha256`
    is the hex digest of its content, decompressed. A gzip file is kept as it came, and is
    decompressed to be read and verified: the same content comes in wrappers that differ from
    source to source, and some servers take the wrapper off on the way.
    """

    dataset: str
    path: str
    url: str
    sha256: str
    shipped_content: Callable[[], bytes] | None = field(default=None, compare=False)
    """Content that comes with the package, for a file that needs no download."""

    @property
    def target(self) -> Path:
        """Where the file lies on this machine."""
        return data_directory() / self.path

    def state(self) -> FileState:
        """Return whether the cached file is there and right, or comes with the package."""
        if not self.target.is_file():
            return "missing" if self.shipped_content is None else "shipped"
        try:
            self._read_verified(self.target)
        except _CorruptFile:
            return "corrupt"
        return "ok"

    def read(self) -> str:
        """Return the text of the file; otherwise as `read_bytes`."""
        return self.read_bytes().decode()

    def read_bytes(self) -> bytes:
        """Return the content of the file; download it if it is missing.

        `InputError` if the file cannot be had, or the cached file is corrupt (it is left as it
        is).
        """
        if not self.target.is_file():
            self.download()
        try:
            return self._read_verified(self.target)
        except _CorruptFile as error:
            raise InputError(
                f"corrupt data file {self.target}: {error.strerror}; "
                f"run 'bdl-bench data fetch {self.dataset}', or delete the file and run again"
            ) from None

    def download(self) -> None:
        """Put a verified copy in the data directory, whole or not at all.

        It comes with the package, or from the mirror or, if that fails, from the public address.
        `InputError` if no source has the right file, or the data directory cannot be written.
        """
        mirror = os.environ.get("BDL_DATA_MIRROR")
        sources = [f"{mirror.rstrip('/')}/{self.path}", self.url] if mirror else [self.url]
        with write_data_file(self.target) as copy:
            if self.shipped_content is not None:
                copy.write_bytes(self.shipped_content())
                self._read_verified(copy)
                return
            failures = []
            for source in sources:
                try:
                    # verified before it takes its name: what lies in the data directory was right
                    # once; a corrupt copy of a mirror is passed over like a missing one
                    _copy_file(source, copy)
                    self._read_verified(copy)
                    return
                except OSError as error:
                    failures.append(f"{source}: {_describe_failure(error)}")
            raise InputError(
                f"cannot get data file {self.path} ({'; '.join(failures)}); connect to the network "
                "or set BDL_DATA_MIRROR to a directory or http address that has it, then run "
                f"'bdl-bench data fetch {self.dataset}'"
            )

    def _read_verified(self, path: Path) -> bytes:
        """Return the decompressed content of a copy of the file; `_CorruptFile` if it is wrong."""
        content = path.read_bytes()
        if content.startswith(_GZIP):
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise _CorruptFile(errno.EBADMSG, f"cannot be decompressed ({error})") from None
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise _CorruptFile(
                errno.EBADMSG, f"expected sha256 {self.sha256[:12]}, found {digest[:12]}"
            )
        return content


class _CorruptFile(OSError):
    """A copy of a file is not what it should be; `strerror` says how."""


@contextmanager
def write_data_file(path: Path) -> Iterator[Path]:
    """Write a file of the data directory as `write_atomically`; `InputError` if that fails."""
    try:
        with write_atomically(path) as new_path:
            yield new_path
    except OSError as error:
        raise InputError(
            f"cannot write to data directory {path.parent} ({error.strerror}); "
            "set BDL_DATA_DIR to one you can write to"
        ) from None


def write_if_missing(path: Path, write: Callable[[Path], object]) -> Path:
    """Call `write` to make a file if it is missing, whole or not at all; return its path."""
    if not path.is_file():
        with write_data_file(path) as new_path:
            write(new_path)
    return path


def _copy_file(source: str, target: Path) -> None:
    """Copy from a path or an http address; every failure is an OSError."""
    if source.startswith(("http://", "https://")):
        from pooch import HTTPDownloader

        HTTPDownloader(chunk_size=1 << 16)(source, str(target), None)
    else:
        shutil.copyfile(Path(source).expanduser(), target)


def _describe_failure(error: OSError) -> str:
    """Describe in a few words why a transfer failed."""
    response = getattr(error, "response", None)  # the server's answer, if the HTTP client got one
    if response is not None:
        return f"HTTP {response.status_code}"
    return error.strerror or type(error).__name__


@dataclass(frozen=True)
class FileSet(ABC):
    """Description of a data set before its files are read; calling it loads the data set.

    `description` is of the target, in a line; n, d and splits are the numbers of rows, inputs and
    published splits.
    """

    name: str
    description: str
    n: int
    d: int
    splits: int
    task: ClassVar[Task] = "classification"
    version: ClassVar[int] = 1
    """Version of how its files are read; `bdl.versions` says when it goes up."""

    @property
    @abstractmethod
    def files(self) -> Sequence[RemoteFile]:
        """All files, split files included."""

    @abstractmethod
    def table(self) -> tuple[Inputs, Array]:
        """Read inputs and targets: float64, or images of uint8, with n rows; and (n,)."""

    @abstractmethod
    def split(self, index: int) -> Split:
        """Return one published split."""

    def __call__(self) -> Dataset:
        """Load the data set; each split is read when it is needed.

        `InputError` if a file cannot be had or is corrupt.
        """
        x, y = self.table()
        return Dataset(self.name, x, y, self.task, splits=self.splits, published=self.split)
