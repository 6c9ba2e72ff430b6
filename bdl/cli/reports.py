"""The commands `bdl-bench report` and `bdl-bench compare`."""

from pathlib import Path
from typing import Annotated

import typer

from bdl.cli import terminal
from bdl.cli.options import Profile, Results, Selection, selecting

app = typer.Typer()


@app.command()
@selecting
def report(
    selection: Selection,
    output: Annotated[Path | None, typer.Option(help="The file. Default: report.html beside the table.")] = None,
) -> None:
    """Write all that is known of a run as one HTML file: tables, figures, failures, what was found, origin, errata."""
    from bdl.publishing.page import write_page

    terminal.write(f"{write_page(selection.asked, selection.results, output)}\n")


@app.command()
def compare(
    name: Annotated[str, typer.Argument(help="A benchmark; or with OTHER, a folder of results.")],
    other: Annotated[str | None, typer.Argument(help="The folder of results to compare with.")] = None,
    profile: Profile = "paper",
    baseline: Annotated[str | None, typer.Option(help="Entry of one run to hold the others against.")] = None,
    format: Annotated[str, typer.Option(help="text, markdown or json.")] = "text",
    figures: Annotated[Path | None, typer.Option(help="Folder for diagrams of critical differences.")] = None,
    results: Results = Path("results"),
) -> None:
    """Compare two runs, split by split; or the entries of one with its baseline, and their ranks over data sets."""
    from rich.console import Console

    from bdl.archive.loading import load_results
    from bdl.errors import InputError
    from bdl.publishing import runs
    from bdl.reports.figures import Shown, draw_figures
    from bdl.spec import load_variant

    if other is not None:
        if baseline or figures:
            raise InputError("--baseline and --figures are for one run; leave them out, or give one run")
        told = runs.compare_runs(runs.read_run(name, results), runs.read_run(other, results))
    else:
        found = load_results(load_variant(name, profile), results)
        told, ranked = runs.compare_entries(found, baseline)
        if figures:
            draw_figures(Shown(found.benchmark, ranks=ranked), figures)
    rendered = told.render(format)
    if format == "text":
        Console(width=None if Console().is_terminal else 120).print(rendered)
    else:
        terminal.write(str(rendered))
