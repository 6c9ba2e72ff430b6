"""The command line, `bdl-bench`. Heavy packages are imported by the commands that need them."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from bdl import cli_references
from bdl.errors import InputError

if TYPE_CHECKING:
    from bdl.plan.cell import Cell
    from bdl.spec import Benchmark

app = typer.Typer(
    help="Benchmarks for Bayesian deep learning: every number beside the one printed in the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
data_app = typer.Typer(help="List, download and verify the data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(cli_references.app, name="references")

console = Console(width=None if sys.stdout.isatty() else 120)

Name = Annotated[str, typer.Argument(help="Name of a benchmark, or path of a YAML file.")]
Profile = Annotated[str, typer.Option(help="Profile of the benchmark file.")]
Set = Annotated[list[str], typer.Option("--set", help="Override a field: path.to.field=value.")]
Datasets = Annotated[list[str], typer.Option("--dataset", help="Only this data set (repeatable).")]
Methods = Annotated[list[str], typer.Option("--method", help="Only this entry (repeatable).")]
Splits = Annotated[str, typer.Option("--splits", help="How many splits, or which: 5, or 0,3,5-7.")]
Results = Annotated[Path, typer.Option("--results", help="Folder of results.")]
Tracking = Annotated[str, typer.Option(help="MLflow tracking URI, or none. Default: a database in --results.")]
Compile = Annotated[
    bool | None, typer.Option("--compile/--no-compile", help="Use torch.compile. Default: when it pays.")
]


@app.command()
def run(
    name: Name,
    profile: Profile = "paper",
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    splits: Splits = "",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that work side by side, one thread each.")] = 1,
    compile: Compile = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew; a copy of the store is kept.")] = False,
    results: Results = Path("results"),
    tracking: Tracking = "",
) -> None:
    """Run a benchmark; what an interrupted run has done is kept and not done again."""
    from bdl.execution.executors import crew
    from bdl.execution.queue import run as run_cells
    from bdl.plan.first_look import check as check_start
    from bdl.plan.truths import check, sampled
    from bdl.progress import Display
    from bdl.publishing.outcome import mirror_run, publish, stored_cells, tracking_uri
    from bdl.reports import render
    from bdl.store.folder import opened, start_afresh

    start = time.perf_counter()
    whole = _benchmark(name, profile, set_)
    benchmark = whole.select(dataset, method)
    cells = _plan(benchmark, splits, device, compile)
    cli_references.make(sampled(cells), console)
    check(cells)
    check_start(cells)
    with opened(results, benchmark) as store:
        if fresh and (copy := start_afresh(store, [cell.key for cell in cells])):
            console.print(f"Starting anew; the earlier rows are in {copy}")
        try:
            with Display(console, cells) as display, crew(jobs) as workers:
                run_cells(cells, store, workers, display)
        except KeyboardInterrupt:
            Console(stderr=True).print("interrupted; the same command goes on from here")
            raise typer.Exit(130) from None
        comparison, artifacts = publish(whole, store, results, time.perf_counter() - start)
        console.print(render(comparison, "rich"))
        if uri := tracking_uri(tracking, results):
            mirror_run(whole, stored_cells(whole, store), store, uri, results, artifacts)
            console.print("mirrored to MLflow; look at it with: bdl-bench ui")
        finals = [row for cell in cells for row in store.rows("final", cell.key)]
    if n_failed := sum(row.status == "failed" for row in finals):
        console.print(f"{n_failed} of the final fits failed; their reasons are in trials.parquet, column 'reason'")
        raise typer.Exit(1)


@app.command()
def table(
    name: Name,
    profile: Profile = "paper",
    format: Annotated[str, typer.Option(help="rich, markdown, csv, latex or json.")] = "rich",
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    results: Results = Path("results"),
) -> None:
    """Show a benchmark's numbers beside the printed ones."""
    from bdl.publishing.outcome import compared, final_rows
    from bdl.reports import render

    benchmark = _benchmark(name, profile, set_).select(dataset, method)
    rows, _ = final_rows(benchmark, results)
    rendered = render(compared(benchmark, rows), format)
    if format == "rich":
        console.print(rendered)
    else:
        sys.stdout.write(str(rendered))


@app.command()
def figures(name: Name, profile: Profile = "paper", set_: Set = [], results: Results = Path("results")) -> None:
    """Redraw a benchmark's figures as PNG and PDF."""
    from bdl.publishing.outcome import Pictures, compared, draw, final_rows, pictures, stored_cells
    from bdl.store.folder import existing, folder

    benchmark, shown = _benchmark(name, profile, set_), Pictures()
    (rows, points), place = final_rows(benchmark, results), folder(results, benchmark)
    if (place / "store.sqlite").exists():  # posteriors are in the store only, not in the published rows
        with existing(results, benchmark) as store:
            shown = pictures(stored_cells(benchmark, store), store)
    for path in draw(benchmark, rows, points, compared(benchmark, rows), shown, place):
        console.print(str(path), highlight=False, soft_wrap=True)


@app.command()
def log(
    name: Name,
    profile: Profile = "paper",
    set_: Set = [],
    results: Results = Path("results"),
    tracking: Tracking = "",
) -> None:
    """Mirror an earlier run to MLflow."""
    from bdl.publishing.outcome import mirror_run, stored_cells, tracking_uri
    from bdl.store.folder import existing, folder

    benchmark = _benchmark(name, profile, set_)
    uri = tracking_uri(tracking, results)
    if uri is None:
        raise InputError("--tracking none leaves nothing to do; leave it out, or give a tracking URI")
    place = folder(results, benchmark)
    artifacts = sorted([*place.glob("table.*"), *place.glob("figures/*")])
    with existing(results, benchmark) as store:
        n_runs = mirror_run(benchmark, stored_cells(benchmark, store), store, uri, results, artifacts)
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


@data_app.command("list")
def data_list() -> None:
    """List the data sets and whether their files are here."""
    from bdl.data import DATASETS, about, status

    for name in DATASETS.names():
        states = [state for _, state in status(name)]
        here = f"{sum(state == 'ok' for state in states)} of {len(states)} files" if states else "needs no file"
        console.print(f"{name:<18} {here:<14} {'; '.join(about(name))}", highlight=False, soft_wrap=True)


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")] = None,
) -> None:
    """Download what is missing or corrupt."""
    from bdl.data import DATASETS, fetch

    for name in names or DATASETS.names():
        count = fetch(name)
        console.print(f"{name:<18} {count.downloaded} downloaded, {count.present} here already")


@data_app.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")] = None,
) -> None:
    """Check the files against their checksums; exit code 1 if one is corrupt or missing."""
    from bdl.data import DATASETS, status

    wrong = 0
    for name in names or DATASETS.names():
        states = status(name)
        bad = [(path, state) for path, state in states if state != "ok"]
        wrong += len(bad)
        console.print(f"{name:<18} {len(states) - len(bad)} of {len(states)} files are right")
        for path, state in bad[:3]:
            console.print(f"  {path}: {state}")
    if wrong:
        console.print("mend with: bdl-bench data fetch")
        raise typer.Exit(1)


def main() -> None:
    """Run the command line: 0 done, 1 trials failed, 2 bad input, 130 interrupted."""
    try:
        app()
    except InputError as error:
        Console(stderr=True, soft_wrap=True).print(f"bdl-bench: {error}", style="red", markup=False, highlight=False)
        sys.exit(2)


def _benchmark(name: str, profile: str, overrides: list[str]) -> "Benchmark":
    from bdl.spec import load_benchmark

    return load_benchmark(name, profile, overrides)


def _plan(benchmark: "Benchmark", splits: str, device: str, compile: bool | None) -> "list[Cell]":
    from bdl.plan.planning import plan
    from bdl.spec import parse_splits

    chosen = parse_splits(splits, benchmark.splits) if splits else tuple(range(benchmark.splits))
    return plan(benchmark, splits=chosen, device=device, compile=compile)
