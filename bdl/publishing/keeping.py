"""Published rows are not lost: what a run would put in the place of others is known before it starts."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of
from bdl.publishing.found import presented
from bdl.publishing.frames import read_frames
from bdl.spec import Benchmark, Point, Variant, list_benchmarks, load_variant
from bdl.store.folder import folder
from bdl.store.rows import CellKey
from bdl.store.store import Store

Fits = set[tuple[CellKey, int]]
"""Cells and splits."""


def check_published(asked: Variant, cells: Sequence[Cell], results: Path) -> None:
    """Refuse a run after which published rows would be gone that no store holds, or would be those of another spec.

    Parameters
    ----------
    asked
        What is to be run.
    cells
        Its plan.
    results
        Folder of results.

    Raises
    ------
    InputError
        If it would, or the published rows cannot be read.
    """
    place = folder(results, asked)
    if not (place / "trials.parquet").exists():
        return
    rows, _, text = read_frames(place)
    kept = _published(rows[rows.stage == "final"]) - _stored(place, cells_of(asked.benchmark))
    made = _earlier(text, asked, place)
    ours = {cell.key: cell for cell in cells}
    elsewhere = "give the benchmark a name of its own, or choose another --results"
    for cell in cells_of(made.benchmark):
        own = ours.get(cell.key)
        if own and any(key == cell.key for key, _ in kept) and _fit_part(own) != _fit_part(cell):
            raise InputError(f"{place} has published rows of {cell.label} of another spec, and no store; {elsewhere}")
    lost = kept - {(cell.key, split) for cell in cells for split in cell.splits}
    if lost:
        raise InputError(
            f"{place} has {len(lost)} published final fits that this benchmark lacks, and no store of them; {elsewhere}"
        )


def _earlier(text: str | None, asked: Variant, place: Path) -> Variant:
    """Return what published rows were made with; those that do not say are of the benchmark that is called so."""
    name = asked.benchmark.name
    if text is None and name in dict(list_benchmarks()):
        return load_variant(name, asked.benchmark.profile)
    return presented(text, asked, place / "trials.parquet")


def _published(rows: pd.DataFrame) -> Fits:
    """List the fits of a frame, whose columns between the entry and the stage are the axes of a sweep."""
    axes = list(rows.columns[2 : rows.columns.get_loc("stage")])
    keys = zip(rows.dataset, rows.entry, _points(rows[axes]), strict=True)
    return {(key, int(split)) for key, split in zip(keys, rows.split, strict=True)}


def _points(values: pd.DataFrame) -> Iterator[str]:
    for texts in values.to_dict("records"):
        yield Point({str(path): json.loads(text) for path, text in texts.items()}).text


def _stored(place: Path, cells: Iterable[Cell]) -> Fits:
    path = place / "store.sqlite"
    if not path.exists():
        return set()
    with Store(path) as store:
        return {(cell.key, row.split) for cell in cells for row in store.rows("final", cell.key)}


def _fit_part(cell: Cell) -> object:
    benchmark: Benchmark = cell.benchmark
    return benchmark.fit_part(cell.dataset, cell.entry)
