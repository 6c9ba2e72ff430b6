"""The commands on finished runs: report, compare and verify."""

from pathlib import Path
from typing import Annotated

import typer

from bdl.cli import terminal
from bdl.cli.options import RequestOptions, with_request_options

app = typer.Typer()


@app.command()
@with_request_options
def report(
    request_options: RequestOptions,
    output: Annotated[
        Path | None, typer.Option(help="The file. Default: report.html beside the table.")
    ] = None,
) -> None:
    """Write a run as one HTML file: tables, figures, failures, findings, origin, errata."""
    from bdl.publishing.report_page import write_page

    terminal.write_text(
        f"{write_page(request_options.request, request_options.results, output)}\n"
    )


@app.command()
@with_request_options
def compare(
    request_options: RequestOptions,
    second_run: Annotated[
        str | None,
        typer.Argument(metavar="other", help="A second run: both are folders of results then."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Method of one run to hold the others against.")
    ] = None,
    format: Annotated[str, typer.Option(help="text, markdown or json.")] = "text",
    figures: Annotated[
        Path | None, typer.Option(help="Folder for figures of the overall standing.")
    ] = None,
) -> None:
    """Compare two runs, split by split.

    Or the methods of one run with its baseline, and their ranks over data sets.
    """
    from rich.console import Console

    from bdl.errors import InputError
    from bdl.publishing import run_comparison
    from bdl.reports.figures import FigureData, draw_figures
    from bdl.stored_results.loading import load_results

    if second_run is not None:
        if baseline or figures:
            raise InputError(
                "--baseline and --figures are for one run; leave them out, or give one run"
            )
        if request_options.set_ or request_options.splits or request_options.profile != "paper":
            raise InputError(
                "--profile, --set and --splits are for one run; "
                "leave them out, and name its folder"
            )
        first = run_comparison.load_run(request_options.name, request_options.results)
        second = run_comparison.load_run(second_run, request_options.results)
        comparison = run_comparison.compare_runs(
            first, second, request_options.dataset, request_options.method
        )
    else:
        baseline = baseline or request_options.request.benchmark.baseline
        methods = request_options.method
        if methods and baseline:
            methods = [*methods, baseline]  # it is compared with, though it was not named
        loaded = load_results(
            request_options._replace(method=methods).request, request_options.results
        )
        comparison = run_comparison.compare_entries(loaded, baseline)
        if figures:
            figure_data = FigureData(loaded.benchmark, standings=comparison.standings)
            draw_figures(figure_data, figures)
    rendered = comparison.render(format)
    if format == "text":
        Console(width=None if Console().is_terminal else 120).print(rendered)
    else:
        terminal.write_text(str(rendered))


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="Folder of results, such as results/slang-uci.")],
) -> None:
    """Compute published scores again, from the posteriors that are published with them.

    The exit code is 1 if a score does not follow from its posterior.
    """
    from bdl.cli.verification import describe_verification
    from bdl.stored_results.verification import verify_folder

    verification = verify_folder(folder)
    terminal.write_text(describe_verification(folder, verification))
    if verification.differences:
        raise typer.Exit(1)
