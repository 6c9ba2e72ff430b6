"""Posteriors that travel with published rows, in one compressed file.

With them, a score that is added later needs no training. ``posteriors.zip`` has the artefacts of
final fits as the store keeps them, equal ones once, and ``index.json``, which names them by cell
and split. The provenance beside it has its digest. Large posteriors stay in the store: they are
full matrices, of methods such as Laplace's that compute them in seconds.
"""

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from bdl.errors import InputError, parse_json
from bdl.files import write_atomically
from bdl.plan import Task
from bdl.records import posterior_files
from bdl.records.posterior_files import DamagedPosterior
from bdl.records.run_folder import RunFolder

POSTERIORS = "posteriors.zip"
MAX_BYTES = 5 * 10**6
"""Bytes of the file; larger ones are not written."""
MAX_POSTERIOR_BYTES = 500 * 10**3
"""Bytes of the artefact of a posterior; larger ones are left out of the file."""

_MAX_COMPRESSION = 2
"""Largest ratio of artefacts to `MAX_BYTES` at which packing is tried: half of their bytes may be
zeros.
"""
_INDEX = "index.json"
_MEMBER_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of all members: equal posteriors give equal bytes."""

PosteriorFiles = Mapping[str, Mapping[int, bytes]]
"""Artefacts by the label of the cell and the split."""


def load_stored_posteriors(tasks: Sequence[Task], store: RunFolder) -> PosteriorFiles:
    """Load the artefacts of the final fits of tasks that are small enough to travel.

    None if they are far too large together.
    `DamagedPosterior` if one of them is missing or not what was written; all of these are noticed
    by the next run.
    """
    digests: dict[str, dict[int, str]] = {}
    sizes: dict[str, int] = {}
    for task in tasks:
        digests[task.label] = {}
        for split, _, name in store.list_artefacts(task.key):
            if name:
                digests[task.label][split] = name
                sizes[name] = artefacts.measure_posterior_file(store.posteriors, name)
    small = [name for name, size in sizes.items() if size <= MAX_POSTERIOR_BYTES]
    # before they are read: a store may have gigabytes of them
    if sum(sizes[name] for name in small) > _MAX_COMPRESSION * MAX_BYTES:
        return {}
    contents, errors = dict[str, bytes](), list[DamagedPosterior]()
    for name in small:
        try:
            contents[name] = store.posteriors.read_bytes(name)
        except DamagedPosterior as error:
            errors.append(error)  # the others are read on, so that all damaged ones are renamed
    if errors:
        raise errors[0]
    by_cell: dict[str, dict[int, bytes]] = {}
    for label, by_split in digests.items():
        for split, name in by_split.items():
            if name in contents:
                by_cell.setdefault(label, {})[split] = contents[name]
    return by_cell


def write_posteriors(contents: PosteriorFiles, folder: Path) -> dict[str, str] | None:
    """Write the small posteriors of this package's families to one archive, all or nothing.

    A family that is not of this package's does not travel: reading it would run code that came
    with the file. Return the entry of the provenance that `read_posteriors` checks; None, and no
    file, if no posterior travels.
    """
    path = folder / POSTERIORS
    contents_to_write: dict[str, dict[int, bytes]] = {}
    for label, by_split in contents.items():
        contents_to_write[label] = {}
        for split, content in by_split.items():
            family = posterior_files.read_family(content)
            if len(content) <= MAX_POSTERIOR_BYTES and _is_shipped_family(family):
                contents_to_write[label][split] = content
    if any(contents_to_write.values()):
        packed = _pack_archive(contents_to_write)
        if len(packed) <= MAX_BYTES:
            with write_atomically(path) as new_path:
                new_path.write_bytes(packed)
            return {"sha256": sha256(packed).hexdigest()}
    # The archive of an earlier run is not of these rows.
    path.unlink(missing_ok=True)
    return None


def read_posteriors(folder: Path, provenance: Mapping[str, Any]) -> PosteriorFiles:
    """Read the posteriors that travel with published rows; none where there is no archive.

    `InputError` if the archive is damaged or of other rows.
    """
    path = folder / POSTERIORS
    if not (provenance.get("posteriors") and path.is_file()):
        return {}
    if not is_archive_whole(folder, provenance):
        refusal = (
            f"{path} is damaged or of other rows: its SHA-256 is not the one in provenance.json"
        )
        raise InputError(f"{refusal}; restore it, or remove it and its fits are made again")
    try:
        contents = _read_archive(path)
        families: set[str] = set()
        for by_split in contents.values():
            families.update(map(posterior_files.read_family, by_split.values()))
    except (BadZipFile, LookupError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error!r}): remove it") from None
    if foreign := sorted(family for family in families if not _is_shipped_family(family)):
        raise InputError(
            f"{path} has posteriors of a family that is not of this package, {foreign[0]}: "
            "remove it"
        )
    return contents


def _read_archive(path: Path) -> PosteriorFiles:
    """Read the posteriors of each cell and split.

    Equal posteriors are one file of the archive.
    """
    with ZipFile(path) as file:
        # Asked before anything is unpacked: a small file may unpack to more than the memory.
        unpacked = sum(entry.file_size for entry in file.infolist())
        if unpacked > 2 * _MAX_COMPRESSION * MAX_BYTES:  # artefacts have headers as well
            raise InputError(f"{path} unpacks to {unpacked / 1e6:,.0f} MB: remove it")
        index: dict[str, dict[str, str]] = parse_json(file.read(_INDEX))
        contents: dict[str, dict[int, bytes]] = {}
        contents_by_name: dict[str, bytes] = {}
        for label, by_split in index.items():
            contents[label] = {}
            for split, name in by_split.items():
                if name not in contents_by_name:
                    contents_by_name[name] = file.read(name)
                contents[label][int(split)] = contents_by_name[name]
    return contents


def is_archive_whole(folder: Path, provenance: Mapping[str, Any]) -> bool:
    """Return whether the archive that the provenance names is there and whole.

    If it names none, return whether there is none.
    """
    path, recorded = folder / POSTERIORS, provenance.get("posteriors")
    try:
        return sha256(path.read_bytes()).hexdigest() == (recorded or {}).get("sha256")
    except FileNotFoundError:
        return recorded is None and "posteriors" in provenance


def _pack_archive(contents: PosteriorFiles) -> bytes:
    index, named = dict[str, dict[int, str]](), dict[str, bytes]()
    for label, by_split in contents.items():
        index[label] = {}
        for split, content in by_split.items():
            name = f"{sha256(content).hexdigest()}.safetensors"
            index[label][split] = name
            named[name] = content  # equal posteriors, as of deterministic methods, are one member
    buffer = BytesIO()
    with ZipFile(buffer, "w") as file:
        for name, content in {_INDEX: json.dumps(index, indent=1).encode(), **named}.items():
            file.writestr(ZipInfo(name, _MEMBER_TIME), content, ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def _is_shipped_family(family: str) -> bool:
    """Return whether a family is registered, or a class of this package."""
    return ":" not in family or re.fullmatch(r"bdl(\.\w+)+:\w+", family) is not None
