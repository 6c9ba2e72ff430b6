"""What a reference posterior is, and its draws on disk, by the content of what was sampled.

A reference is two files in ``references`` of the data directory: ``<key>.npy``, the draws (C, S,
D) as float64, and ``<key>.json``, with what was sampled, the rules, the certificate, and digests
of the draws and of all that.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bdl.data.files import data_directory, write_data_file
from bdl.errors import InputError, parse_json
from bdl.models.problem import Hyper, Problem
from bdl.references.certificate import DrawQuality


class Truth(NamedTuple):
    """The posterior that approximations are held against, float64."""

    mean: Tensor
    """Mean of all parameters, (D,); empty where the posterior is known as functions only, by its
    chains.
    """
    covariance: Tensor
    """Covariance of the first d parameters, (d, d); d is below D where the reference knows no
    more.
    """
    hyper: Mapping[str, float]
    """Hyper-parameters that the reference estimated; methods may ask for them."""
    chains: Tensor | None = None
    """Draws that mean and covariance come from, (C, S, D) with an even C; None where they are
    exact.
    """
    log_density: Callable[[Tensor], Tensor] | None = None
    """Log-density of parameters up to a constant, (m, D) -> (m,), nats; None where the mean and
    covariance say all.
    """
    chains_agree: bool = True
    """Whether the chains are one sample, long enough for standard errors
    (`bdl.references.certificate.DrawQuality.supports_errors`).
    """


class Reference(ABC):
    """Finds the truth; a frozen dataclass whose fields are its YAML settings."""

    estimates: ClassVar[tuple[str, ...]] = ()
    """Names of the hyper-parameters that it estimates; the others are given to it."""
    of_functions: ClassVar[bool] = False
    """Whether it knows functions only: `fit` and `recipe` are then given the test rows, inputs
    and targets, as well.
    """

    @abstractmethod
    def check(self, problem: Problem) -> None:
        """Raise `InputError` if it cannot know the posterior of such a problem."""

    @abstractmethod
    def fit(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> Truth:
        """Find the posterior of training data as the model sees them, float64, (n, d), (n,)."""

    def recipe(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> "Recipe | None":
        """Describe what `fit` would sample, for the same arguments; None if it samples nothing."""
        return None

    def evidence(self, problem: Problem, x: Tensor, y: Tensor, hyper: Hyper) -> list[str]:
        """Describe by which numbers the result of `fit`, for the same arguments, is known to be
        right: one a line.
        """
        return []


class Recipe(Protocol):
    """A posterior to sample: its problem, the sampler's settings, and the certificate."""

    certificate: ClassVar[type[DrawQuality]]
    """Kind of its certificate."""

    @property
    def key(self) -> str:
        """SHA-256 (hex) over all that the draws are made of."""

    def describe(self) -> dict[str, Any]:
        """Describe the problem: what the info file says of it.

        ``rows``, ``parameters`` and ``settings`` at least.
        """

    def sample(self) -> "JudgedDraws":
        """Sample and judge; raise `InputError` if draws that break a rule are not to be kept."""


class JudgedDraws(NamedTuple):
    """Draws, and what is known of them."""

    theta: NDArray[np.float64]
    """(C, S, D)."""
    certificate: DrawQuality


State = Literal["ready", "missing", "corrupt"]


def locate_files(recipe: Recipe) -> tuple[Path, Path]:
    """Return where the draws and the info of a recipe lie."""
    folder = data_directory() / "references"
    return folder / f"{recipe.key}.npy", folder / f"{recipe.key}.json"


def check_files(recipe: Recipe) -> State:
    """Return whether a recipe's draws are there and right."""
    if not all(path.exists() for path in locate_files(recipe)):
        return "missing"
    try:
        load_draws(recipe)
    except InputError:
        return "corrupt"
    return "ready"


def load_or_sample(recipe: Recipe) -> JudgedDraws:
    """Read the draws of a recipe; sample, certify and keep them first if they are missing.

    `InputError` if the recipe keeps no draws that break a rule and they do, the files are corrupt
    or cannot be written, or the extra ``mcmc`` is not installed.
    """
    if not all(path.exists() for path in locate_files(recipe)):
        sample_and_store(recipe)
    return load_draws(recipe)


def sample_and_store(recipe: Recipe) -> DrawQuality:
    """Sample, certify, and replace what is kept; raises as `load_or_sample`."""
    theta, certificate = recipe.sample()
    draws_path, info_path = locate_files(recipe)
    content = {
        "key": recipe.key,
        **recipe.describe(),
        "rules": [str(rule) for rule in certificate.rules],
        "draws_sha256": _draws_digest(theta),
        "certificate": asdict(certificate),
    }
    content["sha256"] = _digest(content)
    # the draws first: the info, whose digest is that of the draws, makes them a reference
    with write_data_file(draws_path) as new_path:
        np.save(new_path, theta)
    text = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()
    )
    with write_data_file(info_path) as new_path:
        new_path.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    return certificate


def load_draws(recipe: Recipe) -> JudgedDraws:
    """Read and verify the draws of a recipe.

    `InputError` if a file is missing, truncated or edited.
    """
    draws_path, info_path = locate_files(recipe)
    # part of the key of the cache: files that were sampled again are read again
    stamps = tuple(
        path.stat().st_mtime_ns if path.exists() else 0 for path in (draws_path, info_path)
    )
    return _load_verified(draws_path, info_path, stamps, recipe.certificate.read)


@lru_cache(
    maxsize=2
)  # the replicates of a benchmark ask for the same draws, up to hundreds of megabytes
def _load_verified(
    draws_path: Path,
    info_path: Path,
    stamps: tuple[int, ...],
    parse: Callable[[object], DrawQuality],
) -> JudgedDraws:
    try:
        content = parse_json(info_path.read_text("utf-8"))
        certificate = parse(content["certificate"])
        # a pickle in a downloaded file would run its code
        theta = np.load(draws_path, allow_pickle=False)
        if content["key"] != info_path.stem:
            raise ValueError("it is of another recipe")
        if (
            content.pop("sha256") != _digest(content)
            or _draws_digest(theta) != content["draws_sha256"]
        ):
            raise ValueError("a checksum differs")
    except Exception as error:  # a changed byte can break the readers in any way
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            f"corrupt reference {draws_path} ({reason}); delete it, and it is sampled "
            "again when it is needed"
        ) from None
    return JudgedDraws(theta, certificate)


def _draws_digest(theta: NDArray[np.float64]) -> str:
    return hashlib.sha256(np.ascontiguousarray(theta, dtype="<f8").data).hexdigest()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
