"""Where a run keeps things: ``<results>/<benchmark>``, with a folder below for profiles other than paper."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bdl.errors import InputError
from bdl.spec import Benchmark
from bdl.store.rows import CellKey
from bdl.store.store import Store


def folder(results: Path, benchmark: Benchmark) -> Path:
    """Give the folder of a benchmark under its profile."""
    base = results / benchmark.name
    return base if benchmark.profile == "paper" else base / benchmark.profile


@contextmanager
def opened(results: Path, benchmark: Benchmark) -> Iterator[Store]:
    """Open the store for writing, alone.

    Raises
    ------
    InputError
        If the folder is not writable, or another run of the benchmark is under way.
    """
    path = folder(results, benchmark) / "store.sqlite"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"))
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another run of {benchmark.name} writes to {path.parent}; wait for it or choose another --results"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write to {path.parent}: {error.strerror}; choose another --results") from None
    try:
        with Store(path) as store:
            yield store
    finally:
        lock.release()


def existing(results: Path, benchmark: Benchmark) -> Store:
    """Open the store of an earlier run.

    Raises
    ------
    InputError
        If there is none.
    """
    path = folder(results, benchmark) / "store.sqlite"
    if not path.exists():
        profile = "" if benchmark.profile == "paper" else f" --profile {benchmark.profile}"
        raise InputError(f"no results in {path.parent}; start with: bdl-bench run {benchmark.name}{profile}")
    return Store(path)


def start_afresh(store: Store, cells: Sequence[CellKey]) -> Path | None:
    """Forget the cells' rows, keeping a copy of the store beside it; None if there was nothing to forget."""
    if not any(store.fit_hash(cell) for cell in cells):
        return None
    copy = store.path.with_name(f"store.sqlite.{time.strftime('%Y%m%dT%H%M%S')}")
    shutil.copy2(store.path, copy)
    store.forget(cells)
    return copy
