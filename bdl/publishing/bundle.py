"""A bundle, which is what is handed in of a run: one zip file with the spec, the final rows, and their predictions.

``run.json`` has all but the predictions, which are a safetensors file for each fit;
``manifest.json`` has the SHA-256 of each of them.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from pydantic import FiniteFloat, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from bdl.archive.frames import replacing
from bdl.errors import InputError
from bdl.posteriors.predictive import Answer, MeanVariance, Outputs, Probabilities
from bdl.spec.fields import Index, Items, Settings, canonical, explain

MANIFEST, RUN = "manifest.json", "run.json"
RUNTIME = "runtime"
"""Score that every row has, whatever the benchmark lists."""

_FORMAT = 1
"""Of the content; a bundle of another format is refused."""
_ANSWERS: tuple[type[Answer], ...] = (MeanVariance, Outputs, Probabilities)
_MEAN = "at_mean"


class Given(NamedTuple):
    """What a fit predicts at the test rows."""

    samples: Answer
    """By posterior samples, with the numbers of the rows."""
    mean: Tensor | None
    """Outputs of the model by the posterior's mean, (1, n, d_out), in its own units; None without
    parameters.
    """


class BundledRow(Settings):
    """Final row of a split."""

    split: Index
    """Number of the split."""
    status: Literal["ok", "failed"]
    """Whether the fit succeeded."""
    reason: str | None
    """Why it failed, or which scores could not be computed, and why."""
    hyper: dict[str, FiniteFloat]
    """Hyper-parameters, original units."""
    scores: Mapping[str, FiniteFloat | None]
    """Values by metric; None for one that is not finite or could not be computed."""
    seconds: FiniteFloat
    """What the fit took."""


class BundledCell(Settings):
    """Rows of an entry on a data set at a point of the sweep, and what identifies its fits."""

    dataset: str
    """Label of the data set."""
    entry: str
    """Name of the entry."""
    point: str
    """Values of the sweep's axes as canonical JSON."""
    fit_hash: str
    """Hash of the part of the spec, the data and the versions that decide the fits, SHA-256
    (hex).
    """
    data: str
    """Checksum of the data."""
    versions: Mapping[str, Index | Mapping[str, Index]]
    """Versions of the components."""
    rows: Items[BundledRow]
    """By split."""


class BundledRun(Settings):
    """All of a bundle but the predictions."""

    made: Mapping[str, Any]
    """Spec, overrides and part, as `bdl.spec.Variant.dump` gives them."""
    environment: Mapping[str, Any]
    """Commit, packages, Python and machine."""
    cells: Items[BundledCell]
    """In table order."""


def member(cell: int, split: int) -> str:
    """Name the file of a fit's predictions; the cell by its place in the run."""
    return f"predictions/{cell}-{split}.safetensors"


def encode(given: Given) -> bytes:
    """Return predictions in the safetensors format."""
    tensors = given.samples._asdict() | ({} if given.mean is None else {_MEAN: given.mean})
    return save({name: value.contiguous() for name, value in tensors.items()})


def decode(content: bytes) -> Given:
    """Read what `encode` gave; `InputError` if it is something else."""
    try:
        tensors = load(content)
    except SafetensorError:
        raise InputError("its predictions are damaged") from None
    mean = tensors.pop(_MEAN, None)
    for kind in _ANSWERS:
        # NamedTuples, which Answer is not
        if set(tensors) == set(getattr(kind, "_fields")):  # noqa: B009
            return Given(kind(**tensors), mean)
    raise InputError(
        f"its predictions have the fields {', '.join(sorted(tensors))}, which no answer has"
    )


def write(path: Path, members: Iterable[tuple[str, bytes]]) -> None:
    """Write a bundle, all of it or nothing; equal members give equal bytes.

    `InputError` if it cannot be written.
    """
    sums = dict[str, str]()
    try:
        with replacing(path) as new, ZipFile(new, "w") as file:
            for name, content in members:
                sums[name] = sha256(content).hexdigest()
                file.writestr(ZipInfo(name), content, ZIP_DEFLATED)
            file.writestr(
                ZipInfo(MANIFEST), canonical({"format": _FORMAT, "members": sums}), ZIP_DEFLATED
            )
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; choose another --output"
        ) from None


class Bundle:
    """A bundle that is read; a ``with`` block closes it.

    `InputError` if it is none, or not all of it is there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = ZipFile(path)
        except (OSError, BadZipFile) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no zip file, or damaged"
            raise InputError(
                f"cannot read {path}: {why}; bdl-bench submit makes bundles"
            ) from None
        try:
            self._sums = self._listed()
        except InputError as error:
            self._file.close()
            raise InputError(f"{path}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def members(self) -> set[str]:
        """Names of the files, without the manifest."""
        return set(self._sums)

    def content(self, name: str) -> bytes:
        """Read a file; `InputError` if it is not there, damaged, or not the one of the manifest."""
        if name not in self._sums:
            raise InputError(f"{name} is missing")
        found = self._read(name)
        if sha256(found).hexdigest() != self._sums[name]:
            raise InputError(f"{name} has changed: its SHA-256 is not that of {MANIFEST}")
        return found

    def run(self) -> BundledRun:
        """Read all but the predictions; errors as in `content`, or if it is something else."""
        try:
            return BundledRun.model_validate_json(self.content(RUN))
        except ValidationError as error:
            raise InputError(f"{RUN} is damaged: {explain(error)}") from None

    def _listed(self) -> dict[str, str]:
        try:
            found = json.loads(self._read(MANIFEST))
            form, sums = (
                found["format"],
                {str(name): str(digest) for name, digest in found["members"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError("it is no bundle: bdl-bench submit makes one") from None
        if form != _FORMAT:
            raise InputError(
                "it was made by another version of bdl-bench: make it again with this one"
            )
        names, listed = self._file.namelist(), [*sums, MANIFEST]
        if sorted(names) != sorted(listed):
            odd = sorted({*names} ^ {*listed}) or ["a file that comes twice"]
            raise InputError(f"{odd[0]} is in the zip file or in {MANIFEST}, and not in both")
        return sums

    def _read(self, name: str) -> bytes:
        try:
            return self._file.read(name)
        except (
            BadZipFile,
            zlib.error,
            EOFError,
            RuntimeError,
            NotImplementedError,
        ):  # what damaged bytes may raise
            raise InputError(f"{name} is damaged") from None
