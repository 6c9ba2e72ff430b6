"""The command line, `bdl-bench`. Heavy packages are imported by the commands that need them."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from bdl import __version__, cli_data, cli_references, cli_reports, cli_run, terminal
from bdl.cli_options import Datasets, Methods, Name, Profile, Results, Set, Splits
from bdl.errors import InputError
from bdl.openmp import wait_briefly
from bdl.pages import keep_pages
from bdl.shipped import shipped

app = typer.Typer(
    help="Benchmarks for Bayesian deep learning: every number beside the one printed in the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_references.app, name="references")
app.add_typer(cli_reports.app)

console = terminal.console()


def _described(begun: str) -> list[str]:
    """Complete the name of a benchmark or of a method."""
    from bdl.methods import METHODS

    return [name for name in [*shipped(), *METHODS.names()] if name.startswith(begun)]


Tracking = Annotated[str, typer.Option(help="MLflow tracking URI, or none. Default: a database in --results.")]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Use torch.compile. Default: when it pays.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        terminal.write(f"bdl-bench {__version__}\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    """Benchmarks for Bayesian deep learning: every number beside the one printed in the paper."""


@app.command()
def run(
    name: Name,
    profile: Profile = "paper",
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    splits: Splits = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[
        int,
        typer.Option("--jobs", parser=cli_run.count, metavar="<int|auto>", help="Processes that work side by side."),
    ] = 1,
    executor: Annotated[
        str, typer.Option(help="Where groups run: dask:ADDRESS of a scheduler, or slurm:FILE of settings.")
    ] = "",
    compile: Compile = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew; a copy of the store is kept.")] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Start anew what another spec, data or code made; a copy is kept.")
    ] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Take over published fits that today's spec, data and code made.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much it is and how long it takes.")] = False,
    results: Results = Path("results"),
    tracking: Tracking = "",
) -> None:
    """Run a benchmark; what an interrupted run has done is kept and not done again."""
    from bdl.publishing.outcome import tracking_uri
    from bdl.publishing.tracking import check_uri
    from bdl.spec import load_variant

    if dry_run and changed:
        raise InputError("--dry-run --changed: estimate what there is without --changed, or all of it with --fresh")
    asked = load_variant(name, profile, set_, dataset, method, splits)
    ways = cli_run.Ways(results, device, compile, jobs, fresh, changed, published, executor)
    if dry_run:
        cli_run.forecast(asked, ways, console)
        return
    if uri := tracking_uri(tracking, results):
        check_uri(uri, results)
    cli_run.run(asked, ways, uri, console)


@app.command()
def table(
    name: Name,
    profile: Profile = "paper",
    format: Annotated[str, typer.Option(help="rich, markdown, csv, latex or json.")] = "rich",
    metric: Annotated[list[str], typer.Option("--metric", help="Only this metric (repeatable).")] = [],
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    splits: Splits = None,
    results: Results = Path("results"),
) -> None:
    """Show a benchmark's numbers beside the printed ones."""
    from bdl.publishing.found import find
    from bdl.publishing.outcome import tables
    from bdl.spec import load_variant

    asked = load_variant(name, profile, set_, dataset, method, splits)
    rendered = tables(find(asked, results, within=True), format, metric)
    if format == "rich":
        console.print(rendered)
    else:
        terminal.write(str(rendered))


@app.command()
def failures(
    name: Name,
    profile: Profile = "paper",
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    splits: Splits = None,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where in the code, too.")] = False,
    results: Results = Path("results"),
) -> None:
    """List the fits that failed, and why."""
    from bdl.publishing.failures import failures as failed
    from bdl.spec import load_variant

    found = failed(load_variant(name, profile, set_, dataset, method, splits), results)
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
def figures(
    name: Name,
    profile: Profile = "paper",
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    splits: Splits = None,
    results: Results = Path("results"),
) -> None:
    """Redraw a benchmark's figures as PNG and PDF."""
    from bdl.publishing.outcome import redraw
    from bdl.spec import load_variant

    for path in redraw(load_variant(name, profile, set_, dataset, method, splits), results):
        console.print(str(path), highlight=False, soft_wrap=True)


@app.command()
def log(
    name: Name,
    profile: Profile = "paper",
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    splits: Splits = None,
    results: Results = Path("results"),
    tracking: Tracking = "",
) -> None:
    """Mirror an earlier run to MLflow."""
    from bdl.publishing.outcome import log_again, tracking_uri
    from bdl.spec import load_variant

    uri = tracking_uri(tracking, results)
    if uri is None:
        raise InputError("--tracking none leaves nothing to do; leave it out, or give a tracking URI")
    n_runs = log_again(load_variant(name, profile, set_, dataset, method, splits), uri, results)
    console.print(f"{n_runs} runs are in {uri}", soft_wrap=True)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 5000,
    results: Results = Path("results"),
    tracking: Tracking = "",
) -> None:
    """Open the MLflow UI on this machine."""
    from bdl.publishing.mirror import open_ui
    from bdl.publishing.outcome import tracking_uri

    uri = tracking_uri(tracking, results)
    if uri is None:
        raise InputError("--tracking none has nothing to show; leave it out, or give a tracking URI")
    open_ui(uri, port)


@app.command("list")
def list_() -> None:
    """List benchmarks, data sets, models, likelihoods, priors, learning rates, methods, references and metrics."""
    from bdl.data import DATASETS
    from bdl.methods import METHODS
    from bdl.metrics import METRICS
    from bdl.models import LIKELIHOODS, MODELS, PRIORS
    from bdl.references import REFERENCES
    from bdl.spec import list_benchmarks
    from bdl.training.schedule import RATES

    for benchmark, title in list_benchmarks():
        console.print(Text(benchmark, "bold"), f" {title}")
    kinds = {
        "data sets": DATASETS,
        "models": MODELS,
        "likelihoods": LIKELIHOODS,
        "priors": PRIORS,
        "rates": RATES,
        "methods": METHODS,
        "references": REFERENCES,
        "metrics": METRICS,
    }
    for kind, registry in kinds.items():
        console.print(f"{kind}: {', '.join(registry.names())}")


@app.command()
def describe(
    name: Annotated[
        str,
        typer.Argument(
            help="A name that bdl-bench list shows, path of a YAML file, or file.py:Class.", autocompletion=_described
        ),
    ],
) -> None:
    """Describe what a benchmark or a component is."""
    from bdl.describe import describe as text

    console.print(text(name), highlight=False, soft_wrap=True)


@app.command()
def schema() -> None:
    """Write the JSON schema of benchmark files, for editors."""

    from bdl.spec import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


def main() -> None:
    """Run the command line: 0 done, 1 fits failed, 2 bad input, 3 a fault of this program, 130 interrupted."""
    terminal.prepare()
    wait_briefly()
    keep_pages()
    sys.exit(terminal.ended(lambda: app(standalone_mode=False)))
