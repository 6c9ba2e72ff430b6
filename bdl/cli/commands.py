"""The commands of `bdl-bench`. Heavy packages are imported by the commands that need them."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import bdl
from bdl.cli import listing, results, terminal
from bdl.cli.options import (
    AUTO,
    AsJson,
    Name,
    RequestOptions,
    Results,
    parse_jobs,
    with_request_options,
)
from bdl.errors import InputError, with_plural
from bdl.files import DEFAULT_RESULTS
from bdl.registry import shipped_benchmarks
from bdl.runtime import frozen_imports

_SUMMARY = (
    "Benchmarks for Bayesian deep learning: every number beside the one printed in the paper."
)

app = typer.Typer(
    help=_SUMMARY,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(listing.data_app, name="data")
app.add_typer(listing.references_app, name="references")
app.add_typer(results.app)
app.add_typer(listing.app)

console = terminal.make_console()


def _complete_name(prefix: str) -> list[str]:
    from bdl.methods import METHODS

    return [name for name in [*shipped_benchmarks(), *METHODS.names()] if name.startswith(prefix)]


Tracking = Annotated[
    str, typer.Option(help="MLflow tracking URI, or none. Default: a database in --results.")
]
Compile = Annotated[
    bool | None,
    typer.Option("--compile/--no-compile", help="Use torch.compile. Default: when it pays."),
]


def _show_version(requested: bool) -> None:
    if requested:
        terminal.write_text(f"bdl-bench {bdl.__version__}\n")
        raise typer.Exit


@app.callback()
def take_global_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    """Benchmarks for Bayesian deep learning: every number beside the one printed in the paper."""


@app.command()
@with_request_options
def run(
    request_options: RequestOptions,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            parser=parse_jobs,
            metavar="<int|auto>",
            help="Processes that work side by side. Default: 1; auto for a profile on the CPU.",
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            help="Where groups run: dask:ADDRESS of a scheduler, or slurm:FILE of settings."
        ),
    ] = "",
    compile: Compile = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start anew; a copy of the store is kept.")
    ] = False,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed", help="Start anew what another spec, data or code made; a copy is kept."
        ),
    ] = False,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Import published fits that today's spec, data and code made."
        ),
    ] = False,
    retry: Annotated[
        bool,
        typer.Option(
            "--retry-failed", help="Make fits again that failed; what their search found is kept."
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print errors alone; the exit code says the rest."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print each group of fits, and times.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option("--log", help="File that keeps what is printed, with times.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how much it is and how long it takes.")
    ] = False,
    tracking: Tracking = "",
) -> None:
    """Run a benchmark; what an interrupted run has done is kept and not done again."""
    with frozen_imports():
        from bdl.api import running
        from bdl.api.progress import LoggedConsole
        from bdl.publishing.mlflow_names import check_mlflow_names
        from bdl.publishing.tracked_runs import resolve_tracking_uri
        from bdl.publishing.tracking import check_uri

    if dry_run and changed:
        raise InputError(
            "--dry-run --changed: "
            "estimate what there is without --changed, or all of it with --fresh"
        )
    if dry_run and retry:
        raise InputError(
            "--dry-run --retry-failed: leave one out; "
            "bdl-bench failures lists what would be made again"
        )
    if quiet and verbose:
        raise InputError("--quiet --verbose: leave one out")
    run_console = LoggedConsole(log, verbose, quiet=quiet, **terminal.console_options())
    request = request_options.request
    if jobs is None:
        # the protocol keeps to one process, whose threads the published bits of large models need
        jobs = 1 if request.benchmark.profile == "paper" or device != "cpu" else AUTO
    run_options = running.RunOptions(
        results=request_options.results,
        device=device,
        compile=compile,
        jobs=jobs,
        fresh=fresh,
        changed=changed,
        imports_published=published,
        retry=retry,
        executor=executor,
    )
    if dry_run:
        running.print_forecast(request, run_options, run_console)
        return
    if uri := resolve_tracking_uri(tracking, request_options.results):
        check_mlflow_names(request.benchmark.metrics)
        check_uri(uri, request_options.results)
    try:
        is_complete = running.run_benchmark(request, run_options, uri, run_console)
    except KeyboardInterrupt as interruption:  # which typer would end without a word
        typer.echo(str(interruption) or "interrupted", err=True)
        raise typer.Exit(terminal.INTERRUPTED) from None
    if not is_complete:
        raise typer.Exit(1)


@app.command()
@with_request_options
def table(
    request_options: RequestOptions,
    format: Annotated[str, typer.Option(help="rich, markdown, csv, latex or json.")] = "rich",
    metric: Annotated[
        list[str], typer.Option("--metric", help="Only this metric (repeatable).")
    ] = [],
    wide: Annotated[
        bool,
        typer.Option("--wide", help="Add medians, z and further tables, however wide they are."),
    ] = False,
    notes: Annotated[bool, typer.Option("--notes", help="Write out the notes.")] = False,
    tracking: Annotated[
        str, typer.Option(help="MLflow tracking URI to which the run is exported, or none.")
    ] = "none",
) -> None:
    """Show a benchmark's numbers beside the printed ones."""
    with frozen_imports():
        from bdl.publishing.run_tables import render_tables, summarise_tables
        from bdl.publishing.tracked_runs import export_earlier_run, resolve_tracking_uri
        from bdl.stored_results.loading import load_results

        request = request_options.request_of_results  # it imports the user's components
    results = request_options.results
    loaded = load_results(request, results)
    if uri := resolve_tracking_uri(tracking, results):
        n_runs = export_earlier_run(request, uri, results)
        typer.echo(f"{n_runs} runs are in {uri}", err=True)  # the table may go to a file
    if format != "rich":
        terminal.write_text(str(render_tables(loaded, format, metric)))
    elif wide:
        terminal.print_wide(render_tables(loaded, format, metric, with_notes=notes))
    else:
        console.print(summarise_tables(loaded, metric, with_notes=notes))


@app.command()
@with_request_options
def failures(
    request_options: RequestOptions,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the code, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the fits that failed, and why."""
    from bdl.spec.request import format_ranges
    from bdl.stored_results.loading import open_results

    request = request_options.request_of_results
    folder = open_results(request, request_options.results, prefer_store=True)
    failed_fits = folder.list_failed_fits()
    if as_json:
        terminal.write_json([failure._asdict() for failure in failed_fits])
        return
    for failure in failed_fits:
        fits = f"{with_plural(failure.fits, 'fit')} of splits {format_ranges(failure.splits)}"
        terminal.print_lines([f"{failure.cell}, {failure.stage}, {fits}: {failure.reason}"])
        if traceback and failure.traceback:
            terminal.write_text(failure.traceback + "\n")
    if not failed_fits:
        terminal.write_text("no fit failed\n")
    elif not traceback and any(failure.traceback for failure in failed_fits):
        terminal.write_text("--traceback shows where in the code\n")


@app.command()
@with_request_options
def figures(request_options: RequestOptions) -> None:
    """Redraw a benchmark's figures as PNG and PDF."""
    from bdl.publishing.run_figures import redraw_figures

    for path in redraw_figures(request_options.request, request_options.results):
        console.print(str(path), highlight=False, soft_wrap=True)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 5000,
    results: Results = DEFAULT_RESULTS,
    tracking: Tracking = "",
) -> None:
    """Open the MLflow UI on this machine."""
    from bdl.publishing.mlflow_ui import open_ui
    from bdl.publishing.tracked_runs import resolve_tracking_uri
    from bdl.publishing.tracking import ARTIFACT_FOLDER, relocate_artifacts

    uri = resolve_tracking_uri(tracking, results)
    if uri is None:
        raise InputError(
            "--tracking none has nothing to show; leave it out, or give a tracking URI"
        )
    relocate_artifacts(uri, results / ARTIFACT_FOLDER)
    open_ui(uri, port)


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="A name that bdl-bench list shows, path of a YAML file, or file.py:Class.",
            autocompletion=_complete_name,
        ),
    ],
) -> None:
    """Describe what a benchmark or a component is."""
    with frozen_imports():
        from bdl.cli.describe import describe_by_name

        text = describe_by_name(name)  # it imports the user's component
    terminal.print_lines(text.splitlines())


@app.command()
def cite(name: Name) -> None:
    """Write BibTeX of the suite, and of the works that a benchmark is compared with."""
    from bdl.reports.papers import cite_sources
    from bdl.spec import load_benchmark

    terminal.write_text(cite_sources(load_benchmark(name, checked=True)))


@app.command()
def schema() -> None:
    """Write the JSON schema of benchmark files, for editors."""

    from bdl.spec import build_json_schema

    sys.stdout.write(json.dumps(build_json_schema(), indent=2) + "\n")
