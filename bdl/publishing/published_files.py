"""Published files of a run: rows, provenance, tables and figures; and its export to MLflow."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import RenderableType

from bdl.archive.folders import locate_folder
from bdl.archive.loading import LoadedResults, load_open_results, load_results, open_results
from bdl.archive.results_folder import ResultsFolder, list_stored_cells, tabulate_final_rows
from bdl.errors import InputError, unknown_name_error
from bdl.publishing.overlaps import compute_overlaps, load_overlaps
from bdl.records.posterior_files import with_rerun_hint
from bdl.records.run_folder import RunFolder
from bdl.reports.claims import ClaimVerdict, claim_sections, judge_claims
from bdl.reports.comparison import TableEntry, compare_with_papers, refusal_notes
from bdl.reports.curves import average_curves
from bdl.reports.distributions import gather_boxes, gather_truth_ranks
from bdl.reports.elsewhere import elsewhere_sections
from bdl.reports.ensembles import ensemble_sections
from bdl.reports.entry_places import EntryPlace, place_entries
from bdl.reports.figures import FigureData, draw_figures
from bdl.reports.layout import Section
from bdl.reports.overview import Overview
from bdl.reports.paired import paired_differences
from bdl.reports.reference_tables import read_certificates, reference_sections
from bdl.reports.render import FORMATS_WITH_SECTIONS, render
from bdl.reports.search_bounds import bound_notes
from bdl.reports.standing_tables import Standing, compute_standings, standing_sections
from bdl.spec import Benchmark, Request, find_differences

ARTIFACT_FOLDER = "mlartifacts"
"""Folder of the files of MLflow's runs, in that of results."""


def compare_with_print(loaded: LoadedResults) -> list[TableEntry]:
    """Compare final rows with the printed values; data sets and entries without rows are left out.

    Entries whose searches ended on a bound have a note that says so.
    """
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    noted = present.model_copy(
        update={"notes": (*present.notes, *bound_notes(present, loaded.rows))}
    )
    return compare_with_papers(
        noted, loaded.rows, protocol=loaded.protocol, replicates=loaded.replicates
    )


def narrow_benchmark(benchmark: Benchmark, rows: pd.DataFrame) -> Benchmark:
    """Narrow a benchmark to the data sets, the entries and the metrics that rows have.

    A metric counts as well where the rows say why it could not be computed; without any, all
    metrics stay.
    """
    present = {name: set(rows[name].unique()) for name in ("dataset", "entry")}
    selected = benchmark.select(
        [name for name in benchmark.datasets if name in present["dataset"]],
        [name for name in benchmark.entries if name in present["entry"]],
    )
    metrics = []
    for name in benchmark.metrics:
        if name in rows and (rows[name].notna().any() or refusal_notes(rows, name)):
            metrics.append(name)
    return selected.model_copy(update={"metrics": tuple(metrics) or benchmark.metrics})


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
    request: Request, store: RunFolder, results: Path, wall_seconds: float
) -> PublishedRun:
    """Write rows, posteriors, provenance, tables and figures.

    All but the rows are written only if one of them has changed. Figures that are no longer drawn
    are removed, unless the store has fits that were imported from published rows: without their
    posteriors some figures cannot be drawn, and all that there are stay.
    """
    # with PyTorch, which tables do without
    from bdl.plan.reference_posteriors import copy_certificates, list_sampled_references
    from bdl.publishing.pictures import gather_pictures, list_complete_cells
    from bdl.publishing.provenance import describe_provenance, write_provenance

    run_folder, benchmark = locate_folder(results, request), request.benchmark
    tasks = list_stored_cells(benchmark, store)
    cells = [task.key for task in tasks]
    written = store.publish(run_folder, cells)
    origin = describe_provenance(request, tasks, store, wall_seconds)
    origin["overlap"] = compute_overlaps(benchmark)
    loaded = LoadedResults.of(
        run_folder,
        request,
        benchmark,
        tabulate_final_rows(tasks, store),
        store.tabulate_curve_points(cells),
    )
    table_entries = compare_with_print(loaded)
    copy_certificates(list_sampled_references(tasks), run_folder)  # the table shows it
    texts = {
        run_folder / f"table.{end}": str(
            render_tables(loaded, format, table_entries=table_entries)
        )
        for end, format in (("md", "markdown"), ("json", "json"))
    }
    digest = _compute_digest(origin, written, texts)
    if _is_unchanged(digest, run_folder):
        return PublishedRun(loaded, table_entries, _list_tables_and_figures(run_folder))
    # before anything is written: a damaged posterior ends the command here
    shas = [sha for cell in cells for *_, sha in store.list_artefacts(cell) if sha]
    posteriors = store.posteriors.choose_packable(shas)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    figure_data = gather_figure_data(loaded, gather_pictures(tasks, store), table_entries)
    figures = draw_figures(figure_data, run_folder / "figures", pdf=False)
    if len(list_complete_cells(tasks, store)) == len(tasks):
        for path in (run_folder / "figures").glob(f"{benchmark.name}-*.*"):
            if path not in figures and path.suffix in (".png", ".pdf"):
                path.unlink()
    files = _list_tables_and_figures(run_folder)
    RunFolder(run_folder).posteriors.write_pack(posteriors)
    # last, since its digest says that all other files are those of these rows
    write_provenance(
        origin | {"published": {"digest": digest, "files": [path.name for path in files]}},
        run_folder,
    )
    return PublishedRun(loaded, table_entries, files, figure_data)


def _compute_digest(origin: Mapping[str, Any], rows: Path, texts: Mapping[Path, str]) -> str:
    """Compute the SHA-256 (hex) of all that tables and figures depend on, the code included."""
    stable_fields = {
        name: value
        for name, value in origin.items()
        if name not in ("written", "command_wall_minutes")
    }
    content = [stable_fields, sha256(rows.read_bytes()).hexdigest(), [*texts.values()]]
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_unchanged(digest: str, folder: Path) -> bool:
    from bdl.publishing.provenance import compute_checksums  # as in `publish`

    files = [path.name for path in _list_tables_and_figures(folder)]
    try:
        provenance = ResultsFolder(folder).provenance
    except InputError:  # a damaged file, which is written anew
        return False
    if provenance.get("published") != {"digest": digest, "files": files}:
        return False
    return bool(provenance.get("files") == compute_checksums(folder))


def _list_tables_and_figures(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("table.*")), *sorted((folder / "figures").glob("*.p[nd][gf]"))]


def render_tables(
    loaded: LoadedResults,
    format: str,
    metrics: Sequence[str] = (),
    table_entries: Sequence[TableEntry] | None = None,
    *,
    with_notes: bool = True,
) -> RenderableType:
    """Render our numbers and the printed ones, below a remark on differences from the protocol.

    `table_entries` are those of `compare_with_print`. Without a choice of metrics all are
    rendered, and below them sampled references, claims, members of an ensemble that are as good,
    and numbers of other papers. `InputError` if there is no such metric, or as `render` says.
    """
    table_entries = _select_metrics(loaded, metrics, table_entries)
    sections = list[Section]()
    if format in FORMATS_WITH_SECTIONS and not metrics:
        sections += reference_sections(loaded.benchmark.name, read_certificates(loaded.folder))
        sections += claim_sections(loaded.benchmark, judge_run_claims(loaded))
        sections += ensemble_sections(loaded.benchmark, loaded.rows)
        sections += elsewhere_sections(loaded.benchmark, table_entries)
        sections += standing_sections(loaded.benchmark.name, compute_run_standings(loaded))
    return render(table_entries, format, loaded.banner, sections, with_notes=with_notes)


def summarise_tables(
    loaded: LoadedResults,
    metrics: Sequence[str] = (),
    table_entries: Sequence[TableEntry] | None = None,
    *,
    with_notes: bool = False,
) -> Overview:
    """Return the compact tables of a run for a terminal; arguments as in `render_tables`."""
    table_entries = _select_metrics(loaded, metrics, table_entries)
    banner = loaded.banner if with_notes else loaded.short_banner
    if metrics:
        return Overview(table_entries, banner, with_notes=with_notes, with_durations=True)
    claims = [
        f"Claim {verdict.verdict}: {verdict.claim.text}" for verdict in judge_run_claims(loaded)
    ]
    further_tables = {
        "sampled references": read_certificates(loaded.folder),
        "the claims by data set": claims,
        "members of ensembles that are as good": ensemble_sections(loaded.benchmark, loaded.rows),
        "what other papers print": elsewhere_sections(loaded.benchmark, table_entries),
    }
    names = [name for name, content in further_tables.items() if content]
    return Overview(
        table_entries,
        banner,
        claims,
        names,
        with_notes,
        standings=compute_run_standings(loaded),
        places=place_added_entries(loaded),
    )


def _select_metrics(
    loaded: LoadedResults, metrics: Sequence[str], table_entries: Sequence[TableEntry] | None
) -> Sequence[TableEntry]:
    """Select the entries of some metrics, all without a choice."""
    table_entries = compare_with_print(loaded) if table_entries is None else table_entries
    metric_names = dict.fromkeys(str(entry.metric) for entry in table_entries)
    for name in metrics:
        if name not in metric_names:
            raise unknown_name_error(f"metric of {loaded.benchmark.name}", name, metric_names)
    return [entry for entry in table_entries if not metrics or entry.metric in metrics]


def judge_run_claims(loaded: LoadedResults) -> list[ClaimVerdict]:
    """Judge the claims of a benchmark by the data sets and entries that have rows.

    There are no verdicts if the rows are not of the protocol, or if data are needed and missing.
    """
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    if not (present.claims and loaded.protocol):
        return []
    try:
        overlaps = load_overlaps(loaded.folder, loaded.benchmark)
        return judge_claims(present, loaded.rows, loaded.points, overlaps)
    except InputError:  # rows of an earlier version, without data
        return []


def compute_run_standings(loaded: LoadedResults) -> list[Standing]:
    """Compute the overall standing of the methods of a run by each score.

    There is none for benchmarks that `compute_standings` names, or if data are needed and missing.
    """
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    if present.papers or not present.baseline:
        return []
    try:
        overlaps = load_overlaps(loaded.folder, present)
    except InputError:
        return []
    reasons = dict.fromkeys(_list_overridden_entries(loaded), "settings of its own")
    reasons |= dict.fromkeys(loaded.added_entries, "an entry of its own")
    present_reasons = {name: text for name, text in reasons.items() if name in present.entries}
    return compute_standings(present, loaded.rows, overlaps, present_reasons)


def _list_overridden_entries(loaded: LoadedResults) -> list[str]:
    paths = [path.split(".") for path in loaded.recorded_request.changes]
    return [path[1] for path in paths if len(path) > 2 and path[0] == "entries"]


def place_added_entries(loaded: LoadedResults) -> list[EntryPlace]:
    """Place the entries that a run adds to its benchmark among the other ones.

    None if data are needed and missing.
    """
    if not loaded.added_entries:
        return []
    present = narrow_benchmark(loaded.benchmark, loaded.rows)
    try:
        overlaps = load_overlaps(loaded.folder, present)
    except InputError:
        return []
    added = [name for name in loaded.added_entries if name in present.entries]
    return place_entries(present, loaded.rows, overlaps, added)


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
    from bdl.publishing.pictures import gather_pictures  # as in `publish`

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
        present, loaded.rows, load_overlaps(loaded.folder, present) if present.baseline else {}
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
        standings=compute_run_standings(loaded),
        remark=loaded.caption,
    )


def export_to_mlflow(
    loaded: LoadedResults, store: RunFolder, uri: str, results: Path, artifacts: Sequence[Path]
) -> int:
    """Export a run from its store to MLflow; return the number of MLflow runs.

    `InputError` if no cell has results, or as `bdl.publishing.mlflow_export.export_run` says.
    """
    from bdl.publishing.mlflow_export import export_run
    from bdl.publishing.provenance import describe_provenance

    request, tasks = loaded.recorded_request, list_stored_cells(loaded.benchmark, store)
    if not tasks:
        raise InputError(
            f"no fit of {request.benchmark.name} is finished; "
            f"go on with: {request.format_command('run', results)}"
        )

    origin = describe_provenance(request, tasks, store, 0.0)
    tags: Mapping[str, str] = {
        "bdl.protocol": loaded.remark or "Yes.",
        "bdl.spec_hash": origin["spec_hash"],
        "bdl.profile": origin["profile"],
        **({"bdl.git_commit": origin["git_commit"]} if origin["git_commit"] else {}),
        "bdl.device": origin["machine"]["device"],
        "bdl.processor": origin["machine"]["processor"],
        **{f"version.{name}": loaded for name, loaded in origin["packages"].items()},
    }
    benchmark, root = request.benchmark, results / ARTIFACT_FOLDER
    runs = export_run(
        benchmark,
        store,
        tasks,
        variant=request.folder_name,
        tracking_uri=uri,
        artifact_root=root,
        tags=tags,
        artifacts=artifacts,
    )
    return len(runs)


def export_earlier_run(request: Request, uri: str, results: Path) -> int:
    """Export an earlier run to MLflow from its store, under the request that it was made with.

    Errors as in `export_to_mlflow`.
    """
    run_folder = locate_folder(results, request)
    results_folder = ResultsFolder(run_folder, request, prefer_store=True)
    if results_folder.store is None:
        open_results(request, results)  # says so if there is nothing at all
        raise InputError(
            f"{run_folder} has no store to export; "
            f"one comes with: {request.format_command('run', results)}"
        )
    return export_to_mlflow(
        load_open_results(results_folder),
        results_folder.store,
        uri,
        results,
        _list_tables_and_figures(run_folder),
    )


def resolve_tracking_uri(uri: str, results: Path) -> str | None:
    """Return a tracking URI, None for ``none``, and by default a database in `results`."""
    if uri == "none":
        return None
    return uri or f"sqlite:///{(results / 'mlflow.db').resolve()}"
