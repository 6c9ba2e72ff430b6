"""Reuse of fits: those of other runs of the benchmark, and published ones.

Equal identities mean equal spec, data and versions. A fit is copied with its search, or not at
all.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from bdl.archive import ResultsFolder
from bdl.archive.frames import COLUMNS
from bdl.archive.posteriors import PosteriorFiles, read_posteriors
from bdl.errors import InputError
from bdl.execution.scoring import fit_metrics, score_hashes
from bdl.plan import Task, joint_hash
from bdl.plan.fittings import build_evaluation_schedule
from bdl.records import (
    CERTIFICATE_DETAIL,
    HYPER_PREFIX,
    KEPT_DETAIL,
    STAGES,
    CellKey,
    CurvePoint,
    FitResult,
    Row,
)
from bdl.records.run_folder import RunFolder
from bdl.spec.labels import MetricName

ORIGIN_FIELDS = ("written", "git_commit", "python", "packages", "machine")
"""Fields of the provenance that an imported fit keeps: date, software and machine."""
_DETAIL_TYPES = {
    "width": int,
    "device": str,
    "compiled": bool,
    "updates": int,
    "packages": str,
} | dict.fromkeys((KEPT_DETAIL, CERTIFICATE_DETAIL), str)


class StoredFits:
    """Fits of another store that succeeded, with their posteriors."""

    def __init__(self, store: RunFolder) -> None:
        self._store = store

    def list_splits(self, task: Task) -> set[int]:
        """Return the splits of a cell with a fit of today's identity."""
        if not task.is_fit_hash(self._store.find_fit_hash(task.key)):
            return set()
        splits: set[int] = set()
        for row in self._store.load_rows("final", task.key):
            if row.artefact and self._store.posteriors.is_whole(row.artefact):
                splits.add(row.split)
        return splits

    def load_fit(self, task: Task, split: int) -> list[FitResult]:
        """Load such a fit with its search; `DamagedPosterior` if its posterior cannot be read."""
        row = next(row for row in self._store.load_rows("final", task.key) if row.split == split)
        results: list[FitResult] = []
        for fold in self._store.load_rows("search", task.key):
            if fold.split == split:
                results.append(FitResult(fold))
        curve_points: list[CurvePoint] = []
        for split_of_point, point in self._store.load_curve_points(task.key):
            if split_of_point == split:
                curve_points.append(point)
        content = self._store.posteriors.read_bytes(str(row.artefact))
        results.append(FitResult(row, tuple(curve_points), content))
        return results


class PublishedFits:
    """Published fits that have the identities of today's spec, data and versions.

    Those are the identities of the fit and of every score. A fit is imported with the curves that
    the benchmark records, or not at all; one that failed is a result like any other. Where its
    posterior travels, the fit alone has to have today's identity: its other scores are computed
    from the posterior. Without one, what needs it, such as a figure, needs the fit anew.
    `InputError` if what is in the folder cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._provenance: dict[str, Any] = {}
        self._posteriors: PosteriorFiles = {}
        with ResultsFolder(folder) as results_folder:
            if results_folder.published:
                self._rows, self._points, self._provenance = (
                    results_folder.load_rows(),
                    results_folder.curve_points,
                    results_folder.provenance,
                )
                self._posteriors = read_posteriors(folder, self._provenance)

    @property
    def has_rows(self) -> bool:
        """Whether anything is published in the folder."""
        return bool(self._provenance)

    def has_posteriors(self, task: Task) -> bool:
        """Return whether posteriors of a cell are published."""
        return task.label in self._posteriors

    def list_identified_splits(self, task: Task) -> set[int]:
        """Return the splits of a cell with a fit of any identity, also one of another spec."""
        if self._find_recorded_hash("fit_hashes", task) is None:
            return set()
        cell_rows = _select_task_rows(task, self._rows)
        return set(cell_rows.split[cell_rows.stage == "final"])

    def list_splits(self, task: Task) -> set[int]:
        """Return the splits of a cell with a fit of today's identity."""
        posteriors = self._posteriors.get(task.label, {})
        if not task.is_fit_hash(self._find_recorded_hash("fit_hashes", task)):
            return set()
        has_current_scores = self._has_current_scores(task, fit_metrics(task))
        if not (posteriors or has_current_scores):
            return set()
        cell_rows = _select_task_rows(task, self._rows)
        # A failed fit has no scores that could be of another version.
        complete = cell_rows.status == "failed"
        if has_current_scores:  # others need a posterior, which may be too large to travel
            complete |= cell_rows.reason.isna()  # all scores were computed
        usable_splits = set(
            cell_rows.split[
                (cell_rows.stage == "final") & (complete | cell_rows.split.isin([*posteriors]))
            ]
        )
        # A curve cannot be computed from the posterior; a failed fit need not have one.
        if build_evaluation_schedule(task) is not None:
            usable_splits &= set(_select_task_rows(task, self._points).split) | set(
                cell_rows.split[cell_rows.status == "failed"]
            )
        return usable_splits

    def load_fit(self, task: Task, split: int) -> list[FitResult]:
        """Load such a fit with its search."""
        cell_rows = _select_task_rows(task, self._rows[self._rows.split == split])
        points = _select_task_rows(task, self._points[self._points.split == split])
        origin = _find_origin(self._provenance, task, split)
        current = self._list_current_hashes(task)
        curve_points = tuple(
            CurvePoint(*values)
            for values in points[list(CurvePoint._fields)].itertuples(index=False)
        )
        posterior = self._posteriors.get(task.label, {}).get(split)
        results: list[FitResult] = []
        for values in cell_rows.to_dict("records"):
            row = _restore_row(task, values, origin, current)
            is_final = row.stage == "final"
            results.append(FitResult(row, curve_points, posterior) if is_final else FitResult(row))
        return results

    def _find_recorded_hash(self, name: str, task: Task) -> Any:
        return self._provenance.get(name, {}).get(task.label)

    def _list_current_hashes(self, task: Task) -> set[str]:
        metrics = [metric for metric in fit_metrics(task) if str(metric) in self._rows.columns]
        # the provenance has one hash of all scores: if it differs, any of them may have changed
        if not self._has_current_scores(task, metrics):
            return set()
        return {task.score_hash(metric) for metric in metrics}

    def _has_current_scores(self, task: Task, metrics: Iterable[MetricName]) -> bool:
        scores = [task.score_hash(metric) for metric in metrics]
        return bool(
            self._find_recorded_hash("score_hashes", task)
            == (joint_hash(scores) if scores else None)
        )


FitSource = StoredFits | PublishedFits


def read_published_fits(folder: Path, siblings: Iterable[Path]) -> list[PublishedFits]:
    """Read the fits published in a folder, and in others as far as they can be read.

    `InputError` if those of the folder itself cannot be read.
    """
    sources = [PublishedFits(folder)]
    for path in siblings:
        with suppress(InputError):
            sources.append(PublishedFits(path))
    return sources


def iterate_stored_fits(folders: Iterable[Path]) -> Iterator[StoredFits]:
    """Yield the fits of the stores in folders, as far as they can be read."""
    for path in folders:
        with suppress(InputError), ResultsFolder(path) as results_folder:
            if results_folder.store:
                yield StoredFits(results_folder.store)


def copy_fits(tasks: Sequence[Task], store: RunFolder, sources: Iterable[FitSource]) -> int:
    """Copy fits of planned tasks, which the store has claimed, from sources.

    Return the number of final ones. A split of which the store holds any row stays as it is. A fit
    that cannot be read is left where it is, and made here.
    """
    count = 0
    for source, task, splits in _iterate_missing_splits(tasks, store, sources):
        for split in sorted(splits):
            results: list[FitResult] = []
            with suppress(InputError):
                results = source.load_fit(task, split)
            # fit by fit: an interruption leaves whole fits, each with its search
            store.append(results)
            count += bool(results)
    return count


def list_reusable_splits(
    tasks: Sequence[Task], store: RunFolder, sources: Iterable[FitSource]
) -> dict[CellKey, set[int]]:
    """List the splits of each cell that `copy_fits` would copy."""
    splits_by_cell: dict[CellKey, set[int]] = {task.key: set() for task in tasks}
    for _, task, splits in _iterate_missing_splits(tasks, store, sources):
        splits_by_cell[task.key] |= splits
    return splits_by_cell


def _iterate_missing_splits(
    tasks: Sequence[Task], store: RunFolder, sources: Iterable[FitSource]
) -> Iterator[tuple[FitSource, Task, set[int]]]:
    """Yield for each source and cell the planned splits that it has and the store lacks."""
    for source in sources:
        for task in tasks:
            splits = set[int]()
            with suppress(InputError):
                splits = source.list_splits(task).intersection(task.splits)
            if not splits:
                continue
            # Folds count as well: a search that this run has begun is not mixed with another.
            for stage in STAGES:
                splits -= {row.split for row in store.load_rows(stage, task.key)}
            yield source, task, splits


def _find_origin(provenance: dict[str, Any], task: Task, split: int) -> dict[str, Any]:
    """Return the machine and the software of a fit: of its first publication, if imported."""
    origin = provenance
    for run in provenance.get("taken_from", ()):
        if split in run["cells"].get(task.label, ()):
            origin = run
            break
    return {name: origin[name] for name in ORIGIN_FIELDS if name in origin}


def _select_task_rows(task: Task, table: pd.DataFrame) -> pd.DataFrame:
    keys = {"dataset": str(task.dataset), "entry": task.entry, **task.point.texts}
    return table[(table.reindex(columns=list(keys)) == pd.Series(keys)).all(axis=1)]


def _restore_row(
    task: Task, values: dict[Hashable, Any], origin: dict[str, Any], current: set[str]
) -> Row:
    """Restore a row of the store from a published one.

    Columns without a value are left out. Scores get those of their hashes that are in `current`,
    and none where one could not be computed: those are computed again.
    """
    present = {str(name): value for name, value in values.items() if not pd.isna(value)}
    hyper: dict[str, float] = {}
    for name, value in present.items():
        if name.startswith(HYPER_PREFIX):
            hyper[name.removeprefix(HYPER_PREFIX)] = value
    details: dict[str, Any] = {}
    for name, kind in _DETAIL_TYPES.items():
        if name in present:
            # pandas makes numbers with a gap floats, which JSON would write as 12.0
            details[name] = kind(present[name])
    metrics: dict[str, float | None]
    if present["stage"] == "search":
        score = str(task.settings.search and task.settings.search.metric)
        metrics, hashes = {score: present.get(score)}, {}
    else:
        not_scores = {
            *COLUMNS,
            *task.point.texts,
            *_DETAIL_TYPES,
            *(HYPER_PREFIX + name for name in hyper),
        }
        recorded_details = {
            *present,
            *map(str, fit_metrics(task)),
        }  # of which one that is not finite has no number
        score_names = map(str, values) if present["status"] == "ok" else ()
        metrics = {
            name: present.get(name)
            for name in score_names
            if name in recorded_details and name not in not_scores
        }
        has_refusals = present["status"] == "ok" and "reason" in present
        current_hashes = {} if has_refusals else score_hashes(task, metrics)
        hashes = {name: code for name, code in current_hashes.items() if code in current}
        details |= {"origin": origin}
    stage, status = present["stage"], present["status"]
    reason = present.get("reason") if status == "failed" else None  # of others it tells of scores
    split, trial, fold = (int(present[name]) for name in ("split", "trial", "fold"))
    key = *task.key, stage, split, trial, fold
    return Row(*key, status, reason, hyper, metrics, present["seconds"], details, hashes)
