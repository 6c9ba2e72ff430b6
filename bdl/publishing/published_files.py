"""Published files of a run: rows, posteriors, provenance, tables and figures."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from bdl.errors import InputError
from bdl.publishing.overlaps import compute_overlaps
from bdl.publishing.run_figures import gather_figure_data
from bdl.publishing.run_tables import compare_with_print, render_tables
from bdl.records.run_folder import RunFolder
from bdl.reports.comparison import TableEntry
from bdl.reports.figures import FigureData, draw_figures
from bdl.spec import Request
from bdl.stored_results.folders import locate_folder
from bdl.stored_results.loading import LoadedResults
from bdl.stored_results.results_folder import ResultsFolder, list_stored_tasks, tabulate_final_rows


class PublishedRun(NamedTuple):
    """Results and files that a run has published."""

    loaded: LoadedResults
    table_entries: Sequence[TableEntry]
    """The scores with the printed values."""
    files: Sequence[Path]
    """Tables and figures."""
    figure_data: FigureData | None = None
    """Data of the figures; None where all files were written before."""


def publish(
    request: Request, run_folder: RunFolder, results: Path, wall_seconds: float
) -> PublishedRun:
    """Write rows, posteriors, provenance, tables and figures.

    All but the rows and the certificates of references are written only if one has changed.
    Figures that are no longer drawn are removed, unless the store has fits that were imported from
    published rows: without their posteriors some figures cannot be drawn, and all that there are
    stay.
    """
    # with PyTorch, which tables do without
    from bdl.plan.reference_posteriors import copy_certificates, list_sampled_references
    from bdl.publishing.pictures import gather_pictures, list_complete_cells
    from bdl.publishing.provenance import describe_provenance, write_provenance

    destination, benchmark = locate_folder(results, request), request.benchmark
    tasks = list_stored_tasks(benchmark, run_folder)
    cells = [task.key for task in tasks]
    written = run_folder.publish(destination, cells)
    provenance = describe_provenance(request, tasks, run_folder, wall_seconds)
    provenance["overlap"] = compute_overlaps(benchmark)
    loaded = LoadedResults.of(
        destination,
        request,
        benchmark,
        tabulate_final_rows(tasks, run_folder),
        run_folder.tabulate_curve_points(cells),
    )._replace(overlaps=provenance["overlap"])
    table_entries = compare_with_print(loaded)
    copy_certificates(list_sampled_references(tasks), destination)  # the table shows it
    texts = {
        destination / f"table.{end}": str(
            render_tables(loaded, format, table_entries=table_entries)
        )
        for end, format in (("md", "markdown"), ("json", "json"))
    }
    digest = _compute_digest(provenance, written, texts)
    if _is_unchanged(digest, destination):
        return PublishedRun(loaded, table_entries, list_tables_and_figures(destination))
    # before anything is written: a damaged posterior ends the command here
    shas = [sha for cell in cells for *_, sha in run_folder.list_artefacts(cell) if sha]
    posteriors = run_folder.posteriors.choose_packable(shas)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    figure_data = gather_figure_data(loaded, gather_pictures(tasks, run_folder), table_entries)
    figures = draw_figures(figure_data, destination / "figures", pdf=False)
    if len(list_complete_cells(tasks, run_folder)) == len(tasks):
        for path in (destination / "figures").glob(f"{benchmark.name}-*.*"):
            if path not in figures and path.suffix in (".png", ".pdf"):
                path.unlink()
    files = list_tables_and_figures(destination)
    RunFolder(destination).posteriors.write_pack(posteriors)
    # last, since its digest says that all other files are those of these rows
    write_provenance(
        provenance | {"published": {"digest": digest, "files": [path.name for path in files]}},
        destination,
    )
    return PublishedRun(loaded, table_entries, files, figure_data)


def _compute_digest(provenance: Mapping[str, Any], rows: Path, texts: Mapping[Path, str]) -> str:
    """Compute the SHA-256 (hex) of all that tables and figures depend on, the code included."""
    stable_fields = {
        name: value
        for name, value in provenance.items()
        if name not in ("written", "command_wall_minutes")
    }
    content = [stable_fields, sha256(rows.read_bytes()).hexdigest(), [*texts.values()]]
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_unchanged(digest: str, folder: Path) -> bool:
    from bdl.publishing.provenance import compute_checksums  # as in `publish`

    files = [path.name for path in list_tables_and_figures(folder)]
    try:
        provenance = ResultsFolder(folder).provenance
    except InputError:  # a damaged file, which is written anew
        return False
    if provenance.get("published") != {"digest": digest, "files": files}:
        return False
    return bool(provenance.get("files") == compute_checksums(folder))


def list_tables_and_figures(folder: Path) -> list[Path]:
    """List the files of a run's tables and figures."""
    return [*sorted(folder.glob("table.*")), *sorted((folder / "figures").glob("*.p[nd][gf]"))]
