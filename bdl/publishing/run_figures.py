"""The figures of a run: their data, from its results and its posteriors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bdl.errors import InputError
from bdl.publishing.overlaps import find_overlaps
from bdl.publishing.run_tables import compare_with_print, compute_table_standings, narrow_benchmark
from bdl.records.unusable_fits import with_rerun_hint
from bdl.reports.comparison import TableEntry
from bdl.reports.curves import average_curves
from bdl.reports.distributions import gather_boxes, gather_truth_ranks
from bdl.reports.figures import FigureData, draw_figures
from bdl.reports.paired import paired_differences
from bdl.spec import Request, find_differences
from bdl.stored_results.folders import locate_folder
from bdl.stored_results.loading import LoadedResults, load_results
from bdl.stored_results.results_folder import ResultsFolder


def redraw_figures(request: Request, results: Path) -> list[Path]:
    """Draw the figures of an earlier run again, as PNG and PDF.

    Those of posteriors are drawn only where its store has them. The figures are in the folder of
    the run, or of one that would be narrowed to such a part.
    `InputError` if no fit is finished, or as `load_results` says.
    """
    figure_data = load_figure_data(load_results(request, results), request, results)
    return draw_figures(figure_data, locate_folder(results, request) / "figures")


def load_figure_data(loaded: LoadedResults, request: Request, results: Path) -> FigureData:
    """Gather the data of the figures of a loaded run; errors as in `redraw_figures`."""
    if loaded.rows.empty:
        raise InputError(
            f"no fit of {loaded.benchmark.name} is finished; "
            f"go on with: {request.format_command('run', results)}"
        )
    with with_rerun_hint(
        request if loaded.folder == locate_folder(results, request) else request.full_request,
        results,
    ):
        pictures = gather_stored_pictures(loaded, request)
    return gather_figure_data(loaded, pictures)


def gather_stored_pictures(loaded: LoadedResults, request: Request) -> Mapping[str, Any]:
    """Gather the data of figures from the posteriors in the store of the rows, if there is one."""
    from bdl.publishing.pictures import gather_pictures  # with PyTorch

    results_folder = ResultsFolder(loaded.folder, request, prefer_store=True)
    # an interrupted run may have begun it for other rows than the published ones
    if results_folder.store is None or find_differences(
        results_folder.recorded_request.benchmark, loaded.benchmark
    ):
        return {}
    return gather_pictures(results_folder.stored_tasks, results_folder.store)


def gather_figure_data(
    loaded: LoadedResults,
    pictures: Mapping[str, Any],
    table_entries: Sequence[TableEntry] | None = None,
) -> FigureData:
    """Gather the data of all figures.

    `pictures` are those of `gather_pictures`, and `table_entries` those of `compare_with_print`.
    """
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    pairs = paired_differences(
        present, loaded.rows, find_overlaps(loaded, present) if present.baseline else {}
    )
    row_summaries = (
        average_curves(present, loaded.points),
        gather_boxes(present, loaded.rows),
        gather_truth_ranks(present, loaded.rows),
    )
    return FigureData(
        present,
        compare_with_print(loaded) if table_entries is None else table_entries,
        pairs,
        *row_summaries,
        **pictures,
        standings=compute_table_standings(loaded),
        remark=loaded.caption,
    )
