"""The folder of a run: its rows and its posteriors, while it runs and when it is published.

`rows.parquet` has the rows of a published run. A run that is under way appends segments,
``rows/000001.parquet`` and so on, each a group of fits: a segment is written and synced whole or
not at all, also after SIGKILL or a power cut, and a posterior before the row that names it. A row
of a later segment takes the place of one with its key, or says that it is no more. After some
hundreds of segments, and when the run ends, they are put into `rows.parquet`, which names the last
of them that it has; what a kill leaves of them is then ignored. Segments are numbered under a
lock, so that two writers neither lose a row nor store one twice. A reader needs no lock.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from bdl.errors import InputError
from bdl.files import refuse_failed_writes, write_atomically
from bdl.records.posterior_files import PosteriorFiles
from bdl.records.row import STAGES, CellKey, CurvePoint, FitResult, Row, RowKey, Stage
from bdl.records.row_files import (
    CELL_COLUMNS,
    COMPACT_LEVEL,
    KEY_COLUMNS,
    REMOVED,
    SCHEMA,
    as_stored,
    code_keys,
    list_texts,
    make_removals,
    sort_curve_points,
    to_results,
    to_table,
    without_tracebacks,
    write_rows,
)
from bdl.records.segments import ROWS, FileState, SegmentFiles
from bdl.records.tables import FLAT_TABLE, tabulate_curve_points, tabulate_rows

ORIGIN_FIELDS = ("written", "git_commit", "python", "packages", "machine")
"""Fields of the provenance that an imported fit keeps: date, software and machine."""
_MAX_SEGMENTS = 200
"""Segments that are put into `ROWS` while a run is under way: each takes a millisecond to open."""


class StoredTwice(ValueError):
    """A row, or the identity of a cell, is there already: a fault of the program."""


class RunFolder:
    """Rows and posteriors of one run of a benchmark, and their request.

    It has no rows if the folder is not there; what is written first makes it. With `path` None, the rows
    are in memory alone. Leaving a ``with`` block puts what was written into one file. `InputError`
    by all methods if a file turns out to be damaged or the disk is full. `digests` are the SHA-256
    that files of the folder should have, by name. `posteriors` are those of the folder if left out.
    """

    def __init__(
        self,
        path: Path | None,
        digests: Mapping[str, str] | None = None,
        posteriors: PosteriorFiles | None = None,
    ) -> None:
        self._files = None if path is None else SegmentFiles(path, digests or {})
        self.path = path or Path("memory")
        self._posteriors = posteriors
        self._claims: dict[CellKey, str | None] = {}
        self._is_written = False
        self._request: str | None = None
        self._start_from(SCHEMA.empty_table(), None, 0)
        self._state: FileState | None = None

    @classmethod
    def of_table(cls, path: Path, table: pa.Table, request: str | None) -> "RunFolder":
        """Return a folder to read, with the rows of a table and the posteriors at a path."""
        folder = cls(None)
        folder.path = path
        folder._start_from(table, request, 0)
        folder._state = ()
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_written:
            with suppress(InputError):  # the segments have all rows
                self.compact()

    @cached_property
    def posteriors(self) -> PosteriorFiles:
        """The posteriors."""
        return self._posteriors or PosteriorFiles(self.path / "posteriors")

    @property
    def checkpoints(self) -> Path:
        """Folder of what long fits go on from after an interruption."""
        return self.path / "checkpoints"

    @property
    def request_text(self) -> str | None:
        """JSON of the request that the rows were made with; None before `record_request`."""
        self._load_once()
        return self._request

    def record_request(self, request_text: str) -> None:
        """Record the JSON of the request that the rows are made with: that of the last run."""
        if request_text != self.request_text:
            with self._writing():
                self._request = request_text
                self._write_segment(SCHEMA.empty_table())

    @property
    def has_rows(self) -> bool:
        """Whether there is any row."""
        return any(self.list_cells())

    def list_cells(self) -> list[CellKey]:
        """List the keys of cells with rows, in the order of the file."""
        self._load_once()
        cells = [cell for cell in self._row_numbers if cell not in self._results]
        cells += [cell for cell, results in self._results.items() if results]
        order = {cell: number for number, cell in enumerate(self._row_numbers)}
        return sorted(cells, key=lambda cell: order.get(cell, len(order)))

    def find_fit_hash(self, cell: CellKey) -> str | None:
        """Look up the hash that a cell's fits were made under; None if it has none."""
        self._load_once()
        if cell in self._claims or cell in self._results:
            return self._claims.get(cell)
        numbers = self._row_numbers.get(cell)
        return None if numbers is None else self._table["fit_hash"][int(numbers[0])].as_py()

    def claim(self, cell: CellKey, fit_hash: str) -> None:
        """Set the hash of a cell, which is stored with its first row.

        `StoredTwice` if the cell has one: it must not change under its rows.
        """
        if self.find_fit_hash(cell) is not None:
            raise StoredTwice(f"{cell} has an identity")
        self._claims[cell] = fit_hash

    def forget(self, cells: Iterable[CellKey]) -> None:
        """Remove the cells' rows, scores and hashes; posteriors stay."""
        with self._writing():
            removals: list[FitResult] = []
            for cell in cells:
                removals += make_removals(cell, self._results_of(cell))
                self._claims.pop(cell, None)
            self._write_results(removals)

    def remove(self, rows: Iterable[Row]) -> None:
        """Remove rows with their scores and curves, so that their fits are made again.

        Posteriors stay.
        """
        with self._writing():
            removals: list[FitResult] = []
            for row in rows:
                if row.key in self._results_of(row.cell):
                    removals += make_removals(row.cell, [row.key])
            self._write_results(removals)

    def append(self, results: Sequence[FitResult]) -> None:
        """Add the results of a group, all or none.

        Posteriors are safe on disk before the rows that name them. `StoredTwice` if one of the
        rows is there.
        """
        # Before the lock: a power cut may leave a posterior without a row, never a row whose
        # posterior is missing; and the lock is not held while files are synced.
        stored: list[FitResult] = []
        for row, curve_points, content in results:
            if content:
                row = replace(row, artefact=self.posteriors.write(content))
            points = tuple(sort_curve_points(curve_points)) if curve_points else ()
            stored.append(FitResult(row, points))
        with self._writing():
            keys = set[tuple[CellKey, RowKey]]()
            for row, *_ in stored:
                if row.key in self._results_of(row.cell) or (row.cell, row.key) in keys:
                    raise StoredTwice(f"{row.cell}, {row.key} is there")
                keys.add((row.cell, row.key))
            self._write_results(stored)

    def replace_scores(self, rows: Sequence[Row]) -> None:
        """Write the scores of rows anew, all or none.

        Their fits, and scores that are not given, stay as they are.
        """
        with self._writing():
            changed: list[FitResult] = []
            for row in rows:
                stored = self._results_of(row.cell)[row.key]
                # a score that was refused before may succeed now: its old reason must not stay
                refusals = _without(stored.row.refusals, row.metrics)
                rescored = replace(
                    stored.row,
                    metrics=_without(stored.row.metrics, row.metrics) | row.metrics,
                    score_hashes=_without(stored.row.score_hashes, row.metrics) | row.score_hashes,
                    refusals=refusals | row.refusals,
                )
                changed.append(stored._replace(row=rescored))
            self._write_results(changed)

    def load_rows(self, stage: Stage, cell: CellKey) -> list[Row]:
        """Load a cell's rows of one stage with their scores, in the order split, trial, fold."""
        return [result.row for result in self.load_results(cell) if result.row.stage == stage]

    def load_results(self, cell: CellKey) -> list[FitResult]:
        """Load a cell's rows and curves, those of the search first, by split, trial and fold."""
        self._load_once()
        results = self._results_of(cell)
        return [results[key] for key in sorted(results, key=_sort_key)]

    def list_artefacts(self, cell: CellKey) -> list[tuple[int, str, str | None]]:
        """List the split, the status and the artefact of each final row of a cell, by split."""
        self._load_once()
        if cell in self._results:
            return [(row.split, row.status, row.artefact) for row in self.load_rows("final", cell)]
        # from the columns: a store has many rows, of which no more is asked
        table = self.select([cell], ["final"]).select(["split", "status", "artefact"])
        artefacts: list[tuple[int, str, str | None]] = []
        for split, status, digest in zip(*table.to_pydict().values(), strict=True):
            artefacts.append((split, status, None if digest is None else digest.hex()))
        return artefacts

    def list_splits(self, cell: CellKey) -> tuple[int, ...]:
        """Return the splits of a cell that have final rows, in their order."""
        self._load_once()
        if cell in self._results:
            splits = [split for stage, split, *_ in self._results[cell] if stage == "final"]
            return tuple(sorted(splits))
        numbers = self._row_numbers.get(cell)
        if numbers is None:
            return ()
        finals = numbers[self._keys["stage"].to_numpy()[numbers] == STAGES.index("final")]
        return tuple(sorted(self._keys["split"].to_numpy()[finals].tolist()))

    def load_curve_points(self, cell: CellKey) -> list[tuple[int, CurvePoint]]:
        """Load the scores at recorded counts of a cell's final fits, each with its split."""
        points: list[tuple[int, CurvePoint]] = []
        for row, curve_points, _ in self.load_results(cell):
            if row.stage == "final":
                points += [(row.split, point) for point in curve_points]
        return points

    def select(
        self, cells: Iterable[CellKey] | None = None, stages: Collection[Stage] = STAGES
    ) -> pa.Table:
        """Select the rows of cells in `bdl.records.row_files.SCHEMA`, in their order.

        Those of a cell are in the order stage, split, trial and fold. Without cells, all rows are
        selected, in the order of the file as long as no cell was read or written by itself.
        """
        self._load_once()
        if cells is None and not self._results:
            codes = [STAGES.index(stage) for stage in stages]
            return self._table.filter(pa.array(self._keys["stage"].isin(codes)))
        tables = [SCHEMA.empty_table()]
        numbers: list[NDArray[np.intp]] = []

        def take_rows() -> None:
            if numbers:
                tables.append(self._table.take(pa.array(np.concatenate(numbers))))
                numbers.clear()

        for cell in self.list_cells() if cells is None else cells:
            if cell in self._results:
                take_rows()
                results = [
                    result for result in self.load_results(cell) if result.row.stage in stages
                ]
                tables.append(to_table(results, {cell: self.find_fit_hash(cell)}))
            elif cell in self._row_numbers:
                numbers.append(self._sort_numbers(self._row_numbers[cell], stages))
        take_rows()
        return pa.concat_tables(tables).combine_chunks()

    def tabulate(
        self,
        cells: Iterable[CellKey] | None = None,
        stages: Sequence[Stage] = STAGES,
        details: Collection[str] = (),
        *,
        problems_of: Collection[str] | None = None,
    ) -> pd.DataFrame:
        """Tabulate rows of `select`, as `bdl.records.tables.tabulate_rows` does."""
        return tabulate_rows(self.select(cells, stages), details, problems_of=problems_of)

    def tabulate_curve_points(self, cells: Iterable[CellKey] | None = None) -> pd.DataFrame:
        """Tabulate the scores at recorded counts of cells, or of all."""
        return tabulate_curve_points(self.select(cells))

    def compact(self) -> None:
        """Put all segments into one file."""
        with self._writing():
            self._compact()

    def publish(self, folder: Path, cells: Sequence[CellKey]) -> Path:
        """Write the rows of cells as those of a published folder; return the path of their file.

        Tracebacks stay here, since they name folders of this machine. Beside it the same rows are
        written as `FLAT_TABLE`, for other programs.
        """
        path, table = folder / ROWS, without_tracebacks(self.select(cells))
        with refuse_failed_writes(path):
            write_rows(path, table, self._request, level=COMPACT_LEVEL)
            with write_atomically(folder / FLAT_TABLE) as new_path:
                tabulate_rows(table).to_parquet(new_path, index=False)
        return path

    def _load_once(self) -> None:
        if self._state is None:
            self._load()

    def _load(self) -> None:
        if self._files is None:
            self._state = ()
            return
        # before the files are read: what comes in between is noticed by the next writer
        state = self._files.describe()
        self._start_from(*self._files.read())
        self._state = state

    def _start_from(self, table: pa.Table, request: str | None, last_segment: int) -> None:
        """Start from the rows of a table."""
        self._table, self._last_segment = table, last_segment
        self._request = request
        self._results: dict[CellKey, dict[RowKey, FitResult]] = {}
        self.__dict__.pop("_keys", None)
        self.__dict__.pop("_row_numbers", None)

    @cached_property
    def _keys(self) -> pd.DataFrame:
        """Keys of the rows of the table as numbers."""
        return code_keys(self._table)

    @cached_property
    def _row_numbers(self) -> dict[CellKey, NDArray[np.intp]]:
        """Numbers of the rows of each cell in the table."""
        groups = self._keys.groupby(list(CELL_COLUMNS), sort=False).indices
        datasets, entries, points = (list_texts(self._table, name) for name in CELL_COLUMNS)
        numbers: dict[CellKey, NDArray[np.intp]] = {}
        codes: Any
        for codes, rows in groups.items():
            cell = datasets[codes[0]], entries[codes[1]], points[codes[2]]
            numbers[cell] = np.asarray(rows)
        first_rows = sorted(numbers, key=lambda cell: numbers[cell][0])
        return {cell: numbers[cell] for cell in first_rows}

    def _sort_numbers(
        self, numbers: NDArray[np.intp], stages: Collection[Stage]
    ) -> NDArray[np.intp]:
        keys = self._keys.iloc[numbers]
        chosen = keys["stage"].isin([STAGES.index(stage) for stage in stages])
        keys, numbers = keys[chosen], numbers[chosen.to_numpy()]
        return numbers[np.lexsort([keys[name] for name in reversed(KEY_COLUMNS)])]

    def _results_of(self, cell: CellKey) -> dict[RowKey, FitResult]:
        """Return the results of a cell by key; they are read from the table once."""
        if cell not in self._results:
            numbers = self._row_numbers.get(cell)
            if numbers is None:
                self._results[cell] = {}
            else:
                # before the rows leave the table, which has their hash
                self._claims.setdefault(cell, self.find_fit_hash(cell))
                results = to_results(self._table.take(pa.array(numbers)))
                self._results[cell] = {result.row.key: result for result in results}
        return self._results[cell]

    def _write_results(self, results: Sequence[FitResult]) -> None:
        """Write a segment of results, and then take them over in memory."""
        if not results:
            return
        hashes = {row.cell: self.find_fit_hash(row.cell) for row, *_ in results}
        results = [result._replace(row=as_stored(result.row)) for result in results]
        self._write_segment(to_table(results, hashes))
        for result in results:
            by_key = self._results_of(result.row.cell)
            if result.row.status == REMOVED:
                by_key.pop(result.row.key, None)
            else:
                by_key[result.row.key] = result

    def _write_segment(self, table: pa.Table) -> None:
        self._last_segment += 1
        if self._files is not None:
            self._files.write_segment(self._last_segment, table, self._request)
            self._is_written = True

    def _compact(self) -> None:
        if self._files is not None:
            self._files.compact(self._last_segment, self.select(), self._request)
            self._is_written = False

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock of the writers, with the rows of all of them."""
        self._load_once()
        if self._files is None:
            yield
            return
        with self._files.lock():
            try:
                if self._state is None or self._state != self._files.describe():
                    self._load()
                yield
                if len(self._files.list_segments()) > _MAX_SEGMENTS:
                    self._compact()
                self._state = self._files.describe()
            except BaseException:
                self._state = None  # the rows that are on the disk count, and are read again
                raise


def _sort_key(key: RowKey) -> tuple[int, int, int, int]:
    return STAGES.index(key[0]), *key[1:]


def _without(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
