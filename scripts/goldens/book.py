"""The stored digits, one file a kind: compare them, record them, and raise versions."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bdl.errors import InputError
from goldens.case import CONSTANTS, REGISTRIES, Case, Digits, moved
from goldens.catalogue import KINDS, cases

Kept = dict[str, dict[str, Any]]
COMMAND = "python scripts/golden.py"


class Finding(NamedTuple):
    """A case whose digits are not what is stored."""

    case: Case
    digits: Digits
    problem: str
    """``"missing"``, ``"stale"`` where a version went up since, or the name of what moved."""


def path(folder: Path, kind: str) -> Path:
    """Return the file of a kind."""
    return folder / f"{kind}.json"


def read(folder: Path, kind: str) -> Kept:
    """Return the stored cases of a kind by name; none where there is no file."""
    file = path(folder, kind)
    kept: Kept = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return kept


def examine(folder: Path, kind: str, owners: Iterable[str] = ()) -> list[Finding]:
    """Compute the cases of a kind, those of some owners or all, and list what differs from what is stored."""
    kept, found, wanted = read(folder, kind), list[Finding](), set(owners)
    for case in cases(kind, kept):
        if wanted and case.owner not in wanted:
            continue
        digits, stored = case.digits(), kept.get(case.name)
        if stored is None:
            found.append(Finding(case, digits, "missing"))
        elif stored["versions"] != case.versions:
            found.append(Finding(case, digits, "stale"))
        elif place := moved(stored["digits"], digits, case.tolerance):
            found.append(Finding(case, digits, place))
    return found


def gone(folder: Path, kind: str) -> list[str]:
    """List the stored cases that nothing needs."""
    kept = read(folder, kind)
    return sorted(set(kept) - {case.name for case in cases(kind, kept)})


def record(folder: Path, kind: str) -> list[Finding]:
    """Store missing and stale cases, drop those that nothing needs.

    Return those that moved, which stay as they are.
    """
    found = examine(folder, kind)
    kept = read(folder, kind)
    for name in gone(folder, kind):
        del kept[name]
    for case, digits, problem in found:
        if problem in ("missing", "stale"):
            settings = {} if case.settings is None else {"settings": case.settings}
            kept[case.name] = {"versions": case.versions, **settings, "digits": digits}
    lines = [f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
    folder.mkdir(parents=True, exist_ok=True)
    path(folder, kind).write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    return [finding for finding in found if finding.problem not in ("missing", "stale")]


def lines(found: Mapping[str, list[Finding]], folder: Path) -> list[str]:
    """Describe what differs, and what to do: one line for each cause.

    Parameters
    ----------
    found
        What `examine` gave, by kind.
    folder
        Of the stored digits.
    """
    told = []
    every = [finding for own in found.values() for finding in own]
    for problem, what in (
        ("missing", "has no golden digits"),
        ("stale", "has golden digits of another version"),
    ):
        if names := [finding.case.name for finding in every if finding.problem == problem]:
            told.append(f"{_some(names)} {what}: run `{COMMAND} --record`")
    left = {
        (kind, own.case.name): own
        for kind, all_ in found.items()
        for own in all_
        if own.problem not in ("missing", "stale")
    }
    for cause, members in _causes(left, folder, found):
        names = [left.pop(member).case.name for member in members]
        told.append(_line(cause, names))
    return told


def _causes(
    left: Mapping[tuple[str, str], Finding], folder: Path, kinds: Iterable[str]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Blame what most cases rest on that moved, if all of those did.

    Else what each is a trial of.
    """
    resting: dict[str, set[tuple[str, str]]] = {}
    for kind in kinds:
        for name, stored in read(folder, kind).items():
            for version in stored["versions"]:
                resting.setdefault(version, set()).add((kind, name))
    rest, causes = set(left), list[tuple[str, list[tuple[str, str]]]]()
    for version in sorted(resting, key=lambda name: (-len(resting[name]), name)):
        members = resting[version]
        several = len({left[one].case.owner for one in members if one in left}) > 1
        if several and members <= set(left) and members & rest:
            causes.append((version, sorted(members & rest)))
            rest -= members
    owners: dict[str, list[tuple[str, str]]] = {}
    for one in sorted(rest):
        owners.setdefault(left[one].case.owner, []).append(one)
    return causes + list(owners.items())


def _line(cause: str, names: list[str]) -> str:
    return (
        f"golden digits moved: {_some(names)}; if that is meant, run `{COMMAND} --bump {short(cause)}`, "
        "else restore what was computed"
    )


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more)"


def short(owner: str) -> str:
    """Return the name of what has a version, without its kind where that is clear."""
    name = owner.rpartition(":")[2]
    return name if len(full(name)) == 1 else owner


def full(name: str) -> list[str]:
    """Return what a name may stand for: ``kind:name`` of components, or a constant."""
    if name in CONSTANTS:
        return [name]
    kind, _, own = name.rpartition(":")
    return [
        f"{one}:{own}"
        for one, registry in REGISTRIES.items()
        if own in registry.names() and kind in ("", one)
    ]


def owner(name: str) -> str:
    """Return what a name stands for.

    Raises
    ------
    InputError
        If that is nothing, or several.
    """
    found = full(name)
    if len(found) != 1:
        told = (
            f"is one of {', '.join(found)}: say which"
            if found
            else f"is no component, nor one of {', '.join(CONSTANTS)}"
        )
        raise InputError(f"'{name}' {told}")
    return found[0]


__all__ = ["KINDS", "examine", "gone", "lines", "owner", "path", "read", "record", "short"]
