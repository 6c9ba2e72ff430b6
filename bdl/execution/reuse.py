"""Fits that other runs of the same benchmark have made already, under other narrowings or overrides."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.fingerprint import fit_hash
from bdl.store import artefacts
from bdl.store.anew import Damaged
from bdl.store.rows import CellKey, Outcome, Row, Stage
from bdl.store.store import Store

_STAGES: tuple[Stage, ...] = ("search", "final")


def reuse_fits(cells: Sequence[Cell], store: Store, folders: Iterable[Path]) -> int:
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


def reusable(cells: Sequence[Cell], store: Store, folders: Iterable[Path]) -> dict[CellKey, set[int]]:
    """List the splits of each cell that `reuse_fits` would copy; arguments as there."""
    found: dict[CellKey, set[int]] = {cell.key: set() for cell in cells}
    for path in (folder / "store.sqlite" for folder in folders):
        if path.exists():
            with suppress(InputError), Store(path) as other:
                for cell in cells:
                    found[cell.key] |= {row.split for row in _wanted(cell, store, other)}
    return found


def _take(cell: Cell, store: Store, other: Store) -> int:
    """Copy the splits of a cell that succeeded, each with its search; give their number."""
    count = 0
    for row in _wanted(cell, store, other):
        folds = [Outcome(fold) for fold in other.rows("search", cell.key) if fold.split == row.split]
        with suppress(Damaged):  # it is made here
            store.append([*folds, _whole(cell, row, other)])
            count += 1
    return count


def _wanted(cell: Cell, store: Store, other: Store) -> list[Row]:
    """Find the final rows of a cell that succeeded there, and of whose splits the store holds nothing."""
    if other.fit_hash(cell.key) != fit_hash(cell):
        return []
    begun = {row.split for stage in _STAGES for row in store.rows(stage, cell.key)}
    wanted = [row for row in other.rows("final", cell.key) if row.split in cell.splits and row.split not in begun]
    return [row for row in wanted if row.artefact and artefacts.is_whole(other.posteriors, row.artefact)]


def _whole(cell: Cell, row: Row, other: Store) -> Outcome:
    readings = tuple(reading for split, reading in other.readings(cell.key) if split == row.split)
    return Outcome(row, readings, artefacts.content(other.posteriors, str(row.artefact)))
