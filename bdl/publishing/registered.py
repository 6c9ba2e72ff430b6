"""Whether the spec of a bundle was in the repository before the bundle was: pre-registration, as git knows it."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bdl.errors import InputError
from bdl.publishing.bundle import Bundle
from bdl.publishing.foreign import Readable, readable
from bdl.publishing.provenance import git
from bdl.publishing.submitting import public
from bdl.spec.loading import fields_of
from bdl.spec.values import overlay, parse_yaml

_PARTS = ("model", "prior", "method", "training", "record")
"""Fields of an entry that `readable` leaves out where a part is from outside."""


class Registered(NamedTuple):
    """What the history says of a bundle."""

    commit: str | None
    """The last commit without the bundle that brought a file with its spec; None without the mark."""
    why: str
    """Why it has no mark; empty if it has."""


def registered(path: Path) -> Registered:
    """Look for the spec of a bundle in the commits before the one that adds it.

    A file ``<name of the benchmark>.yaml``, in any folder of the bundle's repository, has to say what the bundle was
    made with: the same settings in the same order, in which searches draw, under the bundle's profile and with defaults
    filled in, titles, notes and claims aside. Of parts from outside of this package, which are not imported, the
    settings that the file has are compared. A bundle that is not committed yet counts as added after the last commit.

    Parameters
    ----------
    path
        The bundle.

    Raises
    ------
    InputError
        If it is no bundle.
    """
    with Bundle(path) as bundle:
        made = bundle.run().made
    name, folder = readable(made).variant.benchmark.name, path.resolve().parent
    try:
        if git(folder, "rev-parse", "--is-shallow-repository") == "true":
            return Registered(None, "this clone is shallow: git fetch --unshallow")
        added = git(folder, "log", "--topo-order", "--diff-filter=A", "--format=%H", "--", path.name).split()
        before = f"{added[-1]}^@" if added else "HEAD"
        if git(folder, "rev-parse", before):  # nothing comes before the first commit
            for commit, text in _versions(folder, before, name):
                if _says(text, made):
                    return Registered(commit, "")
    except (OSError, subprocess.SubprocessError):
        return Registered(None, "there is no git history here")
    return Registered(None, f"no commit before it has a {name}.yaml with its spec")


def _versions(folder: Path, before: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the versions of a benchmark's file up to some commits, with the commit of each, the last first."""
    told = ("--format=%H", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=AM")
    commit = ""
    for line in git(folder, "log", *told, before, "--", f":(top,glob)**/{name}.yaml").splitlines():
        if line.startswith(":"):
            yield commit, git(folder, "cat-file", "blob", line.split()[3])
        else:
            commit = line or commit


def _says(text: str, made: Mapping[str, Any]) -> bool:
    """Return whether a file says what a bundle was made with."""
    try:
        content = public(parse_yaml(text, "the file"))
        profile = made["spec"]["profile"]
        if changes := {"paper": {}, **content.pop("profiles", {})}[profile]:
            content = overlay(content, changes, fields_of(_read(content, "paper").variant.benchmark))
        (own, foreign), (theirs, _) = _read(content, profile), readable(made)
        alike = own.benchmark.model_dump_json() == theirs.benchmark.model_dump_json()
        return alike and all(
            _holds(made["spec"]["entries"][name], own.benchmark.entries[name].dump(), content["entries"][name])
            for name in foreign
        )
    except (InputError, LookupError, TypeError, AttributeError):  # whatever the file is
        return False


def _read(content: Mapping[str, Any], profile: str) -> Readable:
    return readable({"spec": {**content, "profile": profile}, "overrides": {}, "narrowed_to": None})


def _holds(whole: Mapping[str, Any], read: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether an entry has the settings that a file gives its parts; what it is scored by has been compared."""
    parts = {**read, **{name: given[name] for name in _PARTS if name in given}}
    return whole["by_dataset"] == given.get("by_dataset", {}) and all(
        _within(parts[name], whole[name]) for name in _PARTS
    )


def _within(given: Any, whole: Any) -> bool:
    """Return whether settings are among others, which have the defaults as well."""
    if isinstance(given, Mapping) and isinstance(whole, Mapping):
        return all(name in whole and _within(value, whole[name]) for name, value in given.items())
    return bool(given == whole)
