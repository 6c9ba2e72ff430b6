"""Runs in MLflow: the export of a run from its store, and where MLflow keeps it."""

from collections.abc import Sequence
from pathlib import Path

from bdl.errors import InputError
from bdl.publishing.published_files import list_tables_and_figures
from bdl.publishing.tracking import ARTIFACT_FOLDER
from bdl.records.run_folder import RunFolder
from bdl.spec import Request
from bdl.stored_results.folders import locate_folder
from bdl.stored_results.loading import LoadedResults, load_open_results, open_results
from bdl.stored_results.results_folder import ResultsFolder, list_stored_tasks


def export_to_mlflow(
    loaded: LoadedResults,
    run_folder: RunFolder,
    uri: str,
    results: Path,
    artifacts: Sequence[Path],
) -> int:
    """Export a run from its store to MLflow; return the number of MLflow runs.

    `InputError` if no cell has results, or as `bdl.publishing.mlflow_export.export_run` says.
    """
    from bdl.publishing.mlflow_export import export_run
    from bdl.publishing.provenance import describe_provenance

    request, tasks = loaded.recorded_request, list_stored_tasks(loaded.benchmark, run_folder)
    if not tasks:
        raise InputError(
            f"no fit of {request.benchmark.name} is finished; "
            f"go on with: {request.format_command('run', results)}"
        )

    provenance = describe_provenance(request, tasks, run_folder, 0.0)
    tags: dict[str, str] = {
        "bdl.protocol": loaded.remark or "Yes.",
        "bdl.spec_hash": provenance["spec_hash"],
        "bdl.profile": provenance["profile"],
        "bdl.device": provenance["machine"]["device"],
        "bdl.processor": provenance["machine"]["processor"],
        **{f"version.{name}": version for name, version in provenance["packages"].items()},
    }
    if provenance["git_commit"]:
        tags["bdl.git_commit"] = provenance["git_commit"]
    benchmark, root = request.benchmark, results / ARTIFACT_FOLDER
    runs = export_run(
        benchmark,
        run_folder,
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
    folder = locate_folder(results, request)
    results_folder = ResultsFolder(folder, request, prefer_store=True)
    if results_folder.store is None:
        open_results(request, results)  # says so if there is nothing at all
        raise InputError(
            f"{folder} has no store to export; "
            f"one comes with: {request.format_command('run', results)}"
        )
    return export_to_mlflow(
        load_open_results(results_folder),
        results_folder.store,
        uri,
        results,
        list_tables_and_figures(folder),
    )


def resolve_tracking_uri(uri: str, results: Path) -> str | None:
    """Return a tracking URI, None for ``none``, and by default a database in `results`."""
    if uri == "none":
        return None
    return uri or f"sqlite:///{(results / 'mlflow.db').resolve()}"
