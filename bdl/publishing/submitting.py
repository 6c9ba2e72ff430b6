"""Making a bundle of a finished run."""

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from getpass import getuser
from pathlib import Path
from typing import Any, NamedTuple

from bdl.archive.folder import ResultsFolder
from bdl.archive.loading import open_results
from bdl.errors import InputError
from bdl.execution.scoring import codes, computed, evaluation
from bdl.plan.cell import Cell, data_checksum, fit_hash, fit_versions
from bdl.publishing.bundle import RUN, RUNTIME, BundledCell, BundledRow, BundledRun, dumped, encode, member, write
from bdl.publishing.foreign import part, readable
from bdl.publishing.provenance import provenance
from bdl.publishing.verifying import needs_predictions, predicted, recomputed
from bdl.spec import Variant
from bdl.store.anew import mended
from bdl.store.rows import Row
from bdl.store.store import Store

Member = tuple[str, bytes]

_ENVIRONMENT = ("git_commit", "python", "packages", "machine")
_FOLDERS = re.compile(r"(?<![\w./\\])(?:file://)?(?:~|[A-Za-z]:)?[/\\](?:[^\s/\\:'\"]+[/\\])+")
"""Of an absolute path: all of it but the name of the file."""


class Submitted(NamedTuple):
    """A bundle that was made."""

    path: Path
    fits: int
    """Final fits in it."""
    megabytes: float
    """Its size."""


def submit(asked: Variant, results: Path, output: Path) -> Submitted:
    """Make a bundle of a finished run.

    Scores of predictions are computed from what the bundle has, so that they follow from it to the last digit; they are
    those of the run but for the rounding of float32. All others are those of the run.

    Parameters
    ----------
    asked
        The run.
    results
        Folder of results.
    output
        The file.

    Raises
    ------
    InputError
        If the run is not finished, has published rows alone or components that others cannot check, if spec, data or
        code have changed since, or the file cannot be written.
    """
    with mended(asked, results), open_results(asked, results, latest=True) as here:
        made = public(here.made.dump())
        readable(made)
        again = asked.command("run", results)
        store, cells = _finished(here, again)
        write(output, _members(here, store, made, cells, again))
    return Submitted(output, sum(len(cell.splits) for cell in cells), output.stat().st_size / 1e6)


def _finished(here: ResultsFolder, again: str) -> tuple[Store, list[Cell]]:
    """Return the store and the cells of the run, with their splits, all of which have final rows."""
    if here.store is None:
        raise InputError(f"{here.place} has published rows alone, without posteriors; they come with: {again}")
    cells = part(here.made)
    for cell in cells:
        if lacking := sorted(set(cell.splits) - set(here.store.splits(cell.key))):
            raise InputError(f"{cell.label} has no fit of split {lacking[0]} yet; go on with: {again}")
    return here.store, cells


def _members(
    here: ResultsFolder, store: Store, made: Mapping[str, Any], cells: Sequence[Cell], again: str
) -> Iterator[Member]:
    """Yield the predictions of all fits, then what the rows are."""
    bundled = []
    for place, cell in enumerate(cells):
        rows = []
        for row in store.rows("final", cell.key):
            if row.split not in cell.splits:
                continue
            kept = codes(cell, row.metrics)
            values = {name: value for name, value in row.metrics.items() if name in kept or name == RUNTIME}
            if row.status == "ok" and needs_predictions(cell):
                posterior, buffers, _ = here.posterior(cell, row.split)
                given = predicted(evaluation(cell, row.split, posterior, buffers, row.hyper))
                values |= recomputed(cell, row.split, given, row.hyper).scores
                yield member(place, row.split), encode(given)
            if lacking := [metric for metric in computed(cell) if row.status == "ok" and str(metric) not in values]:
                raise InputError(f"{cell.label}, split {row.split} has no {lacking[0]} yet; go on with: {again}")
            reason = row.problem and _anonymous(row.problem)
            rows.append(BundledRow(**_of(row), reason=reason, scores=values))
        dataset, entry, point = cell.key
        identity: dict[str, Any] = {"fit_hash": fit_hash(cell), "versions": fit_versions(cell)}
        identity["data"] = data_checksum(cell)
        bundled.append(BundledCell(dataset=dataset, entry=entry, point=point, rows=tuple(rows), **identity))
    origin = provenance(here.made, cells, store, 0.0)
    environment = {name: origin[name] for name in _ENVIRONMENT}
    yield RUN, dumped(BundledRun(made=made, environment=environment, cells=tuple(bundled)))


def _of(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("split", "status", "hyper", "seconds")}


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
