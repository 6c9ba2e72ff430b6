"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bdl.errors import InputError

DEFAULT_RESULTS = Path("results")
"""Folder of results of commands that name no other."""


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces `path` at the end of the block.

    The new file is in the same folder, which is made if it is missing, and has the same suffix. If
    the block raises, the new file is removed, and `path` stays as it was. Content and name are on
    the disk when the block has ended, also after a power cut.

    Raises
    ------
    OSError
        If the folder is not writable or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Hidden, and of a name of its own: two processes may write the same file at one time.
    new_path = path.with_name(f".{secrets.token_hex(4)}-{path.name}")
    try:
        yield new_path
        _sync(new_path)
        new_path.replace(path)
    except OSError as error:
        if str(error.filename) == str(new_path):
            error.filename = os.fspath(path)  # the name that a reader of the message knows
        raise
    finally:
        new_path.unlink(missing_ok=True)
    _sync(path.parent)  # which holds the name


@contextmanager
def refuse_failed_writes(path: Path) -> Iterator[None]:
    """Raise `InputError`, of one line, for an `OSError` in the block, such as that of a full disk.

    `path` is the file or the folder that the block writes to.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write to {path} ({error.strerror or error}); what it holds is safe: mend "
            "that, and the same command goes on, or choose another --results"
        ) from None


def _sync(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
