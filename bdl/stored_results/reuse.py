"""Reuse of fits: those of other runs of the benchmark, and published ones.

Equal identities mean equal spec, data and versions. A fit is copied with its search, or not at
all.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bdl.errors import InputError
from bdl.plan.fittings import build_evaluation_schedule
from bdl.plan.task import Task
from bdl.records.row import STAGES, CellKey, FitResult, Row
from bdl.records.run_folder import ORIGIN_FIELDS, RunFolder
from bdl.spec import Request
from bdl.stored_results.folders import (
    has_published_rows,
    has_store,
    list_roots,
    list_sibling_folders,
    locate_folder,
    open_published,
    open_store,
    read_provenance,
)


class RecordedFits:
    """Fits of another run folder that have the identities of today's spec, data and versions.

    Those are the identities of the fit and of every score. Where its posterior is there, the fit
    alone has to have today's identity: its other scores are computed from the posterior. Without
    one, what needs it, such as a figure, needs the fit anew. A fit is copied with the curves that
    the benchmark records, or not at all.

    Those of a published folder, which has a provenance, get the origin that it names, and one that
    failed is a result like any other; unless `with_failed`, only if its method is not installed,
    so that it cannot be made here. Of other folders only fits with posteriors are used.
    """

    def __init__(
        self,
        records: RunFolder,
        provenance: Mapping[str, Any] | None = None,
        *,
        with_failed: bool = True,
    ) -> None:
        self._records, self._is_published = records, provenance is not None
        self._with_failed = with_failed
        self._origin = {
            name: value for name, value in (provenance or {}).items() if name in ORIGIN_FIELDS
        }

    @property
    def has_rows(self) -> bool:
        """Whether there is any fit."""
        return self._records.has_rows

    def check(self) -> None:
        """Raise `InputError` if the rows or the pack of posteriors cannot be read."""
        if self._records.has_rows:
            self._records.posteriors.check_pack()

    def has_posteriors(self, task: Task) -> bool:
        """Return whether there are posteriors of a cell."""
        return any(
            row.artefact and self._records.posteriors.is_whole(row.artefact)
            for row in self._records.load_rows("final", task.key)
        )

    def list_identified_splits(self, task: Task) -> set[int]:
        """Return the splits of a cell with a fit of any identity, also one of another spec."""
        if self._records.find_fit_hash(task.key) is None:
            return set()
        return set(self._records.list_splits(task.key))

    def list_successful_splits(self, task: Task) -> set[int]:
        """Return the splits of a cell with a fit of any identity that did not fail."""
        rows = self._records.load_rows("final", task.key)
        return {row.split for row in rows if row.status == "ok"}

    def is_of_today(self, task: Task) -> bool:
        """Return whether the fits of a cell have today's identity."""
        return task.is_fit_hash(self._records.find_fit_hash(task.key))

    def list_splits(self, task: Task) -> set[int]:
        """Return the splits of a cell with a fit of today's identity and all that it needs."""
        if not self.is_of_today(task):
            return set()
        hashes = {str(metric): task.score_hash(metric) for metric in task.fit_metrics}
        has_schedule = build_evaluation_schedule(task) is not None
        is_uninstalled = bool(task.settings.method.build().missing)
        splits: set[int] = set()
        for row, curve_points, _ in self._records.load_results(task.key):
            # a curve cannot be computed from the posterior; a failed fit need not have one
            has_curve = bool(curve_points) or not has_schedule or row.status == "failed"
            if row.status == "failed" and not (self._with_failed or is_uninstalled):
                continue
            if row.stage == "final" and has_curve and self._is_usable(row, hashes):
                splits.add(row.split)
        return splits

    def _is_usable(self, row: Row, current_hashes: Mapping[str, str]) -> bool:
        if row.artefact and self._records.posteriors.is_whole(row.artefact):
            return True
        if not self._is_published:
            return False
        # a failed fit has no scores that could be of another version
        if row.status == "failed":
            return True
        is_current = all(
            row.score_hashes.get(name) == hash for name, hash in current_hashes.items()
        )
        return is_current and not row.refusals

    def load_fit(self, task: Task, split: int) -> list[FitResult]:
        """Load the fit of a split that `list_splits` lists: the rows of its search, then its own.

        `DamagedPosterior` if its posterior cannot be read.
        """
        posteriors = self._records.posteriors
        results: list[FitResult] = []
        for row, curve_points, _ in self._records.load_results(task.key):
            if row.split != split:
                continue
            content = None
            if row.artefact and (not self._is_published or posteriors.is_whole(row.artefact)):
                content = posteriors.read_bytes(row.artefact)
            if row.stage == "final" and self._is_published:
                # of its first publication, if it was imported itself
                row = replace(row, details={"origin": self._origin, **row.details})
            results.append(FitResult(replace(row, artefact=None), curve_points, content))
        return results


def open_published_fits(folder: Path, *, with_failed: bool = True) -> RecordedFits:
    """Open the fits published in a folder; `InputError` if they cannot be read."""
    if not has_published_rows(folder):
        return RecordedFits(RunFolder(None), {})
    fits = RecordedFits(open_published(folder), read_provenance(folder), with_failed=with_failed)
    fits.check()
    return fits


def find_published_fits(
    request: Request, results: Path, *, with_failed: bool = True
) -> list[RecordedFits]:
    """Find the published fits that a run of a request may import, those of its own folder first.

    The others are of its protocol and variants, and those that come with the package where
    `results` is the default folder; they count as far as they can be read. `InputError` if those
    of the own folder cannot be read.
    """
    folders: list[Path] = []
    for root in list_roots(results):
        folder = locate_folder(root, request)
        folders += [folder, *list_sibling_folders(folder)]
    own_folder, *other_folders = folders
    sources = [open_published_fits(own_folder, with_failed=with_failed)]
    for folder in other_folders:
        with suppress(InputError):
            sources.append(open_published_fits(folder, with_failed=with_failed))
    return sources


def iterate_stored_fits(folders: Iterable[Path]) -> Iterator[RecordedFits]:
    """Yield the fits of the stores in folders, as far as they can be read."""
    for path in folders:
        with suppress(InputError):
            if has_store(path):
                yield RecordedFits(open_store(path))


def copy_fits(
    tasks: Sequence[Task], run_folder: RunFolder, sources: Iterable[RecordedFits]
) -> int:
    """Copy fits of planned tasks, which the store has claimed, from sources.

    Return the number of final ones. A split of which the store holds any row stays as it is. A fit
    that cannot be read is left where it is, and made here.
    """
    count = 0
    for source, task, splits in _iterate_missing_splits(tasks, run_folder, sources):
        for split in sorted(splits):
            results: list[FitResult] = []
            with suppress(InputError):
                results = source.load_fit(task, split)
            # fit by fit: an interruption leaves whole fits, each with its search
            run_folder.append(results)
            count += bool(results)
    return count


def list_reusable_splits(
    tasks: Sequence[Task], run_folder: RunFolder, sources: Iterable[RecordedFits]
) -> dict[CellKey, set[int]]:
    """List the splits of each cell that `copy_fits` would copy."""
    splits_by_cell: dict[CellKey, set[int]] = {task.key: set() for task in tasks}
    for _, task, splits in _iterate_missing_splits(tasks, run_folder, sources):
        splits_by_cell[task.key] |= splits
    return splits_by_cell


def describe_fits_made_anew(
    tasks: Sequence[Task],
    run_folder: RunFolder,
    sources: Sequence[RecordedFits],
    copied_splits: Mapping[CellKey, Collection[int]] | None = None,
) -> list[str]:
    """Describe the planned fits that sources have, but not as they are needed; empty if none.

    Splits of which the store has any row, and those that are about to be copied to it, are left
    out.
    """
    counts: Counter[str] = Counter()
    for task in tasks:
        needed_splits = set(task.splits)
        needed_splits.difference_update(copied_splits[task.key] if copied_splits else ())
        for stage in STAGES:
            needed_splits -= {row.split for row in run_folder.load_rows(stage, task.key)}
        of_today: set[int] = set()
        others: set[int] = set()
        for source in sources:
            splits = of_today if source.is_of_today(task) else others
            splits |= source.list_successful_splits(task) & needed_splits
        counts["lack scores, curves or posteriors"] += len(of_today)
        counts["are of another spec, data or code"] += len(others - of_today)
    reasons = [f"{count:,} {reason}" for reason, count in counts.items() if count]
    if not reasons:
        return []
    return [f"published final fits that are made anew here: {'; '.join(reasons)}"]


def _iterate_missing_splits(
    tasks: Sequence[Task], run_folder: RunFolder, sources: Iterable[RecordedFits]
) -> Iterator[tuple[RecordedFits, Task, set[int]]]:
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
                splits -= {row.split for row in run_folder.load_rows(stage, task.key)}
            yield source, task, splits
