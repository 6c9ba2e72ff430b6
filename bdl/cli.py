"""The command line, `bdl-bench`. Heavy packages are imported by the commands that need them."""

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from bdl import __version__, cli_data, cli_references, terminal
from bdl.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bdl.plan.cell import Cell
    from bdl.spec import Variant
    from bdl.store.store import Store

app = typer.Typer(
    help="Benchmarks for Bayesian deep learning: every number beside the one printed in the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cli_data.app, name="data")
app.add_typer(cli_references.app, name="references")

console = Console(width=None if sys.stdout and sys.stdout.isatty() else 120)


def _folder(given: str | Path) -> Path:
    """Take a folder; an empty text, which a variable of a script may be, would be the working directory."""
    if given == "":
        raise InputError("--results '': give a folder, or leave it out for results")
    return Path(given)


Name = Annotated[str, typer.Argument(help="Name of a benchmark, or path of a YAML file.")]
Profile = Annotated[str, typer.Option(help="Profile of the benchmark file.")]
Set = Annotated[list[str], typer.Option("--set", help="Override a field: path.to.field=value.")]
Datasets = Annotated[list[str], typer.Option("--dataset", help="Only this data set (repeatable).")]
Methods = Annotated[list[str], typer.Option("--method", help="Only this entry (repeatable).")]
Splits = Annotated[str | None, typer.Option("--splits", help="How many splits, or which: 5, or 0,3,5-7.")]
Results = Annotated[Path, typer.Option("--results", parser=_folder, help="Folder of results.")]
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
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that work side by side, one thread each.")] = 1,
    compile: Compile = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew; a copy of the store is kept.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much it is and how long it takes.")] = False,
    results: Results = Path("results"),
    tracking: Tracking = "",
) -> None:
    """Run a benchmark; what an interrupted run has done is kept and not done again."""
    from bdl.publishing.outcome import tracking_uri
    from bdl.publishing.tracking import check_uri
    from bdl.spec import load_variant
    from bdl.store.folder import opened

    start = time.perf_counter()
    asked = load_variant(name, profile, set_, dataset, method, splits)
    if dry_run:
        _dry_run(asked, results, partial(_plan, asked, results, device, compile, jobs, dry=True), jobs, fresh)
        return
    if uri := tracking_uri(tracking, results):
        check_uri(uri, results)
    cells = _plan(asked, results, device, compile, jobs)
    with opened(results, asked) as store:
        _work(asked, cells, store, jobs, fresh, results)
        _hand_over(asked, store, results, time.perf_counter() - start, uri)
        finals = [row for cell in cells for row in store.rows("final", cell.key)]
    if n_failed := sum(row.status == "failed" for row in finals):
        console.print(f"{n_failed} of the final fits failed; their reasons are in trials.parquet, column 'reason'")
        raise typer.Exit(1)


def _dry_run(asked: "Variant", results: Path, plan: "Callable[[], list[Cell]]", jobs: int, fresh: bool) -> None:
    """Say what a run would take; nothing is started or written."""
    from bdl import announcing
    from bdl.execution.queue import check_hashes
    from bdl.execution.taking_over import at_hand
    from bdl.store.folder import empty, folder, looked_at, siblings

    if names := announcing.not_here(asked):
        told = f"not on this machine: {', '.join(names)}; fetch them, then ask again: bdl-bench data fetch"
        _say([f"{told} {' '.join(names)}"])
        return
    cells = plan()
    with empty() if fresh else looked_at(results, asked) as store:
        check_hashes(cells, store)
        elsewhere = {} if fresh else at_hand(cells, store, siblings(folder(results, asked)))
        found = announcing.foretell(asked, cells, store, results, jobs, elsewhere)
    _say([*announcing.lines(found, asked, results), *announcing.references(cells)])


def _say(lines: "Iterable[str]") -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _work(asked: "Variant", cells: "list[Cell]", store: "Store", jobs: int, fresh: bool, results: Path) -> None:
    """Do what the store lacks, and what no other run of the benchmark has done already."""
    from bdl import announcing
    from bdl.execution.executors import crew
    from bdl.execution.queue import prepare
    from bdl.execution.queue import run as run_cells
    from bdl.execution.taking_over import take_over
    from bdl.progress import Display
    from bdl.store.folder import siblings, start_afresh

    if fresh and (copy := start_afresh(store, [cell.key for cell in cells])):
        console.print(f"Starting anew; the earlier rows are in {copy}")
    try:
        prepare(cells, store)
        store.remember(json.dumps(asked.dump()))
        if not fresh and (count := take_over(cells, store, siblings(store.path.parent))):
            console.print(f"final fits taken over from other runs of {asked.benchmark.name}: {count}")
        found = announcing.foretell(asked, cells, store, results, jobs)
        if found.seconds > announcing.SHORT:
            _say(announcing.lines(found, asked, results))
        with Display(console, cells) as display, crew(jobs) as workers:
            run_cells(cells, store, workers, display)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted; the same command goes on from here")
        raise typer.Exit(130) from None


def _hand_over(asked: "Variant", store: "Store", results: Path, seconds: float, uri: str | None) -> None:
    """Publish what the store has, show its tables, and mirror it."""
    from bdl.publishing.outcome import mirror_run, publish, tables

    found, artifacts = publish(asked, store, results, seconds)
    console.print(tables(found, "rich"))
    if asked.name:
        told = f"kept apart from the protocol, in {store.path.parent}; see it with: bdl-bench table {asked.asked}"
        console.print(told, soft_wrap=True, highlight=False)
    if uri:
        mirror_run(found, store, uri, results, artifacts)
        console.print("mirrored to MLflow; look at it with: bdl-bench ui")


@app.command()
def table(
    name: Name,
    profile: Profile = "paper",
    format: Annotated[str, typer.Option(help="rich, markdown, csv, latex or json.")] = "rich",
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
    rendered = tables(find(asked, results, within=True), format)
    if format == "rich":
        console.print(rendered)
    else:
        terminal.write(str(rendered))


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
        console.print(f"[bold]{benchmark}[/]  {title}")
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
    name: Annotated[str, typer.Argument(help="A name that `bdl-bench list` shows.")],
) -> None:
    """Say what a benchmark or a component is."""
    from bdl.describe import describe as text

    console.print(text(name), markup=False, highlight=False)


@app.command()
def schema() -> None:
    """Write the JSON schema of benchmark files, for editors."""
    import json

    from bdl.spec import json_schema

    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


def main() -> None:
    """Run the command line: 0 done, 1 fits failed, 2 bad input, 3 a fault of this program, 130 interrupted."""
    terminal.prepare()
    sys.exit(terminal.ended(lambda: app(standalone_mode=False)))


def _plan(
    asked: "Variant", results: Path, device: str, compile: bool | None, jobs: int, *, dry: bool = False
) -> "list[Cell]":
    """Lay out what is asked for, with references that are sampled; refuse what would only be found after training.

    Dry, nothing is sampled, and references are not looked at.
    """
    from bdl.plan.first_look import check as check_start
    from bdl.plan.planning import plan
    from bdl.plan.truths import check, sampled
    from bdl.publishing.keeping import check_published
    from bdl.reports.papers import paper_values

    paper_values(asked.benchmark.papers)
    cells = plan(asked.chosen, splits=asked.numbers, device=device, compile=compile, jobs=jobs)
    check_published(asked, cells, results)
    if not dry:
        cli_references.make(sampled(cells), console)
        check(cells)
    check_start(cells)
    return cells
