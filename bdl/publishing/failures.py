"""Fits that failed: which, why, and where in the code."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of
from bdl.publishing.found import is_part, part, presented, whereabouts
from bdl.publishing.frames import axes, read_frames
from bdl.spec import Variant
from bdl.store.rows import Stage
from bdl.store.store import Store

_STAGES: tuple[Stage, ...] = ("search", "final")


class Failure(NamedTuple):
    """What failed in one stage of one cell for one reason; or a score of its final fits that could not be computed."""

    cell: str
    stage: str
    splits: tuple[int, ...]
    """Splits with such a fit."""
    fits: int
    reason: str
    traceback: str
    """Of the first such fit that has one; empty where a fit diverged, or where only published rows are left."""


class _Failed(NamedTuple):
    cell: str
    stage: str
    split: int
    reason: str
    traceback: str


def failures(asked: Variant, results: Path) -> list[Failure]:
    """List what failed in an earlier run, in the order of its cells.

    Parameters
    ----------
    asked
        The benchmark, with the overrides and the part that the run had; or a part of the whole, in data sets and
        entries, if no run was narrowed to it.
    results
        Folder of results.

    Raises
    ------
    InputError
        If there are no results, or a file is damaged.
    """
    place = whereabouts(asked, results, within=True)
    kept = place / "store.sqlite"
    alike: dict[tuple[str, str, str], list[_Failed]] = {}
    for own in _stored(asked, kept) if kept.exists() else _published(asked, place):
        alike.setdefault((own.cell, own.stage, own.reason), []).append(own)
    return [
        Failure(
            *(cell, stage, tuple(sorted({own.split for own in fits})), len(fits), reason),
            next((own.traceback for own in fits if own.traceback), ""),
        )
        for (cell, stage, reason), fits in alike.items()
    ]


def _stored(asked: Variant, path: Path) -> Iterator[_Failed]:
    with Store(path) as store:
        for cell in _cells(store.made, asked, path):
            for stage in _STAGES:
                for row in store.rows(stage, cell.key):
                    trace = str(row.details.get("traceback", ""))
                    if row.problem:
                        yield _Failed(cell.label, stage, row.split, row.problem, trace)


def _cells(made: str | None, asked: Variant, source: Path) -> list[Cell]:
    """List the cells that rows were made of, as far as they are asked for."""
    return [cell for cell in cells_of(presented(made, asked, source).benchmark) if is_part(cell, asked)]


def _published(asked: Variant, place: Path) -> Iterator[_Failed]:
    rows, _, text = read_frames(place)
    cells = _cells(text, asked, place / "trials.parquet")
    labels = {(str(cell.dataset), cell.entry, *cell.point.texts.values()): cell.label for cell in cells}
    names = ["dataset", "entry", *axes(cells)]
    for row in part(rows[rows.reason.notna()], asked).to_dict("records"):
        label = labels.get(tuple(row[name] for name in names), f"{row['dataset']}/{row['entry']}")
        yield _Failed(label, row["stage"], row["split"], row["reason"] or "", "")
