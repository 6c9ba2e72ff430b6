"""The commands of `bdl-bench`. Heavy packages are imported by the commands that need them."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

import bdl
from bdl.cli import listing, results, terminal
from bdl.cli.options import AsJson, Results, Selection, count, selecting
from bdl.errors import InputError
from bdl.registry import shipped
from bdl.runtime import importing

app = typer.Typer(
    help="Benchmarks for Bayesian deep learning: every number beside the one printed in the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(listing.data_app, name="data")
app.add_typer(listing.references_app, name="references")
app.add_typer(results.app)
app.add_typer(listing.app)

console = terminal.console()


def _described(begun: str) -> list[str]:
    from bdl.methods import METHODS

    return [name for name in [*shipped(), *METHODS.names()] if name.startswith(begun)]


Tracking = Annotated[
    str, typer.Option(help="MLflow tracking URI, or none. Default: a database in --results.")
]
Compile = Annotated[
    bool | None,
    typer.Option("--compile/--no-compile", help="Use torch.compile. Default: when it pays."),
]


def _show_version(wanted: bool) -> None:
    if wanted:
        terminal.write(f"bdl-bench {bdl.__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    """Benchmarks for Bayesian deep learning: every number beside the one printed in the paper."""


@app.command()
@selecting
def run(
    selection: Selection,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", parser=count, metavar="<int|auto>", help="Processes that work side by side."
        ),
    ] = 1,
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
    with importing():
        from bdl.api import running
        from bdl.api.progress import Voice
        from bdl.publishing.logged import check_names
        from bdl.publishing.outcome import tracking_uri
        from bdl.publishing.tracking import check_uri

    if dry_run and changed:
        raise InputError(
            "--dry-run --changed: estimate what there is without --changed, or all of it with --fresh"
        )
    if dry_run and retry:
        raise InputError(
            "--dry-run --retry-failed: leave one out; bdl-bench failures lists what would be made again"
        )
    if quiet and verbose:
        raise InputError("--quiet --verbose: leave one out")
    voice = Voice(log, verbose, quiet=quiet, **terminal.looks())
    asked, results = selection.asked, selection.results
    settings = running.RunSettings(
        results, device, compile, jobs, fresh, changed, published, retry, executor
    )
    if dry_run:
        running.forecast(asked, settings, voice)
        return
    if uri := tracking_uri(tracking, results):
        check_names(asked.benchmark.metrics)
        check_uri(uri, results)
    running.run(asked, settings, uri, voice)


@app.command()
@selecting
def table(
    selection: Selection,
    format: Annotated[str, typer.Option(help="rich, markdown, csv, latex or json.")] = "rich",
    metric: Annotated[
        list[str], typer.Option("--metric", help="Only this metric (repeatable).")
    ] = [],
) -> None:
    """Show a benchmark's numbers beside the printed ones."""
    with importing():
        from bdl.archive.loading import load_results
        from bdl.publishing.outcome import tables

        asked = selection.asked  # whose components are imported
    rendered = tables(load_results(asked, selection.results), format, metric)
    if format == "rich":
        console.print(rendered)
    else:
        terminal.write(str(rendered))


@app.command()
@selecting
def failures(
    selection: Selection,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the code, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the fits that failed, and why."""
    from bdl.archive.loading import open_results

    with open_results(selection.asked, selection.results, latest=True) as here:
        found = here.failures()
    if as_json:
        terminal.write_json([own._asdict() for own in found])
        return
    for own in found:
        fits = f"{own.fits} fit{'s' if own.fits > 1 else ''} of splits {', '.join(map(str, own.splits))}"
        terminal.write(f"{own.cell}, {own.stage}, {fits}: {own.reason}\n")
        if traceback and own.traceback:
            terminal.write(own.traceback + "\n")
    if not found:
        terminal.write("no fit failed\n")
    elif not traceback and any(own.traceback for own in found):
        terminal.write("--traceback shows where in the code\n")


@app.command()
@selecting
def figures(selection: Selection) -> None:
    """Redraw a benchmark's figures as PNG and PDF."""
    from bdl.publishing.outcome import redraw

    for path in redraw(selection.asked, selection.results):
        console.print(str(path), highlight=False, soft_wrap=True)


@app.command()
@selecting
def log(selection: Selection, tracking: Tracking = "") -> None:
    """Mirror an earlier run to MLflow."""
    from bdl.publishing.outcome import log_again, tracking_uri

    uri = tracking_uri(tracking, selection.results)
    if uri is None:
        raise InputError(
            "--tracking none leaves nothing to do; leave it out, or give a tracking URI"
        )
    n_runs = log_again(selection.asked, uri, selection.results)
    console.print(f"{n_runs} runs are in {uri}", soft_wrap=True)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 5000,
    results: Results = Path("results"),
    tracking: Tracking = "",
) -> None:
    """Open the MLflow UI on this machine."""
    from bdl.publishing.logged import open_ui
    from bdl.publishing.outcome import ARTIFACTS, tracking_uri
    from bdl.publishing.tracking import bring_along

    uri = tracking_uri(tracking, results)
    if uri is None:
        raise InputError(
            "--tracking none has nothing to show; leave it out, or give a tracking URI"
        )
    bring_along(uri, results / ARTIFACTS)
    open_ui(uri, port)


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="A name that bdl-bench list shows, path of a YAML file, or file.py:Class.",
            autocompletion=_described,
        ),
    ],
) -> None:
    """Describe what a benchmark or a component is."""
    with importing():
        from bdl.cli.describe import describe as text

        told = text(name)
    console.print(told, highlight=False, soft_wrap=True)


@app.command()
def schema() -> None:
    """Write the JSON schema of benchmark files, for editors."""

    from bdl.spec import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
