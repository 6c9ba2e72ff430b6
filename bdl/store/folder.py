"""Where a run keeps things.

``<results>/<benchmark>`` has the protocol, with a folder below for profiles other than paper; a variant, which is
narrowed or changed by overrides, has a folder of its own in ``variants`` below that.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bdl.errors import InputError
from bdl.spec import Variant
from bdl.store.artefacts import mended
from bdl.store.rows import CellKey
from bdl.store.store import Store

STORE = "store.sqlite"
_VARIANTS = "variants"


def folder(results: Path, variant: Variant) -> Path:
    """Return the folder of a variant, or of the protocol, under its profile."""
    base = results / variant.benchmark.name
    base = base if variant.benchmark.profile == "paper" else base / variant.benchmark.profile
    return base / _VARIANTS / variant.name if variant.name else base


def siblings(place: Path) -> list[Path]:
    """List the other folders of the same benchmark and profile: that of the protocol, and those of its variants."""
    base = place.parent.parent if place.parent.name == _VARIANTS else place
    return [path for path in (base, *sorted((base / _VARIANTS).glob("*/"))) if path != place]


@contextmanager
def opened(results: Path, variant: Variant) -> Iterator[Store]:
    """Open the store for writing, alone.

    Raises
    ------
    InputError
        If the folder is not writable, or another run of the benchmark is under way.
    """
    path = folder(results, variant) / STORE
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_suffix(".lock"))
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"another run of {variant.benchmark.name} writes to {path.parent}; wait for it or choose another --results"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write to {path.parent}: {error.strerror}; choose another --results") from None
    try:
        with mended(variant, results), Store(path) as store:
            yield store
    finally:
        lock.release()


@contextmanager
def looked_at(results: Path, variant: Variant) -> Iterator[Store]:
    """Open the store to look at what it has; an `empty` one if there is none."""
    path = folder(results, variant) / STORE
    with mended(variant, results), Store(path) if path.exists() else empty() as store:
        yield store


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a file to write to, which takes the place of another at the end of the block, if that does not fail."""
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def empty() -> Store:
    """Make a store in memory, which leaves nothing behind."""
    return Store(Path(":memory:"))


def start_afresh(store: Store, cells: Sequence[CellKey]) -> Path | None:
    """Forget the cells' rows, keeping a copy of the store beside it; None if there was nothing to forget."""
    if not any(store.fit_hash(cell) for cell in cells):
        return None
    copy = store.path.with_name(f"{STORE}.{time.strftime('%Y%m%dT%H%M%S')}")
    try:
        shutil.copy2(store.path, copy)
    except OSError as error:
        raise InputError(f"cannot copy {store.path}: {error.strerror}; nothing was changed") from None
    store.forget(cells)
    return copy
