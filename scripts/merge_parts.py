"""Puts runs of parts of a benchmark into its published rows, and writes tables and figures of both anew.

A table that takes longer than one sitting, or more than one machine, is run in parts
(``--dataset``, ``--method``, ``--splits``). The rows of each folder of such a run,
``results/<benchmark>/variants/<part>``, search folds included, join the published ones of its
cells where both have the same hashes, and take the place of those of the same splits. Where the
hashes are others, they take the place of all rows of the cell, and a part that lacks a published
split is refused. Other cells stay. Posteriors that travel with the rows do the same.

``provenance.json`` names the machine, the packages and the commit of what was written last; those
of every other origin stand under ``taken_from`` with the splits that came from there, and each
cell keeps the hashes of the code that made it. Rows are shown as made with the benchmark's file as
it is now, so that a note has to say where kept rows are not.

Parts of a replicate (``--set seed=1``) are put together in the same way, in
``results/<benchmark>/seed-1``, which is begun with the first of them if it is not there.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from bdl.archive import ResultsFolder
from bdl.archive.frames import TRIALS, list_axes, read_rows, write_table
from bdl.archive.loading import load_open_results
from bdl.archive.posteriors import PosteriorFiles, read_posteriors, write_posteriors
from bdl.archive.reuse import ORIGIN_FIELDS
from bdl.errors import InputError
from bdl.publishing.provenance import write_provenance
from bdl.publishing.published_files import gather_figure_data, render_tables
from bdl.reports.figures import draw_figures
from bdl.spec import load_request
from bdl.spec.request import to_inline_yaml

Splits = dict[str, list[int]]
"""Splits of cells, by ``dataset/entry``."""

BY_CELL = ("fit_hashes", "score_hashes", "compiled")
"""What a provenance tells of each cell."""


class Run(NamedTuple):
    """Published rows with their provenance."""

    rows: pd.DataFrame
    points: pd.DataFrame
    origin: dict[str, Any]
    posteriors: PosteriorFiles

    @property
    def splits(self) -> Splits:
        """Splits of the final fits of each cell."""
        final = self.rows[self.rows.stage == "final"]
        found: Splits = {}
        for cell, split in zip(_cells(final), final.split, strict=True):
            found.setdefault(cell, []).append(int(split))
        return {cell: sorted(splits) for cell, splits in found.items()}


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
        if (options.published / TRIALS).exists():
            folders.insert(0, options.published)
        merged = reduce(merge, map(read, folders))
        options.published.mkdir(exist_ok=True)
        write(merged, options.published)
    except InputError as error:
        console.print(f"error: {error}", style="red", highlight=False)
        return 2
    for cell, splits in merged.splits.items():
        console.print(f"{cell}: {len(splits)} splits", highlight=False)
    return 0


def read(folder: Path) -> Run:
    """Read a folder of published rows; errors as in `read_rows`."""
    origin = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    rows, points, _ = read_rows(folder, origin.get("checksums"))
    return Run(rows, points, origin, read_posteriors(folder, origin))


def merge(published: Run, part: Run) -> Run:
    """Put a part's splits beside published ones of the same hashes, and in the place of all others of its cells.

    Raises
    ------
    InputError
        If the part is of another benchmark or profile, or of other hashes and fewer splits of a
        cell.
    """
    for name in ("benchmark", "profile", "overrides"):
        if part.origin[name] != published.origin[name]:
            raise InputError(
                f"{part.origin[name]} is not the {name} of the published rows: leave it out"
            )
    replaced: Splits = {}
    for cell, splits in part.splits.items():
        known = published.splits.get(cell, [])
        alike = all(
            _told(published, name).get(cell) == _told(part, name).get(cell) for name in BY_CELL
        )
        if not alike and not set(known) <= set(splits):
            raise InputError(
                f"{cell}: the part lacks splits that are published with other code; run them, too"
            )
        replaced[cell] = splits if alike else known
    posteriors = {
        cell: {
            split: content for split, content in own.items() if split not in replaced.get(cell, ())
        }
        for cell, own in published.posteriors.items()
    }
    tables = _without(published.rows, replaced), _without(published.points, replaced)
    kept = Run(*tables, published.origin, posteriors)
    # A part that was stopped may have searched a split that it did not fit.
    part_rows = part.rows[_among(part.rows, part.splits)]
    rows = _ordered(pd.concat([kept.rows, part_rows], ignore_index=True), published)
    _refuse_duplicates(rows)
    points = _ordered(pd.concat([kept.points, part.points], ignore_index=True), published)
    joined = {
        cell: {**posteriors.get(cell, {}), **part.posteriors.get(cell, {})}
        for cell in dict.fromkeys((*posteriors, *part.posteriors))
    }
    return Run(rows, points, _provenance(kept, part, rows), joined)


def write(merged: Run, folder: Path) -> None:
    """Write rows, provenance, tables and figures."""
    overrides = [
        f"{path}={to_inline_yaml(value)}" for path, value in merged.origin["overrides"].items()
    ]
    asked = load_request(merged.origin["benchmark"], merged.origin["profile"], overrides)
    for name, table in (("trials", merged.rows), ("points", merged.points)):
        table.attrs["made"] = json.dumps(asked.dump())
        if len(table):
            write_table(table, folder / f"{name}.parquet")
    travels = {"posteriors": write_posteriors(merged.posteriors, folder)}
    write_provenance({**merged.origin, **travels, **asked.dump()}, folder)
    here = ResultsFolder(folder, asked)
    found = load_open_results(here)
    for format, name in (("markdown", "table.md"), ("json", "table.json")):
        (folder / name).write_text(str(render_tables(found, format)), encoding="utf-8")
    draw_figures(gather_figure_data(found, {}), folder / "figures")


def _cells(table: pd.DataFrame) -> "pd.Series[str]":
    return table.dataset + "/" + table.entry


def _without(table: pd.DataFrame, splits: Splits) -> pd.DataFrame:
    return table[[not own for own in _among(table, splits)]]


def _among(table: pd.DataFrame, splits: Splits) -> list[bool]:
    return [
        split in splits.get(cell, ())
        for cell, split in zip(_cells(table), table.split, strict=True)
    ]


def _refuse_duplicates(rows: pd.DataFrame) -> None:
    """Refuse rows of which two are of one fold of one trial."""
    keys = ["dataset", "entry", *list_axes(rows), "stage", "split", "trial", "fold"]
    duplicates = rows[rows.duplicated(keys)]
    if len(duplicates):
        first = duplicates.iloc[0]
        raise InputError(
            f"{first.dataset}/{first.entry}, split {first.split}: {len(duplicates)} rows would be "
            "there twice; take them out of the part or of the published rows"
        )


def _ordered(table: pd.DataFrame, like: Run) -> pd.DataFrame:
    """Order cells as they are published, new ones last, and the splits of each.

    Rows of a split stay as they are.
    """
    order = {name: at for at, name in enumerate(dict.fromkeys([*like.splits, *_cells(table)]))}
    final = table.stage == "final" if "stage" in table else True
    places = pd.DataFrame({"cell": _cells(table).map(order), "final": final, "split": table.split})
    return table.loc[places.sort_values([*places], kind="stable").index].reset_index(drop=True)


def _provenance(kept: Run, part: Run, rows: pd.DataFrame) -> dict[str, Any]:
    """Name each origin once: the newest at the top, the others under ``taken_from``."""
    newest = max((kept.origin, part.origin), key=lambda origin: str(origin["written"]))
    origins = dict[str, tuple[dict[str, Any], Splits]]()
    for run in (kept, part):
        for origin, splits in _origins(run):
            own = {name: origin[name] for name in ORIGIN_FIELDS if name in origin}
            known = origins.setdefault(_place(own), (own, {}))
            known[0]["written"] = max(known[0]["written"], own["written"])
            for cell, some in splits.items():
                known[1][cell] = sorted([*known[1].get(cell, ()), *some])
    cells = Run(rows, kept.points, {}, {}).splits
    made = {cell: part if cell in part.splits else kept for cell in cells}
    by_cell = {
        name: {cell: _told(run, name).get(cell) for cell, run in made.items()} for name in BY_CELL
    }
    own = {
        "splits": sorted(set().union(*cells.values())),
        "work_minutes": _minutes(rows, origins.pop(_place(newest))[1]),
    }
    taken = [
        {**origin, "work_minutes": _minutes(rows, splits), "cells": splits}
        for origin, splits in origins.values()
        if splits
    ]
    overlap = {**kept.origin.get("overlap", {}), **part.origin.get("overlap", {})}
    return {
        **newest,
        **by_cell,
        "overlap": overlap,
        **own,
        "command_wall_minutes": 0.0,
        "taken_from": taken,
    }


def _place(origin: Mapping[str, Any]) -> str:
    """Distinguish origins, whenever they wrote."""
    return json.dumps({name: origin.get(name) for name in ORIGIN_FIELDS if name != "written"})


def _origins(run: Run) -> Iterable[tuple[Mapping[str, Any], Splits]]:
    """Return each origin of a run with the splits of its cells that are from there."""
    left = {cell: set(splits) for cell, splits in run.splits.items()}
    for other in run.origin.get("taken_from", ()):
        own = {
            cell: sorted(left[cell].intersection(splits))
            for cell, splits in other["cells"].items()
            if cell in left
        }
        for cell, splits in own.items():
            left[cell] -= set(splits)
        yield other, {cell: splits for cell, splits in own.items() if splits}
    yield run.origin, {cell: sorted(splits) for cell, splits in left.items() if splits}


def _told(run: Run, name: str) -> dict[str, Any]:
    """Return what a provenance tells of each cell.

    Earlier versions called the hashes of fits fingerprints.
    """
    earlier = run.origin.get("fingerprints", {}) if name == "fit_hashes" else {}
    told: dict[str, Any] = run.origin.get(name) or earlier
    return told


def _minutes(rows: pd.DataFrame, splits: Splits) -> float:
    final = rows[rows.stage == "final"]
    return round(float(final[_among(final, splits)].runtime.sum()), 3)


if __name__ == "__main__":
    raise SystemExit(main())
