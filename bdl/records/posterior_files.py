"""Posteriors on disk by the SHA-256 of their content: a file each, or one compressed pack.

With the pack of a published folder, a score that is added later needs no training. Large
posteriors stay out of it: they are full matrices, of methods such as Laplace's that compute them
in seconds.
"""

import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from safetensors import SafetensorError

from bdl.errors import InputError, parse_json
from bdl.files import refuse_failed_writes, write_atomically
from bdl.records.unusable_fits import DamagedPosterior

if TYPE_CHECKING:
    from torch import Tensor

    from bdl.posteriors import Posterior


_POSTERIOR, _BUFFERS = "posterior.", "buffers."
_LENGTH_BYTES = 8
"""Bytes of the number that a file begins with, the length of its header."""


def encode_posterior(posterior: "Posterior", buffers: "Mapping[str, Tensor]") -> bytes:
    """Return the content of an artefact, in the safetensors format.

    Equal tensors give equal bytes.

    The posterior is of any family, on any device, in any type of numbers, and all digits are kept;
    buffers are running statistics of its model by name. `InputError` if the posterior is not a
    NamedTuple of tensors.
    """
    # with PyTorch, which those do without who read rows alone
    import torch
    from safetensors.torch import save

    from bdl.posteriors import to_tensors

    family, fields = to_tensors(posterior)
    named = {_POSTERIOR + name: value for name, value in fields.items()}
    named |= {_BUFFERS + name: value for name, value in buffers.items()}
    # A copy each, since the format takes no tensors that share memory; one key only, since it does
    # not order them.
    copies = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in named.items()
    }
    return save(copies, metadata={"family": family})


def decode_posterior(content: bytes) -> "tuple[Posterior, dict[str, Tensor]]":
    """Return what `encode_posterior` was given, on the CPU."""
    from safetensors.torch import load  # as in `encode_posterior`

    from bdl.posteriors import from_tensors

    tensors = load(content)
    return from_tensors(
        read_family(content), _select_by_prefix(tensors, _POSTERIOR)
    ), _select_by_prefix(tensors, _BUFFERS)


def read_family(content: bytes) -> str:
    """Read the name of the posterior's family in what `encode_posterior` returned.

    The file begins with a little-endian length and a header in JSON.
    """
    header = parse_json(
        content[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")]
    )
    name: str = header["__metadata__"]["family"]
    return name


MAX_PACK_BYTES = 5 * 10**6
"""Bytes of a pack; larger ones are not written."""
MAX_POSTERIOR_BYTES = 500 * 10**3
"""Bytes of a posterior in a pack; larger ones are left out."""
_MAX_COMPRESSION = 2
"""Largest ratio of posteriors to `MAX_PACK_BYTES` at which packing is tried: half of their bytes
may be zeros.
"""
_MEMBER_TIME = (1980, 1, 1, 0, 0, 0)
"""Time of all members: equal posteriors give equal bytes."""


class PosteriorFiles:
    """Posteriors in a folder, a file each, or in the pack beside it, ``<folder>.zip``.

    An artefact is named by the SHA-256 (hex) of its content, which `encode_posterior` returns.
    `reads_files` and `reads_pack` say which of the two are read.
    """

    def __init__(self, folder: Path, *, reads_files: bool = True, reads_pack: bool = True) -> None:
        self.folder, self.pack = folder, folder.with_suffix(".zip")
        self._reads_files, self._reads_pack = reads_files, reads_pack

    def write(self, content: bytes) -> str:
        """Store an artefact, whole or not at all, also after a power cut; return its digest.

        A file that has the content already is left alone. `InputError` if the folder is not
        writable.
        """
        sha = sha256(content).hexdigest()
        path = self._locate_file(sha)
        with refuse_failed_writes(self.folder):
            # compared by content, not by name alone: a damaged file is written anew
            if not (path.is_file() and path.read_bytes() == content):
                with write_atomically(path) as new_path:
                    new_path.write_bytes(content)
        return sha

    def read(self, sha: str) -> "tuple[Posterior, dict[str, Tensor]]":
        """Read the posterior and the buffers of an artefact, on the CPU.

        Errors as in `read_bytes`.
        """
        content = self.read_bytes(sha)
        try:
            return decode_posterior(content)
        except SafetensorError as error:
            path = self._locate_file(sha)
            raise DamagedPosterior(f"{path} is no posterior ({error})") from None

    def read_bytes(self, sha: str) -> bytes:
        """Read the content of an artefact.

        `DamagedPosterior` if it is missing, or is not what was written; it is then renamed, so
        that the next run finds it missing, whatever its size.
        """
        path = self._locate_file(sha)
        if not self._reads_files and sha in self._packed:
            return self._packed[sha]
        if not self._reads_files:
            raise DamagedPosterior(f"{self.pack} has no posterior {sha}")
        try:
            content = path.read_bytes()
        except OSError as error:
            if sha in self._packed:
                return self._packed[sha]
            raise DamagedPosterior(f"cannot read {path}: {error.strerror}") from None
        if sha256(content).hexdigest() != sha:
            with suppress(OSError):  # a reader may not be allowed to
                path.replace(path.with_suffix(".damaged"))
            raise DamagedPosterior(f"{path} is damaged")
        return content

    def is_whole(self, sha: str) -> bool:
        """Return whether an artefact is there, and its file has the size that its header states.

        Its digest is not computed.
        """
        path = self._locate_file(sha)
        if not self._reads_files:
            return sha in self._packed
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
                # the length of a damaged file may be any number: no more is read than there is
                header = parse_json(file.read(min(length, path.stat().st_size)))
            ends = [0]
            for name, tensor in header.items():
                if name != "__metadata__":
                    ends.append(tensor["data_offsets"][1])
            return bool(path.stat().st_size == _LENGTH_BYTES + length + max(ends))
        except FileNotFoundError:
            return sha in self._packed
        # what another file's bytes may raise
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            return False

    def choose_packable(self, shas: Iterable[str]) -> dict[str, bytes]:
        """Return the artefacts that are small enough to travel; none if all are far too large.

        A family that is not of this package's does not travel: reading it would run code that came
        with the file. `DamagedPosterior` if one of the others is missing or not what was written;
        all of these are noticed by the next run.
        """
        sizes = {sha: self._measure(sha) for sha in dict.fromkeys(shas)}
        small = [sha for sha, size in sizes.items() if size <= MAX_POSTERIOR_BYTES]
        # before they are read: a store may have gigabytes of them
        if sum(sizes[sha] for sha in small) > _MAX_COMPRESSION * MAX_PACK_BYTES:
            return {}
        contents: dict[str, bytes] = {}
        errors: list[DamagedPosterior] = []
        for sha in small:
            try:
                content = self.read_bytes(sha)
                if _is_shipped_family(read_family(content)):
                    contents[sha] = content
            except DamagedPosterior as error:
                errors.append(error)  # the others are read on: all damaged ones are renamed
        if errors:
            raise errors[0]
        return contents

    def write_pack(self, contents: Mapping[str, bytes]) -> None:
        """Write artefacts to the pack, all or nothing; no pack if there are none, or too many."""
        buffer = BytesIO()
        with ZipFile(buffer, "w") as file:
            for sha, content in contents.items():
                member = ZipInfo(self._locate_file(sha).name, _MEMBER_TIME)
                file.writestr(member, content, ZIP_DEFLATED, compresslevel=9)
        packed = buffer.getvalue()
        self.__dict__.pop("_packed", None)
        if contents and len(packed) <= MAX_PACK_BYTES:
            with write_atomically(self.pack) as new_path:
                new_path.write_bytes(packed)
        else:  # the pack of an earlier run is not of these rows
            self.pack.unlink(missing_ok=True)

    def check_pack(self) -> None:
        """Raise `InputError` if the pack is damaged."""
        _ = self._packed

    @cached_property
    def _packed(self) -> dict[str, bytes]:
        """Artefacts of the pack, none where there is no pack; `InputError` if it is damaged."""
        if not (self._reads_pack and self.pack.is_file()):
            return {}
        contents: dict[str, bytes] = {}
        remedy = "restore it, or remove it and its fits are made again"
        try:
            with ZipFile(self.pack) as file:
                # before anything is unpacked: a small file may unpack to more than the memory
                unpacked = sum(entry.file_size for entry in file.infolist())
                if unpacked > 2 * _MAX_COMPRESSION * MAX_PACK_BYTES:  # headers as well
                    raise InputError(f"{self.pack} unpacks to {unpacked / 1e6:,.0f} MB: remove it")
                for name in set(file.namelist()) - {"index.json"}:  # of before run folders
                    sha, _, suffix = name.partition(".")
                    content = file.read(name)
                    if suffix != "safetensors" or sha256(content).hexdigest() != sha:
                        raise ValueError(f"{name} is not what was written")
                    family = read_family(content)
                    if not _is_shipped_family(family):
                        raise InputError(
                            f"{self.pack} has posteriors of a family that is not of this "
                            f"package, {family}: remove it"
                        )
                    contents[sha] = content
        # what another file's bytes may raise
        except (BadZipFile, zlib.error, OSError, LookupError, ValueError, TypeError) as error:
            raise InputError(f"{self.pack} is damaged ({error}); {remedy}") from None
        return contents

    def _measure(self, sha: str) -> int:
        path = self._locate_file(sha)
        try:
            return path.stat().st_size
        except OSError as error:
            if sha in self._packed:
                return len(self._packed[sha])
            raise DamagedPosterior(f"cannot read {path}: {error.strerror}") from None

    def _locate_file(self, sha: str) -> Path:
        return self.folder / f"{sha}.safetensors"


def _is_shipped_family(family: str) -> bool:
    """Return whether a family is registered, or a class of this package."""
    return ":" not in family or re.fullmatch(r"bdl(\.\w+)+:\w+", family) is not None


def _select_by_prefix(tensors: "Mapping[str, Tensor]", prefix: str) -> "dict[str, Tensor]":
    selected: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            selected[name.removeprefix(prefix)] = value
    return selected
