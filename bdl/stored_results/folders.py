"""The folders of runs, and the opening of their stores.

``<results>/<benchmark>`` has the protocol, with a folder below for profiles other than paper, and
one ``seed-<number>`` for each replicate, which has another seed and is otherwise the same. A
variant, which is a run that is narrowed or changed by overrides, has a folder of its own in
``variants`` below that.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bdl.errors import InputError, parse_json
from bdl.files import DEFAULT_RESULTS, refuse_failed_writes
from bdl.records.posterior_files import PosteriorFiles
from bdl.records.row import CellKey
from bdl.records.run_folder import RunFolder
from bdl.records.segments import PROVENANCE, ROWS
from bdl.records.unusable_fits import with_rerun_hint
from bdl.registry import packaged_results
from bdl.spec import Request
from bdl.stored_results import legacy

STORE = "store"
"""Name of the run folder in which a run works; what it publishes is in the folder above."""
_VARIANTS = "variants"
_MAPPINGS = ("fit_hashes", "score_hashes", "files")
"""Fields of the provenance that are mappings: identities of cells, and digests of files."""


def locate_folder(results: Path, request: Request) -> Path:
    """Return the folder of a request: the protocol, a replicate or a variant under its profile."""
    base = results / request.benchmark.name
    base = base if request.benchmark.profile == "paper" else base / request.benchmark.profile
    if request.replicate_seed is not None:
        base = base / f"seed-{request.replicate_seed}"
        if not request.is_narrowed:
            return base
    return base / _VARIANTS / request.folder_name if request.folder_name else base


def list_roots(results: Path) -> list[Path]:
    """List the folders of results that published rows are read from.

    The default one stands for the rows that come with the package as well.
    """
    return [results, packaged_results()] if results == DEFAULT_RESULTS else [results]


def list_sibling_folders(folder: Path) -> list[Path]:
    """List the other folders of the benchmark and profile: the protocol and its variants."""
    base = folder.parent.parent if folder.parent.name == _VARIANTS else folder
    return [path for path in (base, *sorted((base / _VARIANTS).glob("*/"))) if path != folder]


def list_replicate_folders(folder: Path) -> list[Path]:
    """List the folders of the replicates of a protocol, from its folder or that of a part.

    Those of a part of a replicate come after that of the whole.
    """
    base = folder.parent.parent if folder.parent.name == _VARIANTS else folder
    paths = [*sorted(base.glob("seed-*/")), *sorted(base.glob(f"seed-*/{_VARIANTS}/*/"))]
    return [path for path in paths if has_published_rows(path)]


@contextmanager
def open_for_writing(results: Path, request: Request) -> Iterator[RunFolder]:
    """Open the store of a request for writing, and lock out other runs.

    `InputError` if the folder is not writable, or another run is under way.
    """
    path = locate_folder(results, request) / STORE
    with refuse_failed_writes(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        # beside the lock of the store's writers: two runs would make the same fits twice; the
        # system releases the lock of a process that is killed
        lock = FileLock(path.with_suffix(".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(
                f"another run of {request.benchmark.name} writes to {path.parent}; "
                "wait for it or choose another --results"
            ) from None
    try:
        legacy.convert_folder(path.parent)
        with with_rerun_hint(request, results), _open_current_store(path.parent) as run_folder:
            yield run_folder
    finally:
        lock.release()


@contextmanager
def open_readonly(results: Path, request: Request) -> Iterator[RunFolder]:
    """Open the store of a request for reading; it has no rows if there is none."""
    with with_rerun_hint(request, results):
        yield open_store(locate_folder(results, request))


def open_store(folder: Path) -> RunFolder:
    """Open the store in a folder of results; it has no rows if there is none."""
    return legacy.read_store(folder) if legacy.has_store(folder) else _open_current_store(folder)


def _open_current_store(folder: Path) -> RunFolder:
    # Without the pack, which has those of published rows: one that is missing is made again.
    posteriors = PosteriorFiles(folder / "posteriors", reads_pack=False)
    return RunFolder(folder / STORE, posteriors=posteriors)


def has_store(folder: Path) -> bool:
    """Return whether a folder of results has a store."""
    return (folder / STORE).exists() or legacy.has_store(folder)


def has_published_rows(folder: Path) -> bool:
    """Return whether a folder of results has published rows."""
    is_published = folder.name != STORE and (folder / ROWS).exists()
    return is_published or legacy.has_published_rows(folder)


def open_published(folder: Path) -> RunFolder:
    """Open the published rows in a folder of results."""
    if legacy.has_published_rows(folder):
        return legacy.read_published(folder)
    digests: dict[str, str] = {}
    # a run that has a store writes the rows anew, and may have been stopped in between
    if not has_store(folder):
        with suppress(InputError):  # a damaged provenance, without which the rows are shown
            digests = read_provenance(folder).get("files", {})
    # The pack alone: it is checked for families of others' code, which their reader did not name.
    posteriors = PosteriorFiles(folder / "posteriors", reads_files=False)
    return RunFolder(folder, digests, posteriors)


def read_provenance(folder: Path) -> dict[str, Any]:
    """Read where published rows came from; empty if nothing says so.

    `InputError` if the file is damaged.
    """
    if legacy.has_published_rows(folder):
        return legacy.read_provenance(folder)
    path = folder / PROVENANCE
    if not path.exists():
        return {}
    try:
        content = parse_json(path.read_text("utf-8"))
        if not isinstance(content, dict) or not all(
            isinstance(content.get(name, {}), dict) for name in _MAPPINGS
        ):
            raise ValueError("it does not say what rows were made with")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} ({error}); remove it and run again") from None
    return content


def back_up_and_clear(run_folder: RunFolder, cell_keys: Sequence[CellKey]) -> Path | None:
    """Copy the rows, then remove those of cells; return the path of the copy.

    None if the cells have no rows.
    """
    if not any(run_folder.find_fit_hash(cell_key) for cell_key in cell_keys):
        return None
    copy = run_folder.path.with_name(f"{STORE}-{time.strftime('%Y%m%dT%H%M%S')}.parquet")
    try:
        run_folder.compact()
        # before anything is removed: a full disk costs no rows
        shutil.copy2(run_folder.path / ROWS, copy)
    except OSError as error:
        raise InputError(
            f"cannot copy {run_folder.path}: {error.strerror}; nothing was changed"
        ) from None
    run_folder.forget(cell_keys)
    return copy
