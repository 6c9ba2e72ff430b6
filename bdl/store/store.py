"""The append-only store of a run: one SQLite file, one transaction a group of trials.

A group's rows and predictions appear together or not at all, also after SIGKILL or a power cut; the primary
key makes a second copy of a row impossible. The one thing that is written anew is the metrics of a row.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bdl.errors import InputError

Stage = Literal["search", "final"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
    dataset TEXT, entry TEXT, fingerprint TEXT NOT NULL, PRIMARY KEY (dataset, entry));
CREATE TABLE IF NOT EXISTS trials (
    dataset TEXT, entry TEXT, stage TEXT, split INTEGER, trial INTEGER, fold INTEGER,
    status TEXT NOT NULL, row TEXT NOT NULL, predictions BLOB,
    PRIMARY KEY (dataset, entry, stage, split, trial, fold));
"""


@dataclass(frozen=True)
class Row:
    """Outcome of one trial.

    Parameters
    ----------
    dataset, entry, stage, split, trial, fold
        Which trial: a fold of a search setting, or the final fit of a split (trial 0, fold 0).
    status
        ``"ok"`` or ``"failed"``.
    reason
        Why it failed.
    hyper
        Hyper-parameters.
    metrics
        Values by metric; for a search row the validation score.
    seconds
        Its share of the wall time of its group.
    details
        How it was run: updates, group width, device, compiled, traceback.
    predictions
        Model outputs (S, n_test), original units; kept for final fits.
    """

    dataset: str
    entry: str
    stage: Stage
    split: int
    trial: int
    fold: int
    status: Literal["ok", "failed"]
    reason: str | None
    hyper: dict[str, float]
    metrics: dict[str, float | None]
    seconds: float
    details: dict[str, Any]
    predictions: NDArray[np.floating[Any]] | None = field(default=None, repr=False, compare=False)


_KEY = ("dataset", "entry", "stage", "split", "trial", "fold", "status")
_BODY = ("reason", "hyper", "metrics", "seconds", "details")


class Store:
    """Rows of one benchmark under one profile.

    Parameters
    ----------
    path
        The SQLite file; made with its folder if missing.

    Raises
    ------
    InputError
        If the file cannot be written or is not a store.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.executescript(_SCHEMA)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}; choose another --results") from None
        except sqlite3.Error as error:
            raise InputError(
                f"cannot use {path} as a store ({error}); move it away or choose another --results"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._db.close()

    def fingerprint(self, dataset: str, entry: str) -> str | None:
        """Give the fingerprint that a cell's rows were made under, None if it has none."""
        found = self._db.execute(
            "SELECT fingerprint FROM cells WHERE dataset = ? AND entry = ?", (dataset, entry)
        ).fetchone()
        return found[0] if found else None

    def claim(self, dataset: str, entry: str, fingerprint: str) -> None:
        """Record the fingerprint of a cell before its first row."""
        self._db.execute("INSERT INTO cells VALUES (?, ?, ?)", (dataset, entry, fingerprint))

    def forget(self, cells: Iterable[tuple[str, str]]) -> None:
        """Remove the cells' rows and fingerprints."""
        with self._transaction():
            for cell in cells:
                self._db.execute("DELETE FROM trials WHERE dataset = ? AND entry = ?", cell)
                self._db.execute("DELETE FROM cells WHERE dataset = ? AND entry = ?", cell)

    def append(self, rows: Sequence[Row]) -> None:
        """Add a group of rows, all or none."""
        with self._transaction():
            self._db.executemany(
                "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(getattr(row, name) for name in _KEY),
                        _body(row),
                        _packed(row.predictions),
                    )
                    for row in rows
                ],
            )

    def update(self, rows: Sequence[Row]) -> None:
        """Write the metrics of rows that are there anew, all or none; status and predictions stay."""
        with self._transaction():
            self._db.executemany(
                f"UPDATE trials SET row = ? WHERE {' AND '.join(f'{name} = ?' for name in _KEY)}",
                [(_body(row), *(getattr(row, name) for name in _KEY)) for row in rows],
            )

    def rows(self, stage: Stage, dataset: str, entry: str) -> list[Row]:
        """Read a cell's rows of one stage, in the order split, trial, fold; without predictions."""
        found = self._db.execute(
            f"SELECT {', '.join(_KEY)}, row FROM trials WHERE stage = ? AND dataset = ? AND entry = ? "
            "ORDER BY split, trial, fold",
            (stage, dataset, entry),
        )
        return [Row(*key, **json.loads(body)) for *key, body in found]

    def predictions(self, dataset: str, entry: str, split: int) -> NDArray[np.floating[Any]] | None:
        """Read the predictions of a final fit, None if it failed or is not there."""
        found = self._db.execute(
            "SELECT predictions FROM trials WHERE stage = 'final' AND dataset = ? AND entry = ? AND split = ?",
            (dataset, entry, split),
        ).fetchone()
        if found is None or found[0] is None:
            return None
        values: NDArray[np.floating[Any]] = np.load(BytesIO(found[0]), allow_pickle=False)
        return values

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._db)


class _Transaction:
    """BEGIN and COMMIT, or ROLLBACK if the block raises."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _body(row: Row) -> str:
    return json.dumps({name: getattr(row, name) for name in _BODY})


def _packed(predictions: NDArray[np.floating[Any]] | None) -> bytes | None:
    if predictions is None:
        return None
    buffer = BytesIO()
    np.save(buffer, predictions, allow_pickle=False)
    return buffer.getvalue()
