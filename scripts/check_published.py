"""Fits the published settings once more and holds the scores against the published rows.

For every cell of a published benchmark (or those chosen), the final fits are repeated with the
published hyper-parameters, as one batch of the published width and compiled if it was: rounding
depends on both, and training amplifies rounding. The search is not repeated. Durations are left
out. What is shown of a cell is its largest relative difference over all splits and scores.

Processors round differently, so that published rows of long fits are met to every digit only on
the kind of processor that made them (``run.json`` names it). ``--json`` keeps the scores
that were repeated here, and ``--beside`` holds them against those that another version of the
package has kept on the same machine.

Exit code 1 if a cell differs by more than ``--tolerance``.
"""

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console

from bdl.errors import InputError
from bdl.execution.groups import FinalFit, group_final_fits
from bdl.plan.planning import group_tasks, list_tasks
from bdl.plan.task import Task
from bdl.records.row import FitResult
from bdl.records.tables import list_cell_keys
from bdl.stored_results.folders import has_published_rows
from bdl.stored_results.results_folder import ResultsFolder


class Difference(NamedTuple):
    """A score of one split, published and repeated."""

    split: str
    metric: str
    expected: float
    repeated: float

    @property
    def relative(self) -> float:
        """Difference relative to the expected value.

        Infinite for a score that was not repeated.
        """
        size = abs(self.repeated - self.expected) / max(abs(self.expected), 1e-300)
        return math.inf if math.isnan(size) else size


Scores = dict[str, dict[str, float]]
"""Split and metric to the score, of one cell."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        folders = _list_folders(options)
    except InputError as error:
        parser.error(str(error))
    console, n_different, repeated_scores = Console(width=140), 0, dict[str, Scores]()
    beside = json.loads(options.beside.read_text("utf-8")) if options.beside else None
    for folder in folders:
        published = PublishedCells(folder)
        for batch in group_tasks(_select_tasks(published, options)):
            for task, repeated in repeat_fits(batch, published, options.splits):
                label = f"{published.name} {task.label}"
                repeated_scores[label] = repeated
                if beside is None:
                    expected = _collect_scores(task, published.rows_of(task))
                else:
                    expected = beside.get(label, {})
                worst = max(
                    _differences(expected, repeated),
                    key=lambda difference: difference.relative,
                    default=None,
                )
                n_different += worst is None or worst.relative > options.tolerance
                console.print(
                    f"{label}: {_describe(worst, options.tolerance)}, {len(repeated)} fits",
                    highlight=False,
                )
                if options.json:
                    options.json.write_text(json.dumps(repeated_scores))
    return 1 if n_different else 0


class PublishedCells:
    """The published rows of one folder, by cell."""

    def __init__(self, folder: Path) -> None:
        results = ResultsFolder(folder)
        self.request = results.recorded_request
        rows = results.final_rows
        self._rows = rows[rows.status == "ok"].sort_values("split")
        self._keys = list_cell_keys(self._rows)

    @property
    def name(self) -> str:
        """Benchmark, and its profile if it has another than the protocol's."""
        benchmark = self.request.benchmark
        profile = "" if benchmark.profile == "paper" else f" {benchmark.profile}"
        return benchmark.name + profile

    def rows_of(self, task: Task) -> pd.DataFrame:
        """Return the final rows of a cell that did not fail, in the order of their splits."""
        return self._rows[[key == task.key for key in self._keys]]


def repeat_fits(
    batch: Sequence[Task], published: PublishedCells, n_splits: int
) -> Iterator[tuple[Task, Scores]]:
    """Fit the cells of a batch once more; yield each with its scores.

    Of each cell the first `n_splits` are fitted, for 0 all of them.
    """
    final_fits: list[FinalFit] = []
    for task in batch:
        for _, row in published.rows_of(task).iloc[: n_splits or None].iterrows():
            as_published = replace(task, compile=bool(row["compiled"]))
            final_fits.append(FinalFit(as_published, int(row["split"]), _hyper(task, row)))
    if not final_fits:
        return
    results: list[FitResult] = []
    for group in group_final_fits(final_fits):
        results += group.run(lambda work: None)
    for task in batch:
        rows = [result.row for result in results if result.row.cell == task.key]
        yield task, {str(row.split): _finite_scores(task, row.metrics) for row in rows}


def _collect_scores(task: Task, rows: pd.DataFrame) -> Scores:
    return {str(row["split"]): _finite_scores(task, row.to_dict()) for _, row in rows.iterrows()}


def _finite_scores(task: Task, values: Mapping[Any, Any]) -> dict[str, float]:
    """Pick the scores of the benchmark that are numbers, but for durations."""
    scores: dict[str, float] = {}
    for metric in map(str, task.benchmark.metrics):
        value = values.get(metric)
        if metric != "runtime" and value is not None and math.isfinite(value):
            scores[metric] = float(value)
    return scores


def _differences(expected: Scores, repeated: Scores) -> Iterator[Difference]:
    for split, scores in repeated.items():
        for metric, value in expected.get(split, {}).items():
            yield Difference(split, metric, value, scores.get(metric, math.nan))


def _describe(worst: Difference | None, tolerance: float) -> str:
    if worst is None:
        return "nothing to compare with"
    verdict = "equal" if worst.relative <= tolerance else "DIFFERS"
    return f"{worst.relative:.1e} ({worst.metric}, split {worst.split}) {verdict}"


def _hyper(task: Task, row: "pd.Series[float]") -> dict[str, float]:
    names = [
        name for name in task.settings.hyper_names if name not in task.settings.from_reference
    ]
    return {name: float(row[f"hyper_{name}"]) for name in names}


def _list_folders(options: argparse.Namespace) -> list[Path]:
    """List the published folders of the benchmarks and profiles that are asked for.

    `InputError` if one that was named is not published.
    """
    names = options.benchmarks or sorted(
        path.name for path in options.results.iterdir() if path.is_dir()
    )
    folders: list[Path] = []
    for name in names:
        profiles = options.profile or ["paper", *_list_published_profiles(options.results / name)]
        for profile in profiles:
            folder = options.results / name / ("" if profile == "paper" else profile)
            if has_published_rows(folder):
                folders.append(folder)
            elif options.benchmarks and options.profile:
                raise InputError(f"no published rows in {folder}")
    return folders


def _list_published_profiles(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*/") if has_published_rows(path))


def _select_tasks(published: PublishedCells, options: argparse.Namespace) -> list[Task]:
    """List the cells of a folder that have rows, or those of them that are asked for."""
    tasks: list[Task] = []
    for task in list_tasks(published.request.benchmark):
        is_selected = (not options.dataset or str(task.dataset) in options.dataset) and (
            not options.method or task.entry in options.method
        )
        if is_selected and len(published.rows_of(task)):
            tasks.append(task)
    return tasks


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmarks", nargs="*", help="benchmarks (all that are published)")
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        help="only this profile, paper for the protocol (repeatable)",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="where the published rows are"
    )
    parser.add_argument(
        "--dataset", action="append", default=[], help="only this data set (repeatable)"
    )
    parser.add_argument(
        "--method", action="append", default=[], help="only this entry (repeatable)"
    )
    parser.add_argument(
        "--splits",
        type=int,
        default=0,
        help="only the first so many splits; the width is then another",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the scores that were repeated"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="FILE",
        help="hold against scores that were kept, not the published",
    )
    parser.add_argument(
        "--tolerance", type=float, default=1e-5, help="largest relative difference"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
