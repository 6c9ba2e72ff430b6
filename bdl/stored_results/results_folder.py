"""A folder of results: the run folder in which a run works, its store, a published one, or both.

Published rows are what tables show, until a run publishes again. Failures, timings, posteriors and
exports come from the store, where there is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from bdl.errors import InputError
from bdl.plan.planning import list_tasks
from bdl.plan.task import Task
from bdl.records.row import STAGES, CellKey, Row, Stage
from bdl.records.run_folder import RunFolder
from bdl.records.segments import ROWS
from bdl.records.tables import list_cell_keys
from bdl.spec import Benchmark, Request, load_request
from bdl.spec.sections import Note
from bdl.stored_results.folders import (
    STORE,
    has_published_rows,
    has_store,
    open_published,
    open_store,
    read_provenance,
)

if TYPE_CHECKING:
    from torch import Tensor

    from bdl.execution.estimate import Basis, MeasuredFit
    from bdl.posteriors import Posterior


FIELDS_WITHOUT_EFFECT = ("title", "papers", "notes", "claims", "elsewhere", "baseline")
"""Fields that decide no number: tables show what the file says now."""

LEGACY_NOTE = (
    "Legacy code: made by an earlier version; today's code has not been seen to give the same "
    "numbers."
)
"""Note of published cells without an identity."""


class FailedFits(NamedTuple):
    """Fits of one stage of one cell that failed, or lack a score, for one reason."""

    cell: str
    """Label of the cell."""
    stage: str
    splits: tuple[int, ...]
    """Splits with such a fit."""
    fits: int
    """Number of such fits."""
    reason: str
    traceback: str
    """Of the first such fit that has one; empty where a fit diverged, and for published rows."""


class ResultsFolder:
    """The results in a folder for the data sets and entries of a request.

    `request` is the benchmark as its file is now, with the overrides and the part of the run, or
    with a narrower part; None for what the rows themselves say. With `prefer_store`, rows are read
    from the store where both are there: a run may have added some since it published. Members that
    read a damaged file raise `InputError`.
    """

    def __init__(
        self, folder: Path, request: Request | None = None, *, prefer_store: bool = False
    ) -> None:
        self.folder = folder
        self._has_published, self._has_store = has_published_rows(folder), has_store(folder)
        self.reads_published_rows = self._has_published and not (prefer_store and self._has_store)
        self.path = folder / (ROWS if self.reads_published_rows else STORE)
        self._given_request = request
        self._selections: tuple[Sequence[str], Sequence[str]] = (
            (request.datasets, request.entries) if request else ((), ())
        )

    @cached_property
    def store(self) -> RunFolder | None:
        """The run folder in which a run works; None if there is none."""
        return open_store(self.folder) if self._has_store else None

    @cached_property
    def records(self) -> RunFolder:
        """The run folder whose rows tables show."""
        if self.reads_published_rows:
            return open_published(self.folder)
        if self.store is None:
            raise InputError(f"no results in {self.folder}")
        return self.store

    @property
    def has_rows(self) -> bool:
        """Whether there is any row: a run that was stopped at once leaves an empty store."""
        return self._has_published or bool(self.store and self.store.has_rows)

    @cached_property
    def original_request(self) -> Request | None:
        """The request that the rows were made with.

        None if they do not say so, as those of earlier versions.
        """
        text = self.records.request_text
        return Request.parse(text, str(self.path)) if text else None

    @cached_property
    def request(self) -> Request:
        """The benchmark as its file is now, with the overrides and the part that are shown.

        Without one that was given, it is what the rows say.
        """
        if self._given_request:
            return self._given_request
        return (
            replace(self.original_request, source=self.original_request.benchmark.name)
            if self.original_request
            else load_request(self.folder.name)
        )

    @cached_property
    def recorded_request(self) -> Request:
        """The request that the rows were made with, as tables show it.

        That of these results if the rows do not say.
        """
        recorded = (
            _with_current_texts(self.original_request, self.request)
            if self.original_request
            else self.request
        )
        if self.reads_published_rows:
            with suppress(InputError):  # a damaged provenance, without which the rows are shown
                recorded = _with_legacy_notes(recorded, self.provenance.get("fit_hashes", {}))
        if self.request.is_narrowed and not recorded.is_narrowed:  # to a part of the whole
            return replace(recorded, datasets=self.request.datasets, entries=self.request.entries)
        return recorded

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Where the published rows came from; empty if nothing says so."""
        return read_provenance(self.folder)

    @cached_property
    def stored_tasks(self) -> list[Task]:
        """Cells that have final rows in the store, with the splits that have them."""
        tasks = (
            list_stored_tasks(self.recorded_request.benchmark, self.store) if self.store else []
        )
        datasets, entries = self._selections
        selected = [task for task in tasks if not datasets or str(task.dataset) in datasets]
        return [task for task in selected if not entries or task.entry in entries]

    @property
    def final_rows(self) -> pd.DataFrame:
        """Final rows."""
        if self.reads_published_rows:
            return self._tabulate(["final"])
        return tabulate_final_rows(self.stored_tasks, self.records)

    @property
    def curve_points(self) -> pd.DataFrame:
        """Scores at recorded counts."""
        return self._select_part(self.records.tabulate_curve_points(self._cells))

    def load_rows(self, *details: str) -> pd.DataFrame:
        """Load all rows, folds of the search as well, with further details as columns."""
        return self._tabulate(STAGES, details)

    def list_failed_fits(self) -> list[FailedFits]:
        """List fits that failed or lack scores, folds of the search as well, in the order of the
        cells.
        """
        benchmark = self.recorded_request.benchmark
        cells = list_tasks(benchmark)
        rows = self._tabulate(STAGES, ["traceback"], problems_of=[*map(str, benchmark.metrics)])
        labels = {cell.key: cell.label for cell in cells}
        columns = rows.reindex(columns=["stage", "split", "reason", "traceback"])
        # rows of earlier versions may have cells that the benchmark has no more
        columns["cell"] = [labels.get(key, "/".join(key[:2])) for key in list_cell_keys(rows)]
        columns["reason"] = columns.reason.fillna("no reason was kept")
        failures = []
        for (cell, stage, reason), cell_failures in columns.groupby(
            ["cell", "stage", "reason"], sort=False
        ):
            trace = next((text for text in cell_failures.traceback if isinstance(text, str)), "")
            failures.append(
                FailedFits(
                    str(cell),
                    str(stage),
                    tuple(sorted({*cell_failures.split})),
                    len(cell_failures),
                    str(reason),
                    trace,
                )
            )
        return failures

    def iterate_measured_fits(self, is_requested: bool) -> Iterator["MeasuredFit"]:
        """Yield the seconds and updates of the fits.

        `is_requested` is whether the folder is that of the run to be estimated. Fits that were
        imported from published rows do not count as its fits: another machine may have made them.
        """
        from bdl.execution.estimate import MeasuredFit  # with PyTorch, which tables do without

        rows = self.load_rows("origin")
        columns = ["stage", "split", "seconds", "width", "updates", "device", "compiled", "origin"]
        fits = list(
            zip(
                list_cell_keys(rows), rows.reindex(columns=columns).to_dict("records"), strict=True
            )
        )
        imported_fits = {
            (key, row["split"]) for key, row in fits if isinstance(row["origin"], dict)
        }
        for key, row in fits:
            # a fit that failed before it began has no width: NaN, which differs from itself
            if row["seconds"] > 0 and row["width"] == row["width"]:
                # updates are not counted everywhere
                updates = row["updates"] if row["updates"] == row["updates"] else 0.0
                is_same_run = (
                    is_requested
                    and not self.reads_published_rows
                    and (key, row["split"]) not in imported_fits
                )
                conditions = int(row["width"]), row["device"], bool(row["compiled"])
                basis: Basis = (
                    "the same cells"
                    if is_same_run
                    else "the same cells in other or published runs"
                )
                yield MeasuredFit(key, row["stage"], row["seconds"], updates, *conditions, basis)

    def load_posterior(
        self, task: Task, split: int
    ) -> "tuple[Posterior, Mapping[str, Tensor], Row]":
        """Load the posterior of a final fit, the buffers of its model, and its row.

        `InputError` if there is no such fit, or none in a store; it has no posterior, since it
        failed or was imported without one; or spec, data or code have changed.
        """
        from bdl.execution.scheduler import check_fit_hashes  # with PyTorch, as above

        rerun = f"bdl-bench run {self.recorded_request.command_arguments}"
        if self.store is None:
            rerun += " --published" if self.records.posteriors.pack.exists() else ""
            raise InputError(
                f"{self.folder} has published rows alone, without posteriors; "
                f"they come with: {rerun}"
            )
        check_fit_hashes([task], self.store)
        rows = {row.split: row for row in self.store.load_rows("final", task.key)}
        if split not in rows:
            available = f"there are {', '.join(map(str, rows))}" if rows else "there is none"
            raise InputError(f"{task.label} has no fit of split {split}; {available}")
        row = rows[split]
        if row.artefact is None:
            remedy = f"it was imported from published rows; make it by: {rerun} --fresh"
            raise InputError(
                f"{task.label}, split {split} has no posterior: {row.reason or remedy}"
            )
        return *self.store.posteriors.read(row.artefact), row

    @property
    def _cells(self) -> list[CellKey] | None:
        """Cells whose rows are shown, those of the benchmark; None for all that are published."""
        if self.reads_published_rows:
            return None
        return [task.key for task in list_tasks(self.recorded_request.benchmark)]

    def _tabulate(
        self,
        stages: Sequence[Stage],
        details: Sequence[str] = (),
        *,
        problems_of: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        table = self.records.tabulate(self._cells, stages, details, problems_of=problems_of)
        return self._select_part(table)

    def _select_part(self, table: pd.DataFrame) -> pd.DataFrame:
        for column, names in zip(("dataset", "entry"), self._selections, strict=True):
            table = table[table[column].isin(names)] if names else table
        return table


def tabulate_final_rows(tasks: Sequence[Task], run_folder: RunFolder) -> pd.DataFrame:
    """Tabulate final rows of a store, with a column for each metric of the benchmark."""
    table = run_folder.tabulate([task.key for task in tasks], ["final"])
    metrics = tasks[0].benchmark.metrics if tasks else ()
    missing = [str(name) for name in metrics if name not in table]
    return table.reindex(columns=[*table.columns, *missing])


def list_stored_tasks(benchmark: Benchmark, run_folder: RunFolder) -> list[Task]:
    """List the cells of a benchmark with final rows in a store, each with those splits."""
    splits_by_task = ((task, run_folder.list_splits(task.key)) for task in list_tasks(benchmark))
    return [task.with_splits(splits) for task, splits in splits_by_task if splits]


def _with_current_texts(recorded: Request, request: Request) -> Request:
    current = {name: getattr(request.benchmark, name) for name in FIELDS_WITHOUT_EFFECT}
    benchmark = recorded.benchmark.model_copy(
        update=current
    ).select()  # which leaves out a baseline that it lacks
    return replace(recorded, benchmark=benchmark, source=request.source)


def _with_legacy_notes(recorded: Request, hashes: Mapping[str, str | None]) -> Request:
    """Add a note to the published cells without an identity: today's code may differ."""
    tasks = [task for task in list_tasks(recorded.benchmark) if hashes.get(task.label, "") is None]
    pairs = dict.fromkeys((str(task.dataset), task.entry) for task in tasks)
    notes = tuple(Note(dataset=dataset, entry=entry, text=LEGACY_NOTE) for dataset, entry in pairs)
    return replace(
        recorded,
        benchmark=recorded.benchmark.model_copy(
            update={"notes": (*recorded.benchmark.notes, *notes)}
        ),
    )
