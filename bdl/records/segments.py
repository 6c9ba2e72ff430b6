"""The files of rows of a run folder: one file, and the segments that it lacks.

Segments are numbered under a lock. The file names the last one that it has, so that those which a
kill leaves behind are ignored. A reader needs no lock.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
from filelock import FileLock

from bdl.errors import InputError
from bdl.files import refuse_failed_writes
from bdl.records.row_files import SCHEMA, RowFile, drop_replaced, read_rows, write_rows

ROWS = "rows.parquet"
PROVENANCE = "run.json"
"""Name of the file that says where published rows came from, with the SHA-256 of other files."""
_SEGMENTS = "rows"
_READ_ATTEMPTS = 20
"""Attempts of a reader to find all files, while a writer puts segments together."""

FileState = tuple[object, ...]
"""Time and size of `rows.parquet` and numbers of the segments, by which rows of another writer are
noticed.
"""


class SegmentFiles:
    """`rows.parquet` in a folder, and segments, ``rows/000001.parquet`` and so on.

    `digests` are the SHA-256 that files should have, by name.
    """

    def __init__(self, folder: Path, digests: Mapping[str, str]) -> None:
        self._folder, self._digests = folder, digests

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock out other writers; `InputError` if the folder is not writable."""
        with refuse_failed_writes(self._folder):
            (self._folder / _SEGMENTS).mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._folder / "rows.lock")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def describe(self) -> FileState:
        """Describe the files as they are now."""
        try:
            stat = (self._folder / ROWS).stat()
            written: object = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except OSError:
            written = None
        return written, *self.list_segments()

    def list_segments(self) -> list[int]:
        """List the numbers of the segments; hidden files are those of a writer."""
        numbers: list[int] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for path in (self._folder / _SEGMENTS).iterdir():
                if path.suffix == ".parquet" and path.stem.isdigit():
                    numbers.append(int(path.stem))
        return sorted(numbers)

    def read(self) -> RowFile:
        """Read the rows of all files, and the number of the last segment.

        `InputError` if one is damaged.
        """
        for _ in range(_READ_ATTEMPTS):
            # before the file is read: a segment that is gone by then is in it
            numbers = self.list_segments()
            with suppress(FileNotFoundError):
                return self._read_files(numbers)
        raise InputError(f"cannot read {self._folder}: its files change all the time; try again")

    def write_segment(self, number: int, table: pa.Table, request: str | None) -> None:
        """Write the segment of a number; `InputError` if the disk is full."""
        with refuse_failed_writes(self._folder):
            write_rows(self._locate(number), table, request)

    def compact(self, last: int, table: pa.Table, request: str | None) -> None:
        """Write the rows of all segments up to the last into the file, and remove the segments."""
        with refuse_failed_writes(self._folder):
            write_rows(self._folder / ROWS, table, request, included=last)
            for number in self.list_segments():
                self._locate(number).unlink()

    def _read_files(self, numbers: Sequence[int]) -> RowFile:
        content = RowFile(SCHEMA.empty_table(), None, 0)
        path = self._folder / ROWS
        if path.exists():
            self._check_digest(path)
            content = read_rows(path)
        added = [number for number in numbers if number > content.included]
        if not added:
            return content._replace(table=content.table.combine_chunks())
        tables, request = [content.table], content.request
        for number in added:
            segment = read_rows(self._locate(number))
            tables.append(segment.table)
            request = request if segment.request is None else segment.request
        table = drop_replaced(pa.concat_tables(tables).combine_chunks())
        return RowFile(table, request, added[-1])

    def _locate(self, number: int) -> Path:
        return self._folder / _SEGMENTS / f"{number:06}.parquet"

    def _check_digest(self, path: Path) -> None:
        recorded = self._digests.get(path.name)
        if recorded is not None and sha256(path.read_bytes()).hexdigest() != recorded:
            raise InputError(
                f"{path} is damaged or of another run: its SHA-256 is not the one in "
                f"{PROVENANCE}; fetch the folder again, or remove it and run again"
            )
