"""Fits that other runs of the same benchmark have made already, under other narrowings or overrides."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.fingerprint import fit_hash
from bdl.store import artefacts
from bdl.store.rows import Outcome, Row
from bdl.store.store import Store


def take_over(cells: Sequence[Cell], store: Store, folders: Iterable[Path]) -> int:
    """Copy fits that are the same from other stores: equal hashes mean equal spec, data and code.

    Parameters
    ----------
    cells
        The plan, which the store has claimed.
    store
        Where rows go. A split of which it holds anything stays as it is.
    folders
        Folders of other runs. What cannot be read is left where it is, and done here.

    Returns
    -------
    int
        How many final fits were copied.
    """
    count = 0
    for path in (folder / "store.sqlite" for folder in folders):
        if path.exists():
            with suppress(InputError), Store(path) as other:
                count += sum(_take(cell, store, other) for cell in cells)
    return count


def _take(cell: Cell, store: Store, other: Store) -> int:
    """Copy the splits of a cell that succeeded, each with its search; give their number."""
    if other.fit_hash(cell.key) != fit_hash(cell):
        return 0
    begun = {row.split for stage in ("final", "search") for row in store.rows(stage, cell.key)}
    wanted = [row for row in other.rows("final", cell.key) if row.split in cell.splits and row.split not in begun]
    found = [row for row in wanted if row.status == "ok" and row.artefact]
    for row in found:
        folds = [Outcome(fold) for fold in other.rows("search", cell.key) if fold.split == row.split]
        store.append([*folds, _whole(cell, row, other)])
    return len(found)


def _whole(cell: Cell, row: Row, other: Store) -> Outcome:
    readings = tuple(reading for split, reading in other.readings(cell.key) if split == row.split)
    return Outcome(row, readings, artefacts.content(other.posteriors, str(row.artefact)))
