"""Draws on disk, by the content of what was sampled.

A reference is two files in ``references`` of the data directory: ``<key>.npy``, the draws (C, S, D) as float64,
and ``<key>.json``, with what was sampled, the rules, the certificate, and digests of the draws and of all that.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.errors import InputError
from bdl.references.certificate import RULES, Certificate, certify
from bdl.references.mcmc import Regression, Settings, sample

_FORMAT = 1
"""Part of every key; a change of the sampled model or of the files raises it."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """What is sampled, and how."""

    regression: Regression
    settings: Settings

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) over data, likelihood, prior and sampler settings."""
        content = hashlib.sha256(f"{_FORMAT}{self.regression.x.shape}{self._noise}".encode())
        for values in (self.regression.x, self.regression.y, self.regression.prior_precision):
            content.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
        content.update(json.dumps(asdict(self.settings), sort_keys=True).encode())
        return content.hexdigest()

    def about(self) -> dict[str, Any]:
        """Describe the problem: what the info file says of it."""
        rows, dim = self.regression.x.shape
        precisions = sorted(set(self.regression.prior_precision.tolist()))
        return {
            "likelihood": "bernoulli" if self.regression.noise_precision is None else "gaussian",
            "rows": rows,
            "parameters": dim,
            "prior_precision": precisions,
            "noise_precision": self.regression.noise_precision,
            "settings": asdict(self.settings),
        }

    @property
    def _noise(self) -> str:
        return repr(self.regression.noise_precision)


class Sampled(NamedTuple):
    """Draws that were admitted."""

    theta: NDArray[np.float64]
    """(C, S, D)."""
    certificate: Certificate


State = Literal["ready", "missing", "corrupt"]


def files(recipe: Recipe) -> tuple[Path, Path]:
    """Return where the draws and the info of a recipe lie."""
    folder = Path(os.environ.get("BDL_DATA_DIR") or "data").expanduser() / "references"
    return folder / f"{recipe.key}.npy", folder / f"{recipe.key}.json"


def state(recipe: Recipe) -> State:
    """Return whether a recipe's draws are there and right."""
    if not all(path.exists() for path in files(recipe)):
        return "missing"
    try:
        read(recipe)
    except InputError:
        return "corrupt"
    return "ready"


def obtain(recipe: Recipe) -> Sampled:
    """Read the draws of a recipe; sample, certify and keep them first if they are missing.

    Raises
    ------
    InputError
        If a rule is broken (nothing is kept then), the files are corrupt or cannot be written, or the extra
        ``mcmc`` is not installed.
    """
    if not all(path.exists() for path in files(recipe)):
        write(recipe)
    return read(recipe)


def write(recipe: Recipe) -> Certificate:
    """Sample, certify, and replace what is kept; raises as `obtain`."""
    draws = sample(recipe.regression, recipe.settings)
    certificate = certify(draws).admit()
    place, info = files(recipe)
    content = {
        "key": recipe.key,
        **recipe.about(),
        "rules": [f"{rule.number}. {rule.statistic} {rule.relation} {rule.limit:g}, every {rule.of}" for rule in RULES],
        "draws_sha256": _draws_digest(draws.theta),
        "certificate": json.loads(certificate.to_json()),
    }
    content["sha256"] = _digest(content)
    _replace(place, lambda file: np.save(file, draws.theta))
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    _replace(info, lambda file: file.write(f"{{\n{text}\n}}\n".encode()))
    return certificate


def read(recipe: Recipe) -> Sampled:
    """Read and verify the draws of a recipe.

    Raises
    ------
    InputError
        If a file is missing, truncated or edited.
    """
    place, info = files(recipe)
    stamps = tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in (place, info))
    return _read(place, info, stamps)


@lru_cache(maxsize=2)  # the replicates of a benchmark ask for the same draws, up to hundreds of megabytes
def _read(place: Path, info: Path, stamps: tuple[int, ...]) -> Sampled:
    try:
        content = json.loads(info.read_text("utf-8"))
        certificate = Certificate.from_json(json.dumps(content["certificate"]))
        theta = np.load(place, allow_pickle=False)
        if content.pop("sha256") != _digest(content) or _draws_digest(theta) != content["draws_sha256"]:
            raise ValueError("a checksum differs")
    except Exception as error:  # a changed byte can break the readers in any way
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            f"corrupt reference {place} ({reason}); delete it, and it is sampled again when it is needed"
        ) from None
    return Sampled(theta, certificate.admit())


def _draws_digest(theta: NDArray[np.float64]) -> str:
    return hashlib.sha256(np.ascontiguousarray(theta, dtype="<f8").data).hexdigest()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _replace(path: Path, save: Callable[[IO[bytes]], object]) -> None:
    """Write a file that appears whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as file:
            save(file)
        Path(file.name).replace(path)
    except OSError as error:
        raise InputError(
            f"cannot write {path} ({error.strerror}); set BDL_DATA_DIR to a folder you can write to"
        ) from None
