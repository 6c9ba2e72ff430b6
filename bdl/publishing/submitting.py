"""Making a bundle of a finished run, and whether its spec was in the repository before, as git knows."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from getpass import getuser
from pathlib import Path
from typing import Any, NamedTuple

from bdl.archive import ResultsFolder
from bdl.archive.loading import open_results
from bdl.errors import InputError
from bdl.execution.scoring import codes, computed, evaluation
from bdl.plan import Cell, data_checksum, fit_hash, fit_versions
from bdl.publishing.bundle import (
    RUN,
    RUNTIME,
    Bundle,
    BundledCell,
    BundledRow,
    BundledRun,
    encode,
    member,
    write,
)
from bdl.publishing.foreign import part, readable
from bdl.publishing.provenance import git, provenance
from bdl.publishing.verifying import is_predicted, predicted, recomputed
from bdl.spec import Variant
from bdl.spec.values import overlay, parse_yaml
from bdl.store.artefacts import mended
from bdl.store.store import Store

_ENVIRONMENT = ("git_commit", "python", "packages", "machine")
_FOLDERS = re.compile(r"(?<![\w./\\])(?:file://)?(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\:'\"]+[/\\])+")
"""Of an absolute path: all of it but the name of the file."""


def submit(asked: Variant, results: Path, output: Path) -> int:
    """Make a bundle of a finished run, and count its fits.

    Scores of predictions are computed from what the bundle has, so that they follow from it to the
    last digit; they are those of the run but for the rounding of float32. All others are those of
    the run. `InputError` if the run is not finished, has published rows alone or components that
    others cannot check, if spec, data or code have changed since, or the file cannot be written.
    """
    with mended(asked, results), open_results(asked, results, latest=True) as here:
        made = public(here.made.dump())
        readable(made)
        again = asked.command("run", results)
        if here.store is None:
            raise InputError(
                f"{here.place} has published rows alone, without posteriors; they come with: {again}"
            )
        cells = part(here.made)
        for cell in cells:
            if lacking := sorted(set(cell.splits) - set(here.store.splits(cell.key))):
                raise InputError(
                    f"{cell.label} has no fit of split {lacking[0]} yet; go on with: {again}"
                )
        write(output, _members(here, here.store, made, cells, again))
    return sum(len(cell.splits) for cell in cells)


def _members(
    here: ResultsFolder, store: Store, made: Mapping[str, Any], cells: Sequence[Cell], again: str
) -> Iterator[tuple[str, bytes]]:
    bundled = []
    for place, cell in enumerate(cells):
        rows = []
        for row in store.rows("final", cell.key):
            if row.split not in cell.splits:
                continue
            kept = codes(cell, row.metrics)
            values = {
                name: value
                for name, value in row.metrics.items()
                if name in kept or name == RUNTIME
            }
            if is_predicted(cell, row.status):
                posterior, buffers, _ = here.posterior(cell, row.split)
                given = predicted(evaluation(cell, row.split, posterior, buffers, row.hyper))
                values |= recomputed(cell, row.split, given, row.hyper)[0]
                yield member(place, row.split), encode(given)
            if lacking := [
                metric
                for metric in computed(cell)
                if row.status == "ok" and str(metric) not in values
            ]:
                raise InputError(
                    f"{cell.label}, split {row.split} has no {lacking[0]} yet; go on with: {again}"
                )
            reason = row.problem and _anonymous(row.problem)
            own = {name: getattr(row, name) for name in ("split", "status", "hyper", "seconds")}
            rows.append(BundledRow(**own, reason=reason, scores=values))
        dataset, entry, point = cell.key
        identity: dict[str, Any] = {"fit_hash": fit_hash(cell), "versions": fit_versions(cell)}
        identity["data"] = data_checksum(cell)
        bundled.append(
            BundledCell(dataset=dataset, entry=entry, point=point, rows=tuple(rows), **identity)
        )
    origin = provenance(here.made, cells, store, 0.0)
    environment = {name: origin[name] for name in _ENVIRONMENT}
    run = BundledRun(made=made, environment=environment, cells=tuple(bundled))
    # mappings in their order: that of entries and of a search matters
    yield (
        RUN,
        json.dumps(run.model_dump(mode="json"), separators=(",", ":"), allow_nan=False).encode(),
    )


def _anonymous(text: str) -> str:
    """Leave folders, the user and the machine out of a message."""
    for private, word in ((getuser(), "user"), (socket.gethostname(), "host")):
        text = re.sub(rf"\b{re.escape(private)}\b", word, text)
    return _FOLDERS.sub("", text)


def public(value: Any) -> Any:
    """Leave the folders of absolute paths out of JSON values."""
    if isinstance(value, str):
        return _FOLDERS.sub("", value)
    if isinstance(value, Mapping):
        return {name: public(own) for name, own in value.items()}
    return [public(own) for own in value] if isinstance(value, list) else value


_PARTS = ("model", "prior", "method", "training", "record")
"""Fields of an entry that `readable` leaves out where a part is from outside."""


class Registered(NamedTuple):
    """What the history says of a bundle."""

    commit: str | None
    """The last commit without the bundle that brought a file with its spec; None without the
    mark.
    """
    why: str
    """Why it has no mark; empty if it has."""


def registered(path: Path) -> Registered:
    """Look for the spec of a bundle in the commits before the one that adds it.

    `InputError` if it is no bundle.

    A file ``<name of the benchmark>.yaml``, in any folder of the bundle's repository, has to say
    what the bundle was made with: the same settings in the same order, in which searches draw,
    under the bundle's profile and with defaults filled in, titles, notes and claims aside. Of
    parts from outside of this package, which are not imported, the settings that the file has are
    compared. A bundle that is not committed yet counts as added after the last commit.
    """
    with Bundle(path) as bundle:
        made = bundle.run().made
    name, folder = readable(made)[0].benchmark.name, path.resolve().parent
    try:
        if git(folder, "rev-parse", "--is-shallow-repository") == "true":
            return Registered(None, "this clone is shallow: git fetch --unshallow")
        added = git(
            folder, "log", "--topo-order", "--diff-filter=A", "--format=%H", "--", path.name
        ).split()
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
    try:
        content = public(parse_yaml(text, "the file"))
        profile = made["spec"]["profile"]
        if changes := {"paper": {}, **content.pop("profiles", {})}[profile]:
            content = overlay(content, changes)
        (own, foreign), (theirs, _) = _read(content, profile), readable(made)
        alike = own.benchmark.model_dump_json() == theirs.benchmark.model_dump_json()
        return alike and all(
            _holds(
                made["spec"]["entries"][name],
                own.benchmark.entries[name].dump(),
                content["entries"][name],
            )
            for name in foreign
        )
    except (InputError, LookupError, TypeError, AttributeError):  # whatever the file is
        return False


def _read(content: Mapping[str, Any], profile: str) -> tuple[Variant, frozenset[str]]:
    return readable(
        {"spec": {**content, "profile": profile}, "overrides": {}, "narrowed_to": None}
    )


def _holds(whole: Mapping[str, Any], read: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Return whether an entry has the settings that a file gives its parts.

    What it is scored by has been compared.
    """
    parts = {**read, **{name: given[name] for name in _PARTS if name in given}}
    return whole["by_dataset"] == given.get("by_dataset", {}) and all(
        _within(parts[name], whole[name]) for name in _PARTS
    )


def _within(given: Any, whole: Any) -> bool:
    """Return whether settings are among others, which have the defaults as well."""
    if isinstance(given, Mapping) and isinstance(whole, Mapping):
        return all(name in whole and _within(value, whole[name]) for name, value in given.items())
    return bool(given == whole)
