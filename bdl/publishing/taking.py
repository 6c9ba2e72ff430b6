"""Published rows as the beginning of a store, as in a clone: what is the same is not made again."""

import json
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from bdl.errors import InputError
from bdl.execution.scoring import codes, computed
from bdl.plan.cell import Cell
from bdl.plan.fingerprint import fit_hash, joint_hash, score_hash
from bdl.plan.programs import evaluations
from bdl.publishing.frames import COLUMNS, read_frames
from bdl.publishing.provenance import ORIGIN
from bdl.store.rows import CellKey, Outcome, Reading, Row, Stage
from bdl.store.store import Store

_HYPER = "hyper_"
_DETAILS = {"width": int, "device": str, "compiled": bool, "updates": int}
_HASHES = ("fit_hashes", "score_hashes")
_STAGES: tuple[Stage, ...] = ("search", "final")


class Published:
    """Published fits whose hashes, of the fit and of every score, are those of today's spec, data and versions.

    A fit is taken with the curves that the benchmark records, or not at all; one that failed is a result like any
    other. Posteriors are not published: what needs them, a score that is added later or a figure, needs the fit anew.

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

    def reusable(self, cells: Sequence[Cell], store: Store) -> dict[CellKey, set[int]]:
        """List the splits of each cell that `take` would copy; arguments as there."""
        return {cell.key: self._splits(cell, store) for cell in cells}

    def take(self, cells: Sequence[Cell], store: Store) -> int:
        """Copy fits, each with its search.

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
        whole = (own.status == "failed") | own.reason.isna()  # of which all scores were computed
        good = set(own.split[(own.stage == "final") & whole])
        if evaluations(cell) is not None:
            good &= set(_of(cell, self._points).split) | set(own.split[own.status == "failed"])
        return {split for split in cell.splits if split in good} - begun

    def _outcomes(self, cell: Cell, split: int) -> list[Outcome]:
        own, points = (_of(cell, table[table.split == split]) for table in (self._rows, self._points))
        origin = _origin(self._known, cell, split)
        rows = [_row(cell, values, origin) for values in own.to_dict("records")]
        readings = tuple(Reading(*values) for values in points[list(Reading._fields)].itertuples(index=False))
        return [Outcome(row, readings if row.stage == "final" else ()) for row in rows]


def gather(place: Path, siblings: Iterable[Path]) -> list[Published]:
    """Read what is published in a folder, and in others as far as it can be read.

    Raises
    ------
    InputError
        If what is in the first cannot be read.
    """
    found = [Published(place)]
    for path in siblings:
        with suppress(InputError):
            found.append(Published(path))
    return found


def _provenance(place: Path) -> dict[str, Any]:
    path = place / "provenance.json"
    try:
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict) or not all(isinstance(found.get(name, {}), dict) for name in _HASHES):
            raise ValueError("it does not say what rows were made with")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path} ({error}); run without --published") from None
    return found


def _origin(known: dict[str, Any], cell: Cell, split: int) -> dict[str, Any]:
    """Return where a fit was made, and with what: where it was taken from, or else where it is published."""
    earlier = (one for one in known.get("taken_from", ()) if split in one["cells"].get(cell.label, ()))
    made = next(earlier, known)
    return {name: made[name] for name in ORIGIN if name in made}


def _same(cell: Cell, known: dict[str, Any]) -> bool:
    """Return whether the hashes with which a cell was published are today's."""
    scores = [score_hash(cell, metric) for metric in computed(cell)]
    today = fit_hash(cell), joint_hash(scores) if scores else None
    return today == tuple(known.get(name, {}).get(cell.label) for name in _HASHES)


def _of(cell: Cell, table: pd.DataFrame) -> pd.DataFrame:
    keys = {"dataset": str(cell.dataset), "entry": cell.entry, **cell.point.texts}
    return table[(table.reindex(columns=list(keys)) == pd.Series(keys)).all(axis=1)]


def _row(cell: Cell, values: dict[Hashable, Any], origin: dict[str, Any]) -> Row:
    """Return a row as the store has it, where a table has no value of what is not in it."""
    given = {str(name): value for name, value in values.items() if not pd.isna(value)}
    hyper = {name.removeprefix(_HYPER): value for name, value in given.items() if name.startswith(_HYPER)}
    details: dict[str, Any] = {name: kind(given[name]) for name, kind in _DETAILS.items() if name in given}
    metrics: dict[str, float | None]
    if given["stage"] == "search":
        score = str(cell.settings.search and cell.settings.search.metric)
        metrics, hashes = {score: given.get(score)}, {}
    else:
        other = {*COLUMNS, *cell.point.texts, *_DETAILS, *(_HYPER + name for name in hyper)}
        known = {*given, *map(str, computed(cell))}  # of which one that is not finite has no number
        scored = map(str, values) if given["status"] == "ok" else ()
        metrics = {name: given.get(name) for name in scored if name in known and name not in other}
        hashes, details = codes(cell, metrics), details | {"origin": origin}
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
        details=details,
        codes=hashes,
    )
