"""The store of a run: an append-only SQLite file, and a folder of posteriors.

A group of trials is one transaction.
A posterior is written and synced before the row that names it; a group's rows appear together or
not at all, also after SIGKILL or a power cut; the primary key makes a second copy of a row
impossible. A fit is never written anew: its scores are in a table of their own, each with the hash
of what computed it.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from math import isfinite, nan
from pathlib import Path
from sys import intern
from typing import Any, Self

from bdl.errors import InputError
from bdl.store import (
    HYPER_PREFIX,
    ROWS_PER_FETCH,
    CellKey,
    CurvePoint,
    FitResult,
    Row,
    Stage,
    artefacts,
    join_refusals,
)

_CELL_COLUMNS = ("dataset", "entry", "point")
_ROW_COLUMNS = (*_CELL_COLUMNS, "stage", "split", "trial", "fold")
_BODY_FIELDS = ("reason", "hyper", "seconds", "details")
_ROW_COLUMN_TYPES = (
    "dataset TEXT, entry TEXT, point TEXT, stage TEXT, split INTEGER, trial INTEGER, fold INTEGER"
)

_ROW_TABLES = ("points", "scores", "refusals", "fits")
"""Tables with rows of a fit."""

_FORMAT_VERSION = 2
"""Version of the tables; a store of another one is refused."""

_PRIMARY_KEY = ", ".join(_ROW_COLUMNS)

# queries name a cell, with which all primary keys begin: they need no other index
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS cells (
    dataset TEXT, entry TEXT, point TEXT, fit_hash TEXT NOT NULL,
    PRIMARY KEY (dataset, entry, point));
CREATE TABLE IF NOT EXISTS fits (
    {_ROW_COLUMN_TYPES}, status TEXT NOT NULL, body TEXT NOT NULL, artefact TEXT,
    PRIMARY KEY ({_PRIMARY_KEY}));
CREATE TABLE IF NOT EXISTS scores (
    {_ROW_COLUMN_TYPES}, metric TEXT, value REAL, code TEXT NOT NULL,
    PRIMARY KEY ({_PRIMARY_KEY}, metric));
CREATE TABLE IF NOT EXISTS points (
    {_ROW_COLUMN_TYPES}, axis TEXT, at INTEGER, metric TEXT, value REAL,
    PRIMARY KEY ({_PRIMARY_KEY}, axis, at, metric));
CREATE TABLE IF NOT EXISTS refusals (
    {_ROW_COLUMN_TYPES}, metric TEXT, reason TEXT NOT NULL, PRIMARY KEY ({_PRIMARY_KEY}, metric));
CREATE TABLE IF NOT EXISTS made (variant TEXT NOT NULL);
"""


class Store:
    """Rows of one run of a benchmark, and their request, in an SQLite file.

    The file is made if it is missing. Posteriors are in the folder ``posteriors`` beside it.
    `InputError` if the file cannot be written, is not a store, or is one of another version; all
    methods raise it if the file turns out to be damaged or the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without transactions of the driver's own: those of a group begin and end in
            # `_transaction`.
            self._db = sqlite3.connect(path, isolation_level=None)
            with self._with_one_line_errors():
                self._check_format()
                self._db.executescript(_SCHEMA)
        except OSError as error:
            raise InputError(
                f"cannot write {path}: {error.strerror}; choose another --results"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    @property
    def posteriors(self) -> Path:
        """Folder of the artefacts."""
        return self.path.parent / "posteriors"

    @property
    def checkpoints(self) -> Path:
        """Folder of what long fits go on from after an interruption."""
        return self.path.parent / "checkpoints"

    @property
    def recorded_request(self) -> str | None:
        """JSON of the request that the rows were made with; None before `record_request`."""
        texts = self._select("SELECT variant FROM made")
        return texts[0][0] if texts else None

    def record_request(self, request_text: str) -> None:
        """Record the JSON of the request that the rows are made with."""
        with self._transaction():
            # one request a store: that of the last run
            self._db.execute("DELETE FROM made")
            self._insert("made", [(request_text,)])

    @property
    def has_rows(self) -> bool:
        """Whether there is any row."""
        return bool(self._select("SELECT 1 FROM fits LIMIT 1"))

    def find_fit_hash(self, cell: CellKey) -> str | None:
        """Look up the hash that a cell's fits were made under; None if it has none."""
        hashes = self._select(
            f"SELECT fit_hash FROM cells WHERE {_format_condition(_CELL_COLUMNS)}", cell
        )
        return hashes[0][0] if hashes else None

    def claim(self, cell: CellKey, fit_hash: str) -> None:
        """Record the hash of a cell before its first row."""
        with self._with_one_line_errors():
            # a plain INSERT: the hash of a cell that has one must not change under its rows
            self._insert("cells", [(*cell, fit_hash)])

    def forget(self, cells: Iterable[CellKey]) -> None:
        """Remove the cells' rows, scores and hashes; posteriors stay."""
        with self._transaction():
            for cell in cells:
                for table in (*_ROW_TABLES, "cells"):
                    self._db.execute(
                        f"DELETE FROM {table} WHERE {_format_condition(_CELL_COLUMNS)}", cell
                    )

    def remove(self, rows: Iterable[Row]) -> None:
        """Remove rows with their scores and curves, so that their fits are made again.

        Posteriors stay.
        """
        with self._transaction():
            for row in rows:
                for table in _ROW_TABLES:
                    self._db.execute(
                        f"DELETE FROM {table} WHERE {_format_condition(_ROW_COLUMNS)}",
                        _row_key(row),
                    )

    def append(self, results: Sequence[FitResult]) -> None:
        """Add the results of a group, all or none.

        Posteriors are safe on disk before the rows that name them.
        """
        # Before the transaction: a power cut may leave a posterior without a row, never a row
        # whose posterior is missing; and the lock is not held while files are synced.
        rows = []
        for row, _, content in results:
            if content:
                row = replace(row, artefact=artefacts.write_posterior(self.posteriors, content))
            rows.append(row)
        with self._transaction():
            for row, (_, curve_points, _) in zip(rows, results, strict=True):
                key = _row_key(row)
                body = json.dumps({name: getattr(row, name) for name in _BODY_FIELDS})
                self._insert("fits", [(*key, row.status, body, row.artefact)])
                self._insert("scores", _list_score_rows(row))
                self._insert("refusals", _list_refusal_rows(row))
                self._insert(
                    "points",
                    [(*key, *point[:3], _finite_or_none(point.value)) for point in curve_points],
                )

    def rescore(self, rows: Sequence[Row]) -> None:
        """Write the scores of rows anew, all or none.

        Their fits, and scores that are not given, stay as they are.
        """
        with self._transaction():
            for row in rows:
                # a score that was refused before may succeed now; its old reason must not stay
                for metric in row.metrics:
                    condition = _format_condition((*_ROW_COLUMNS, "metric"))
                    self._db.execute(
                        f"DELETE FROM refusals WHERE {condition}", (*_row_key(row), metric)
                    )
                self._insert("refusals", _list_refusal_rows(row))
                self._insert("scores", _list_score_rows(row), "OR REPLACE")

    def load_rows(self, stage: Stage, cell: CellKey) -> list[Row]:
        """Read a cell's rows of one stage with their scores, in the order split, trial, fold."""
        where, arguments = (
            f"WHERE stage = ? AND {_format_condition(_CELL_COLUMNS)}",
            (stage, *cell),
        )
        # one query a table, rather than one a row: a cell may have thousands of rows
        metrics = self._group_by_fit(f"value FROM scores {where}", arguments)
        score_hashes = self._group_by_fit(f"code FROM scores {where}", arguments)
        refusals = self._group_by_fit(f"reason FROM refusals {where}", arguments)
        query = (
            f"SELECT split, trial, fold, status, body, artefact FROM fits {where} "
            "ORDER BY split, trial, fold"
        )
        rows = []
        for split, trial, fold, status, body, artefact in self._select(query, arguments):
            key = split, trial, fold
            row = Row(
                *(*cell, stage, *key, status),
                **json.loads(body),
                metrics=metrics.get(key, {}),
                score_hashes=score_hashes.get(key, {}),
                artefact=artefact,
                refusals=refusals.get(key, {}),
            )
            rows.append(row)
        return rows

    def iterate_columns(
        self, stage: Stage, cell: CellKey, *, problems: bool = False
    ) -> Iterator[dict[str, list[Any]]]:
        """Read a cell's rows of one stage by column, some hundreds at a time.

        The order is that of `load_rows`; with `problems` there are only the rows that have one
        (`bdl.store.Row.problem`). The columns are split, trial, fold, status, reason, seconds,
        ``hyper_<name>``, metrics and details, with NaN where a row has no value.
        """
        where, arguments = (
            f"WHERE stage = ? AND {_format_condition(_CELL_COLUMNS)}",
            (stage, *cell),
        )
        query = f"SELECT metric FROM scores {where} GROUP BY metric ORDER BY MIN(rowid)"
        metrics = [metric for (metric,) in self._select(query, arguments)]
        # a subquery for each metric, answered by the primary key, and read with the row itself
        value_query = f", (SELECT value FROM scores WHERE {_format_join('scores')} AND metric = ?)"
        values = value_query * len(metrics)
        condition = (
            "AND (status != 'ok' OR EXISTS "
            f"(SELECT 1 FROM refusals WHERE {_format_join('refusals')}))"
            if problems
            else ""
        )
        refusals = self._group_by_fit(f"reason FROM refusals {where}", arguments)
        query = (
            f"SELECT split, trial, fold, status, body{values} FROM fits {where} {condition} "
            "ORDER BY split, trial, fold"
        )
        with self._with_one_line_errors():
            scores_of_fits = self._db.execute(query, (*metrics, *arguments))
            while rows := scores_of_fits.fetchmany(ROWS_PER_FETCH):
                split, trial, fold, status, texts, *scores = map(list, zip(*rows, strict=True))
                # one call for some hundreds of texts is several times as fast as one for each
                bodies = json.loads(f"[{','.join(texts)}]")
                reasons = (
                    join_refusals(refusals.get(key, {}))
                    for key in zip(split, trial, fold, strict=True)
                )
                yield {
                    **{
                        "split": split,
                        "trial": trial,
                        "fold": fold,
                        "status": [*map(intern, status)],
                    },
                    "reason": [
                        body["reason"] or reason
                        for body, reason in zip(bodies, reasons, strict=True)
                    ],
                    "seconds": [body["seconds"] for body in bodies],
                    **_gather_columns([body["hyper"] for body in bodies], HYPER_PREFIX),
                    **dict(
                        zip(
                            metrics,
                            ([nan if v is None else v for v in arguments] for arguments in scores),
                            strict=True,
                        )
                    ),
                    **_gather_columns([body["details"] for body in bodies]),
                }

    def list_artefacts(self, cell: CellKey) -> list[tuple[int, str, str | None]]:
        """List the split, the status and the artefact of each final row of a cell, by split."""
        query = (
            "SELECT split, status, artefact FROM fits WHERE stage = 'final' "
            f"AND {_format_condition(_CELL_COLUMNS)} ORDER BY split"
        )
        return self._select(query, cell)

    def list_splits(self, cell: CellKey) -> tuple[int, ...]:
        """Return the splits of a cell that have final rows, in their order."""
        return tuple(split for split, *_ in self.list_artefacts(cell))

    def load_curve_points(self, cell: CellKey) -> list[tuple[int, CurvePoint]]:
        """Read the scores at recorded counts of a cell's final fits, each with its split."""
        points = self._select(
            "SELECT split, axis, at, metric, value FROM points WHERE stage = 'final' "
            f"AND {_format_condition(_CELL_COLUMNS)} ORDER BY split, axis, at, rowid",
            cell,
        )
        return [
            (split, CurvePoint(axis, at, metric, nan if value is None else value))
            for split, axis, at, metric, value in points
        ]

    def _group_by_fit(
        self, columns: str, arguments: Sequence[Any]
    ) -> dict[tuple[int, int, int], dict[str, Any]]:
        by_fit: dict[tuple[int, int, int], dict[str, Any]] = {}
        query = f"SELECT split, trial, fold, metric, {columns} ORDER BY rowid"
        for split, trial, fold, metric, value in self._select(query, arguments):
            by_fit.setdefault((split, trial, fold), {})[metric] = value
        return by_fit

    def _check_format(self) -> None:
        (stored_format,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if tables and stored_format != _FORMAT_VERSION:
            raise InputError(
                f"{self.path} was written by another version of bdl-bench; "
                "move it away and run again"
            )
        if not tables:
            self._db.execute(f"PRAGMA user_version = {_FORMAT_VERSION}")

    def _select(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._with_one_line_errors():
            return self._db.execute(query, values).fetchall()

    def _insert(self, table: str, rows: Sequence[tuple[Any, ...]], conflict: str = "") -> None:
        if rows:
            # Without a row the number of columns is not known.
            marks = ", ".join("?" * len(rows[0]))
            self._db.executemany(f"INSERT {conflict} INTO {table} VALUES ({marks})", rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._with_one_line_errors():
            # At once with the lock: a transaction that reads first and then writes may find a
            # second writer in between, and can only fail then.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have ended the transaction already
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _with_one_line_errors(self) -> Iterator[None]:
        """Describe a damaged file or a full disk in one line.

        A row that comes twice is a fault of the program.
        """
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.OperationalError as error:
            raise InputError(
                f"cannot use {self.path} ({error}); what it holds is safe: "
                "mend that, and the same command goes on"
            ) from None
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"cannot use {self.path} as a store ({error}); "
                "move it away or choose another --results"
            ) from None


def _gather_columns(
    mappings: Sequence[Mapping[str, Any]], prefix: str = ""
) -> dict[str, list[Any]]:
    names = dict.fromkeys(chain.from_iterable(mappings))
    return {prefix + name: [mapping.get(name, nan) for mapping in mappings] for name in names}


def _format_condition(names: Iterable[str]) -> str:
    return " AND ".join(f"{name} = ?" for name in names)


def _format_join(table: str) -> str:
    """Write the condition that a row of another table belongs to a row of `fits`."""
    return " AND ".join(f"{table}.{name} = fits.{name}" for name in _ROW_COLUMNS)


def _row_key(row: Row) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in _ROW_COLUMNS)


def _finite_or_none(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else value


def _list_score_rows(row: Row) -> list[tuple[Any, ...]]:
    return [
        (*_row_key(row), name, _finite_or_none(value), row.score_hashes.get(name, ""))
        for name, value in row.metrics.items()
    ]


def _list_refusal_rows(row: Row) -> list[tuple[Any, ...]]:
    return [(*_row_key(row), metric, reason) for metric, reason in row.refusals.items()]
