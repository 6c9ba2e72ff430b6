"""Puts runs of parts of a benchmark into its published rows, and writes tables and figures of both anew.

A table that takes longer than one sitting, or more than one machine, is run in parts
(``--dataset``, ``--method``, ``--splits``). The rows of each folder of such a run,
``results/<benchmark>/variants/<part>``, search folds included, join the published ones of its
cells where both have the same hashes, and take the place of those of the same splits. Where the
hashes are others, they take the place of all rows of the cell, and a part that lacks a published
split is refused. Other cells stay. Posteriors that travel with the rows do the same.

``run.json`` names the machine, the packages and the commit of what was written last; those
of every other origin stand under ``taken_from`` with the splits that came from there, and each
cell keeps the hashes of the code that made it. Rows are shown as made with the benchmark's file as
it is now, so that a note has to say where kept rows are not.

Parts of a replicate (``--set seed=1``) are put together in the same way, in
``results/<benchmark>/seed-1``, which is begun with the first of them if it is not there.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from bdl.errors import InputError
from bdl.publishing.provenance import describe_provenance, write_provenance
from bdl.publishing.run_figures import gather_figure_data
from bdl.publishing.run_tables import render_tables
from bdl.records.row import CellKey, FitResult, Row
from bdl.records.run_folder import ORIGIN_FIELDS, RunFolder
from bdl.reports.figures import draw_figures
from bdl.spec import Request, load_request
from bdl.spec.request import to_inline_yaml
from bdl.stored_results.folders import has_published_rows, open_published, read_provenance
from bdl.stored_results.loading import load_open_results
from bdl.stored_results.results_folder import ResultsFolder, list_stored_tasks

BY_LABEL = ("fit_hashes", "score_hashes", "compiled")
"""Fields of the provenance that say something of each cell."""


class Part(NamedTuple):
    """Published rows with their provenance."""

    results: dict[CellKey, list[FitResult]]
    fit_hashes: dict[CellKey, str | None]
    provenance: dict[str, Any]
    posteriors: dict[str, bytes]
    """Content of the posteriors that travel, by digest."""

    @property
    def splits(self) -> dict[CellKey, list[int]]:
        """Splits of the final fits of each cell."""
        splits: dict[CellKey, list[int]] = {}
        for cell, results in self.results.items():
            finals = [result.row.split for result in results if result.row.stage == "final"]
            splits[cell] = sorted(finals)
        return splits


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "published", type=Path, help="folder of published rows, results/<benchmark>"
    )
    parser.add_argument("parts", type=Path, nargs="+", help="folders of runs of parts")
    options, console = parser.parse_args(arguments), Console()
    try:
        folders = list(options.parts)
        if has_published_rows(options.published):
            folders.insert(0, options.published)
        merged = reduce(merge, map(read, folders))
        options.published.mkdir(exist_ok=True)
        write(merged, options.published)
    except InputError as error:
        console.print(f"error: {error}", style="red", highlight=False)
        return 2
    for cell, splits in merged.splits.items():
        console.print(f"{'/'.join(cell[:2])}: {len(splits)} splits", highlight=False)
    return 0


def read(folder: Path) -> Part:
    """Read a folder of published rows; `InputError` if they are damaged."""
    records = open_published(folder)
    results: dict[CellKey, list[FitResult]] = {}
    posteriors: dict[str, bytes] = {}
    for cell in records.list_cells():
        results[cell] = records.load_results(cell)
        for row, *_ in results[cell]:
            if row.artefact and records.posteriors.is_whole(row.artefact):
                posteriors[row.artefact] = records.posteriors.read_bytes(row.artefact)
    hashes = {cell: records.find_fit_hash(cell) for cell in results}
    return Part(results, hashes, read_provenance(folder), posteriors)


def merge(published: Part, part: Part) -> Part:
    """Put a part's splits into published rows of the same hashes, and in the place of all others of its cells.

    Raises
    ------
    InputError
        If the part is of another benchmark or profile, or of other hashes and fewer splits of a
        cell.
    """
    for name in ("benchmark", "profile", "overrides"):
        if part.provenance[name] != published.provenance[name]:
            raise InputError(
                f"{part.provenance[name]} is not the {name} of the published rows: leave it out"
            )
    newest = max((published, part), key=lambda run: str(run.provenance["written"]))
    origin = _origin(newest)
    kept, added = _with_origin(published, origin), _with_origin(part, origin)
    results = dict(kept.results)
    for cell, splits in part.splits.items():
        known = published.splits.get(cell, [])
        alike = _identity(published, cell) == _identity(part, cell)
        if not alike and not set(known) <= set(splits):
            raise InputError(
                f"{'/'.join(cell[:2])}: the part lacks splits that are published with other code; "
                "run them, too"
            )
        replaced = splits if alike else known
        # A part that was stopped may have searched a split that it did not fit.
        results[cell] = [
            *(one for one in kept.results.get(cell, ()) if one.row.split not in replaced),
            *(one for one in added.results[cell] if one.row.split in splits),
        ]
    by_label = {
        name: {**published.provenance.get(name, {}), **part.provenance.get(name, {})}
        for name in (*BY_LABEL, "overlap")
    }
    return Part(
        results,
        {**published.fit_hashes, **part.fit_hashes},
        {**newest.provenance, **by_label},
        {**published.posteriors, **part.posteriors},
    )


def write(merged: Part, folder: Path) -> None:
    """Write rows, provenance, tables and figures."""
    request = _load_request(merged.provenance)
    records = RunFolder(None)
    for cell, results in merged.results.items():
        fit_hash = merged.fit_hashes[cell]
        if fit_hash is not None:
            records.claim(cell, fit_hash)
        records.append(results)
    records.record_request(json.dumps(request.dump()))
    tasks = list_stored_tasks(request.benchmark, records)
    records.publish(folder, list(merged.results))
    artefacts = {row.artefact for results in merged.results.values() for row, *_ in results}
    posteriors = {sha: content for sha, content in merged.posteriors.items() if sha in artefacts}
    RunFolder(folder).posteriors.write_pack(posteriors)
    described = describe_provenance(request, tasks, records, 0.0)
    # as the rows were made, not as they are put together
    fields = {name: merged.provenance[name] for name in ORIGIN_FIELDS if name in merged.provenance}
    splits = sorted({split for splits in merged.splits.values() for split in splits})
    fields |= {"splits": splits, "overlap": merged.provenance["overlap"]}
    for name in BY_LABEL:
        by_label = merged.provenance[name]
        fields[name] = {task.label: by_label.get(task.label) for task in tasks}
    write_provenance({**described, **fields}, folder)
    loaded = load_open_results(ResultsFolder(folder, request))
    for format, name in (("markdown", "table.md"), ("json", "table.json")):
        (folder / name).write_text(str(render_tables(loaded, format)), encoding="utf-8")
    draw_figures(gather_figure_data(loaded, {}), folder / "figures")


def _load_request(provenance: Mapping[str, Any]) -> Request:
    overrides = [
        f"{path}={to_inline_yaml(value)}" for path, value in provenance["overrides"].items()
    ]
    return load_request(provenance["benchmark"], provenance["profile"], overrides)


def _identity(run: Part, cell: CellKey) -> tuple[object, ...]:
    """Return what identifies the code of a cell's fits and scores."""
    label = f"{cell[0]}/{cell[1]}" + ("" if cell[2] == "{}" else f" {cell[2]}")
    scores = run.provenance.get("score_hashes", {}).get(label)
    return run.fit_hashes.get(cell), scores, run.provenance.get("compiled", {}).get(label)


def _origin(run: Part) -> dict[str, Any]:
    return {name: run.provenance[name] for name in ORIGIN_FIELDS if name in run.provenance}


def _with_origin(run: Part, newest: Mapping[str, Any]) -> Part:
    """Name the origin of rows that say none, unless it is the newest of all."""
    origin = _origin(run)
    if _without_date(origin) == _without_date(newest):
        return run
    results: dict[CellKey, list[FitResult]] = {}
    for cell, own in run.results.items():
        results[cell] = [one._replace(row=_add_origin(one.row, origin)) for one in own]
    return run._replace(results=results)


def _add_origin(row: Row, origin: Mapping[str, Any]) -> Row:
    if row.stage == "search" or row.imported:
        return row
    return replace(row, details={**row.details, "origin": dict(origin)})


def _without_date(origin: Mapping[str, Any]) -> dict[str, Any]:
    """Return what distinguishes origins, whenever they wrote."""
    return {name: value for name, value in origin.items() if name != "written"}


if __name__ == "__main__":
    raise SystemExit(main())
