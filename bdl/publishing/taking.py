"""Published rows as the beginning of a store, as in a clone: what is the same is not made again."""

import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bdl.errors import InputError
from bdl.execution.scoring import codes, computed
from bdl.plan.cell import Cell
from bdl.plan.fingerprint import fit_hash, joint_hash, score_hash
from bdl.publishing.frames import COLUMNS, read_frames
from bdl.store.rows import CellKey, Outcome, Reading, Row, Stage
from bdl.store.store import Store

_HYPER = "hyper_"
_DETAILS = {"width": int, "device": str, "compiled": bool, "updates": int}
_STAGES: tuple[Stage, ...] = ("search", "final")


class Published:
    """Published fits whose hashes, of the fit and of every score, are those of today's spec, data and code.

    Posteriors are not published: what needs them, a score that is added later or a figure, needs the fit anew.

    Parameters
    ----------
    place
        Folder of published rows; no matter if it has none.

    Raises
    ------
    InputError
        If what is there cannot be read.
    """

    def __init__(self, place: Path) -> None:
        self._known: dict[str, Any] = {}
        if (place / "trials.parquet").exists():
            self._rows, self._points, _ = read_frames(place)
            self._known = _provenance(place)

    def at_hand(self, cells: Sequence[Cell], store: Store) -> dict[CellKey, set[int]]:
        """List the splits of each cell that `take` would copy; arguments as there."""
        return {cell.key: self._splits(cell, store) for cell in cells}

    def take(self, cells: Sequence[Cell], store: Store) -> int:
        """Copy fits that succeeded, each with its search.

        Parameters
        ----------
        cells
            The plan, which the store has claimed.
        store
            Where rows go. A split of which it holds anything stays as it is.

        Returns
        -------
        int
            How many final fits were copied.
        """
        count = 0
        for cell in cells:
            splits = self._splits(cell, store)
            for split in splits:
                store.append(self._outcomes(cell, split))
            count += len(splits)
        return count

    def _splits(self, cell: Cell, store: Store) -> set[int]:
        if not _same(cell, self._known):
            return set()
        begun = {row.split for stage in _STAGES for row in store.rows(stage, cell.key)}
        own = _of(cell, self._rows)
        good = own[(own.stage == "final") & (own.status == "ok")]
        return {split for split in map(int, good.split) if split in cell.splits} - begun

    def _outcomes(self, cell: Cell, split: int) -> list[Outcome]:
        own, points = (_of(cell, table[table.split == split]) for table in (self._rows, self._points))
        rows = [_row(cell, values) for values in own.to_dict("records")]
        readings = tuple(Reading(*values) for values in points[list(Reading._fields)].itertuples(index=False))
        return [Outcome(row, readings if row.stage == "final" else ()) for row in rows]


def _provenance(place: Path) -> dict[str, Any]:
    path = place / "provenance.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} ({error}); run without --published") from None
    return found


def _same(cell: Cell, known: dict[str, Any]) -> bool:
    """Tell whether the hashes with which a cell was published are today's."""
    today = fit_hash(cell), joint_hash(score_hash(cell, metric) for metric in computed(cell))
    return today == tuple(known.get(name, {}).get(cell.label) for name in ("fit_hashes", "score_hashes"))


def _of(cell: Cell, table: pd.DataFrame) -> pd.DataFrame:
    keys = {"dataset": str(cell.dataset), "entry": cell.entry, **cell.point.texts}
    return table[(table.reindex(columns=list(keys)) == pd.Series(keys)).all(axis=1)]


def _row(cell: Cell, values: dict[Hashable, Any]) -> Row:
    """Give a row as the store has it, where a table has no value of what is not in it."""
    given = {str(name): value for name, value in values.items() if not pd.isna(value)}
    hyper = {name.removeprefix(_HYPER): value for name, value in given.items() if name.startswith(_HYPER)}
    metrics: dict[str, float | None]
    if given["stage"] == "search":
        score = str(cell.settings.search and cell.settings.search.metric)
        metrics, hashes = {score: given.get(score)}, {}
    else:
        other = {*COLUMNS, *cell.point.texts, *_DETAILS, *(_HYPER + name for name in hyper)}
        metrics = {name: value for name, value in given.items() if name not in other}
        hashes = codes(cell, metrics)
    dataset, entry, point = cell.key
    return Row(
        dataset=dataset,
        entry=entry,
        point=point,
        stage=given["stage"],
        split=int(given["split"]),
        trial=int(given["trial"]),
        fold=int(given["fold"]),
        status=given["status"],
        reason=given.get("reason"),
        hyper=hyper,
        metrics=metrics,
        seconds=given["seconds"],
        details={name: kind(given[name]) for name, kind in _DETAILS.items() if name in given},
        codes=hashes,
    )
