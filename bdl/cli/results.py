"""The commands on finished runs: report, compare, submit and verify."""

from pathlib import Path
from typing import Annotated

import typer

from bdl.cli import terminal
from bdl.cli.options import Selection, selecting

app = typer.Typer()


@app.command()
@selecting
def report(
    selection: Selection,
    output: Annotated[
        Path | None, typer.Option(help="The file. Default: report.html beside the table.")
    ] = None,
) -> None:
    """Write all that is known of a run as one HTML file: tables, figures, failures, what was found, origin, errata."""
    from bdl.publishing.page import write_page

    terminal.write(f"{write_page(selection.asked, selection.results, output)}\n")


@app.command()
@selecting
def compare(
    selection: Selection,
    other: Annotated[
        str | None, typer.Argument(help="A second run: both are folders of results then.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Method of one run to hold the others against.")
    ] = None,
    format: Annotated[str, typer.Option(help="text, markdown or json.")] = "text",
    figures: Annotated[
        Path | None, typer.Option(help="Folder for diagrams of critical differences.")
    ] = None,
) -> None:
    """Compare two runs, split by split.

    Or the methods of one with its baseline, and their ranks over data sets.
    """
    from rich.console import Console

    from bdl.archive.loading import load_results
    from bdl.errors import InputError
    from bdl.publishing import runs
    from bdl.reports.figures import Shown, draw_figures

    if other is not None:
        if baseline or figures:
            raise InputError(
                "--baseline and --figures are for one run; leave them out, or give one run"
            )
        if selection.set_ or selection.splits or selection.profile != "paper":
            raise InputError(
                "--profile, --set and --splits are for one run; leave them out, and name its folder"
            )
        first, second = (
            runs.read_run(each, selection.results) for each in (selection.name, other)
        )
        told = runs.compare_runs(first, second, selection.dataset, selection.method)
    else:
        against = baseline or selection.asked.benchmark.baseline
        kept = [*selection.method, against] if selection.method and against else selection.method
        found = load_results(selection._replace(method=kept).asked, selection.results)
        told, ranked = runs.compare_entries(found, against)
        if figures:
            draw_figures(Shown(found.benchmark, ranks=ranked), figures)
    rendered = told.render(format)
    if format == "text":
        Console(width=None if Console().is_terminal else 120).print(rendered)
    else:
        terminal.write(str(rendered))


@app.command()
@selecting
def submit(
    selection: Selection,
    output: Annotated[
        Path | None, typer.Option(help="The file. Default: the benchmark's name, with .zip.")
    ] = None,
) -> None:
    """Make one file of a finished run, which others can verify: spec, rows and predictions."""
    from bdl.publishing.submitting import submit as make

    asked = selection.asked
    path = output or Path(f"{asked.benchmark.name}.zip")
    fits = make(asked, selection.results, path)
    size = path.stat().st_size / 1e6
    terminal.write(f"{path}: {fits} fits, {size:.2g} MB; check it with: bdl-bench verify {path}\n")


@app.command()
def verify(
    bundles: Annotated[list[Path], typer.Argument(help="Files that bdl-bench submit has made.")],
) -> None:
    """Compute the scores of bundles again from their predictions, with our data.

    Refuse what does not follow.
    """
    from rich.table import Table

    from bdl.publishing.submitting import registered
    from bdl.publishing.verifying import verify as check

    shown, foreign = (
        Table("bundle", "cell", "splits", "failed", "recomputed", "self-reported"),
        False,
    )
    marks = list[str]()
    for path in bundles:
        for own in check(path):
            foreign |= own.foreign
            counts = str(own.splits), str(own.failed)
            names = ", ".join(own.scores), ", ".join(own.reported)
            shown.add_row(path.name, own.cell + " *" * own.foreign, *counts, *names)
        commit, why = registered(path)
        mark = (
            f"pre-registered, its spec is in commit {commit[:12]}"
            if commit
            else f"not pre-registered: {why}"
        )
        marks.append(f"{path.name}: {mark}")
    console = terminal.console()
    console.print(shown)
    console.print(
        "self-reported, too: seconds, hyper-parameters, failures, and that the fits were made as the spec says"
    )
    for mark in marks:
        console.print(mark, soft_wrap=True)
    if foreign:
        console.print("* with code from outside: the hash of these fits was not checked")
