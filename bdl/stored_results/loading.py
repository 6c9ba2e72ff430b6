"""Results of an earlier run: how they differ from the protocol, and the overwrite guard."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from bdl.errors import InputError, with_plural
from bdl.plan.planning import list_tasks
from bdl.plan.task import Task
from bdl.records.row import CellKey
from bdl.records.tables import list_axes, list_cell_keys
from bdl.spec import (
    Benchmark,
    Request,
    list_benchmarks,
    load_request,
)
from bdl.stored_results.departures import (
    count_beyond_first,
    describe_coverage,
    describe_part,
    describe_profile,
    is_part_of_protocol,
    list_added_entries,
    list_departures,
)
from bdl.stored_results.folders import (
    has_published_rows,
    has_store,
    list_replicate_folders,
    list_roots,
    list_sibling_folders,
    locate_folder,
)
from bdl.stored_results.results_folder import ResultsFolder

if TYPE_CHECKING:
    from bdl.execution.estimate import MeasuredFit

NO_VERDICTS = "The printed values are of the protocol: verdicts are withheld."

_FOLDER_PATTERNS = (
    *("*/", "variants/*/", "*/variants/*/"),
    *("*/seed-*/", "*/seed-*/variants/*/"),
)
"""Where a benchmark's folder has further results: profiles and replicates, replicates of profiles,
and the variants of all.
"""


class LoadedResults(NamedTuple):
    """Rows of a run, their request, and how they differ from the protocol."""

    folder: Path
    """Folder that they are in."""
    recorded_request: Request
    """Request that they were made with, with the texts and notes of today."""
    rows: pd.DataFrame
    """Final rows."""
    points: pd.DataFrame
    """Scores at recorded counts."""
    remark: str
    """How they differ from the protocol; empty if they do not."""
    protocol: bool
    """Whether each of them was made as the protocol says, though some may be missing."""
    replicates: pd.DataFrame
    """Final rows of the same fits under other seeds, of which each row has its own."""
    caption: str
    """The remark in short, without the values of changed fields."""
    overlaps: Mapping[str, float] | None = None
    """Overlaps of splits, by data set, that a run has just computed; None where they are recorded
    with the rows.
    """

    @classmethod
    def of(
        cls,
        folder: Path,
        request: Request,
        current_benchmark: Benchmark,
        rows: pd.DataFrame,
        points: pd.DataFrame,
        has_spec: bool = True,
    ) -> "LoadedResults":
        """Compare rows with the protocol: profile, part, overrides, a file that has changed since.

        `current_benchmark` is the benchmark as its file is, under the same overrides. Rows
        without a spec (`has_spec`), those of earlier versions, may be published in part.
        """
        changed = list_departures(request, current_benchmark)
        profile = request.benchmark.profile
        is_part = profile != "paper" and is_part_of_protocol(request)
        # a profile that changes a setting, such as fewer epochs, has other numbers
        is_protocol = not changed and (profile == "paper" or is_part)
        remarks = []
        if profile != "paper":
            remarks.append(describe_part(request) if is_part else describe_profile(request))
        gaps = describe_coverage(request.benchmark, rows) if has_spec and not rows.empty else []
        added = [f"{name} is an entry of its own" for name in list_added_entries(request)]
        remarks += [*gaps, *added, *count_beyond_first(changed)]
        heading = "A part of the" if is_protocol and is_part else "Not the"
        remark = f"{heading} protocol: {'; '.join(remarks)}." if remarks else ""
        caption = _shorten_remark(heading, profile, gaps, added, changed) if remarks else ""
        replicates = (
            read_replicates(folder, current_benchmark, rows) if not request.changes else rows[:0]
        )
        return cls(folder, request, rows, points, remark, is_protocol, replicates, caption)

    @property
    def added_entries(self) -> list[str]:
        """Entries that overrides add to those of the file."""
        return list_added_entries(self.recorded_request)

    @property
    def banner(self) -> str:
        """Text above a table: the remark, and why there are no verdicts."""
        return self._with_reason(self.remark)

    @property
    def short_banner(self) -> str:
        """Text above a table for a terminal: the caption, and why there are no verdicts."""
        return self._with_reason(self.caption)

    def _with_reason(self, text: str) -> str:
        return text if self.protocol or not self.benchmark.papers else f"{text} {NO_VERDICTS}"

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark that they were made with, with the texts and notes of today."""
        return self.recorded_request.benchmark


def _shorten_remark(
    heading: str, profile: str, gaps: Sequence[str], added: Sequence[str], changed: Sequence[str]
) -> str:
    """Write a remark without the values of changed fields, which are counted."""
    texts = [f"profile {profile}"] if profile != "paper" else []
    texts += [*gaps, *added]
    if changed:
        texts.append(with_plural(len(changed), "changed setting"))
    return f"{heading} protocol: {'; '.join(texts)}."


def load_results(request: Request, results: Path) -> LoadedResults:
    """Load the published rows of an earlier run, otherwise those of the store.

    `InputError` if there are none, or if they are damaged. The benchmark is as its file is now,
    with the overrides and the part of the run. If no run was narrowed to these data sets and
    entries, they are selected from the rows of the whole.
    """
    results_folder = open_results(request, results)
    return load_open_results(results_folder)


def load_open_results(results_folder: ResultsFolder) -> LoadedResults:
    """Load the results of a folder that has rows; errors as in `load_results`."""
    has_spec = results_folder.original_request is not None
    return LoadedResults.of(
        results_folder.folder,
        results_folder.recorded_request,
        results_folder.request.benchmark,
        results_folder.final_rows,
        results_folder.curve_points,
        has_spec,
    )


def open_results(request: Request, results: Path, *, prefer_store: bool = False) -> ResultsFolder:
    """Open the folder of a request, or that of the whole if no run was narrowed to it.

    Errors as in `load_results`. Splits are not selected from the whole: means and standard errors
    of some of them are those of another run. Where the default folder of results has none, the
    rows that come with the package are opened.
    """
    part_folder = locate_folder(results, request)
    paths: list[Path] = []
    for root in list_roots(results):
        paths.append(locate_folder(root, request))
        if request.is_narrowed and not request.splits:
            paths.append(locate_folder(root, request.full_request))
    for path in paths:
        results_folder = ResultsFolder(path, request, prefer_store=prefer_store)
        if results_folder.has_rows:
            return results_folder
    start = request.format_command("run", results)
    raise InputError(
        f"no results in {part_folder}; start with: {start}"
        f"{_suggest_sibling(part_folder, request.source, results)}"
    )


def read_replicates(folder: Path, benchmark: Benchmark, rows: pd.DataFrame) -> pd.DataFrame:
    """Read the final rows of the replicates of some rows, with their seeds as a column.

    A replicate of a cell has the spec that `benchmark`, the protocol, has for it, but for the
    seed. Cells of another spec are left out, as are parts of the splits and folders that cannot be
    read.
    """
    tables = [rows[:0].assign(seed=pd.Series(dtype=int))]
    for path in list_replicate_folders(folder):
        # a replicate that cannot be read must not keep the rows themselves from being shown
        with suppress(InputError):
            results_folder = ResultsFolder(path)
            recorded = results_folder.original_request
            if recorded is None or recorded.benchmark.profile != benchmark.profile:
                continue
            if recorded.splits:  # means over some of the splits are others
                continue
            # The file may have taken the seed of a replicate since: its rows count once.
            if recorded.benchmark.seed == benchmark.seed:
                continue
            same_cells = set(list_cell_keys(rows)) & _list_cells_of_same_spec(
                recorded.benchmark, benchmark
            )
            finals = results_folder.final_rows
            finals = finals[[key in same_cells for key in list_cell_keys(finals)]]
            tables.append(finals.assign(seed=recorded.benchmark.seed))
    if len(tables) == 1:
        return tables[0]
    # a fit of a part of a replicate may be one of the whole as well
    names = ["dataset", "entry", *list_axes(rows), "split", "seed"]
    return pd.concat(tables, ignore_index=True).drop_duplicates(names, ignore_index=True)


def _list_cells_of_same_spec(recorded: Benchmark, current: Benchmark) -> set[CellKey]:
    """List the cells whose fits and scores have the same spec in both, but for the seed."""
    recorded_cells = {
        (str(dataset), entry, point.text) for dataset, entry, point in recorded.cells
    }
    same_cells: set[CellKey] = set()
    for dataset, entry, point in current.cells:
        key = (str(dataset), entry, point.text)
        if key not in recorded_cells:
            continue
        recorded_at_point, current_at_point = recorded.at(point), current.at(point)
        recorded_fits = recorded_at_point.fit_part(dataset, entry) | {"seed": 0}
        current_fits = current_at_point.fit_part(dataset, entry) | {"seed": 0}
        if recorded_fits != current_fits:
            continue
        recorded_scores = recorded_at_point.score_part(dataset, entry)
        if recorded_scores == current_at_point.score_part(dataset, entry):
            same_cells.add(key)
    return same_cells


def load_timings(request: Request, results: Path) -> "list[MeasuredFit]":
    """Load the seconds of earlier fits of a benchmark, of any profile, part or overrides.

    Those of the folder of the request are marked as such. A folder that cannot be read is left
    out.
    """
    requested_folder, base = locate_folder(results, request), results / request.benchmark.name
    fits: list[MeasuredFit] = []
    folders = {base}
    for pattern in _FOLDER_PATTERNS:
        folders.update(base.glob(pattern))
    for path in sorted(filter(_has_rows, folders)):
        with suppress(InputError):
            results_folder = ResultsFolder(path, request.full_request, prefer_store=True)
            fits += results_folder.iterate_measured_fits(path == requested_folder)
    return fits


def check_overwrite(request: Request, tasks: Sequence[Task], results: Path) -> None:
    """Refuse a run that would lose published rows.

    `InputError` if no store holds some of them, and the run would not make them again, or make
    them under another spec.
    """
    path, name = locate_folder(results, request), request.benchmark.name
    results_folder = ResultsFolder(path, request)
    if not results_folder.reads_published_rows:
        return
    unstored_fits = set(
        zip(
            list_cell_keys(results_folder.final_rows),
            results_folder.final_rows.split.astype(int),
            strict=True,
        )
    )
    if store := results_folder.store:
        # those of cells that the file has no longer are kept there as well
        for cell in store.list_cells():
            unstored_fits.difference_update(product([cell], store.list_splits(cell)))
    has_spec = results_folder.original_request is not None or name not in dict(list_benchmarks())
    recorded_request = (
        results_folder.recorded_request
        if has_spec
        else load_request(name, request.benchmark.profile)
    )
    planned_tasks = {task.key: task for task in tasks}
    elsewhere = "give the benchmark a name of its own, or choose another --results"
    for task in list_tasks(recorded_request.benchmark):
        planned_task = planned_tasks.get(task.key)
        if planned_task and any(key == task.key for key, _ in unstored_fits):
            planned_spec = planned_task.benchmark.fit_part(planned_task.dataset, task.entry)
            if planned_spec != task.benchmark.fit_part(task.dataset, task.entry):
                refusal = (
                    f"{path} has published rows of {task.label} of another spec, and no store"
                )
                raise InputError(f"{refusal}; {elsewhere}")
    lost_fits = set(unstored_fits)
    for task in tasks:
        lost_fits.difference_update(product([task.key], task.splits))
    if lost_fits:
        raise InputError(
            f"{path} has {len(lost_fits)} published final fits that this benchmark lacks, "
            f"and no store of them; {elsewhere}"
        )


def _has_rows(folder: Path) -> bool:
    return has_published_rows(folder) or has_store(folder)


def _suggest_sibling(folder: Path, source: str, results: Path) -> str:
    for path in list_sibling_folders(folder):
        results_folder = ResultsFolder(path)
        if results_folder.reads_published_rows and results_folder.original_request:
            request = replace(results_folder.original_request, source=source)
            return f" (there is: {request.format_command('table', results)})"
    return ""
