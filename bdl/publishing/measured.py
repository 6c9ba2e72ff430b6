"""What earlier fits of a benchmark took, whatever profile, part or overrides they had."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pandas as pd

from bdl.errors import InputError
from bdl.execution.estimate import Measured, measured_rows
from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of
from bdl.publishing.frames import read_frames
from bdl.publishing.provenance import taken
from bdl.spec import Point, Variant
from bdl.store.folder import folder
from bdl.store.rows import Stage
from bdl.store.store import Store

_BELOW = ("", "*/", "variants/*/", "*/variants/*/")
"""Where a benchmark's folder has results: the protocol, its profiles, and the variants of both."""
_FILES = ("store.sqlite", "trials.parquet")
_STAGES: tuple[Stage, ...] = ("search", "final")


def measured(asked: Variant, results: Path) -> list[Measured]:
    """Read what earlier fits took, from the stores, and from published rows where there is no store.

    Parameters
    ----------
    asked
        What is to be run; the fits of its own folder are told apart from those of others.
    results
        Folder of results. What cannot be read is left out.
    """
    own, base = folder(results, asked), results / asked.benchmark.name
    found: list[Measured] = []
    for place in sorted({path.parent for below in _BELOW for name in _FILES for path in base.glob(below + name)}):
        with suppress(InputError):
            if (place / "store.sqlite").exists():
                found += _stored(asked, place / "store.sqlite", place == own)
            else:  # another machine may have made what comes without its store
                found += _published(read_frames(place)[0])
    return found


def _stored(asked: Variant, path: Path, own: bool) -> list[Measured]:
    with Store(path) as store:
        made = Variant.parse(store.made, str(path)).benchmark if store.made else asked.benchmark
        return [one for cell in cells_of(made) for one in _of(cell, store, own)]


def _of(cell: Cell, store: Store, own: bool) -> Iterator[Measured]:
    """Go through the rows of a cell; splits that were taken over as published may be of another machine."""
    others = {row.split for row in store.rows("final", cell.key) if taken(row)}
    rows = [row for stage in _STAGES for row in store.rows(stage, cell.key)]
    yield from measured_rows((row for row in rows if row.split not in others), own)
    yield from measured_rows((row for row in rows if row.split in others), own=False)


def _published(rows: pd.DataFrame) -> Iterator[Measured]:
    """Go through published rows; the columns between the entry and the stage are the axes of a sweep."""
    if "width" not in rows.columns:
        return
    axes = list(rows.columns[2 : rows.columns.get_loc("stage")])
    lasted = rows[(rows.seconds > 0) & rows.width.notna()]
    for row in lasted.to_dict("records"):
        point = Point({path: json.loads(row[path]) for path in axes})
        updates = row.get("updates", 0.0)
        yield Measured(
            (row["dataset"], row["entry"], point.text),
            row["stage"],
            row["seconds"],
            updates if updates == updates else 0.0,  # not counted: NaN
            int(row["width"]),
            own=False,
        )
