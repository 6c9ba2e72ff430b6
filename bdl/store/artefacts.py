"""Posteriors on disk, addressed by the SHA-256 of their file.

Here are also the errors of stored fits that have to be made again.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from bdl.errors import InputError, parse_json
from bdl.files import write_atomically
from bdl.spec import Request

if TYPE_CHECKING:
    from torch import Tensor

    from bdl.posteriors import Posterior


class UnusableFits(InputError):
    """Stored fits are not those of the request; an option of `bdl-bench run` starts them anew."""

    def __init__(self, refusal: str, option: str) -> None:
        super().__init__(f"{refusal}; start anew with {option}")
        self.refusal, self.option = refusal, option


class DamagedPosterior(InputError):
    """The file of a posterior is missing or damaged."""

    def __init__(self, refusal: str) -> None:
        super().__init__(f"{refusal}; run again, which makes this fit alone")
        self.refusal = refusal


@contextmanager
def with_rerun_hint(request: Request, results: Path) -> Iterator[None]:
    """Let a refusal of stored fits end in the command of this request that starts them anew."""
    try:
        yield
    except UnusableFits as error:
        command = request.format_command("run", results, error.option)
        raise InputError(
            f"{error.refusal}; start anew, with a copy of the store, by: {command}"
        ) from None
    except DamagedPosterior as error:
        command = request.format_command("run", results)
        raise InputError(
            f"{error.refusal}; this makes its fit again, and no other: {command}"
        ) from None


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


def write_posterior(folder: Path, content: bytes) -> str:
    """Store what `encode_posterior` returned, whole or not at all, also after a power cut.

    Its name, SHA-256 (hex) of the content, is returned. A file that has the content already is
    left alone. `InputError` if the folder is not writable.
    """
    sha = sha256(content).hexdigest()
    path = _locate_file(folder, sha)
    try:
        # compared by content, not by name alone: a damaged file is written anew
        if not (path.is_file() and path.read_bytes() == content):
            with write_atomically(path) as new_path:
                new_path.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose another --results"
        ) from None
    return sha


def read_posterior(folder: Path, sha: str) -> "tuple[Posterior, dict[str, Tensor]]":
    """Read the posterior and the buffers of an artefact, on the CPU.

    Errors as in `read_posterior_bytes`.
    """
    file_content = read_posterior_bytes(folder, sha)
    try:
        return decode_posterior(file_content)
    except SafetensorError as error:
        raise DamagedPosterior(f"{_locate_file(folder, sha)} is no posterior ({error})") from None


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


def read_posterior_bytes(folder: Path, sha: str) -> bytes:
    """Read the content of an artefact.

    `DamagedPosterior` if it is missing, or is not what was written; it is then renamed, so that
    the next run finds it missing, whatever its size.
    """
    path = _locate_file(folder, sha)
    try:
        file_content = path.read_bytes()
    except OSError as error:
        raise DamagedPosterior(f"cannot read {path}: {error.strerror}") from None
    if sha256(file_content).hexdigest() != sha:
        with suppress(OSError):  # a reader may not be allowed to
            path.replace(path.with_suffix(".damaged"))
        raise DamagedPosterior(f"{path} is damaged")
    return file_content


def measure_posterior_file(folder: Path, sha: str) -> int:
    """Return the bytes of an artefact; raise `DamagedPosterior` if it is missing."""
    path = _locate_file(folder, sha)
    try:
        return path.stat().st_size
    except OSError as error:
        raise DamagedPosterior(f"cannot read {path}: {error.strerror}") from None


def is_whole(folder: Path, sha: str) -> bool:
    """Return whether the file of an artefact has the size that its header states.

    Its digest is not computed.
    """
    path = _locate_file(folder, sha)
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            # the length of a damaged file may be any number: no more is read than there is
            header = parse_json(file.read(min(length, path.stat().st_size)))
        ends = [
            tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"
        ]
        return bool(path.stat().st_size == _LENGTH_BYTES + length + max(ends, default=0))
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
    ):  # what another file's bytes may raise
        return False


def _locate_file(folder: Path, sha: str) -> Path:
    return folder / f"{sha}.safetensors"


def _select_by_prefix(tensors: "Mapping[str, Tensor]", prefix: str) -> "dict[str, Tensor]":
    selected: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.startswith(prefix):
            selected[name.removeprefix(prefix)] = value
    return selected
