"""The commands `bdl-bench report` and `bdl-bench compare`."""

from pathlib import Path
from typing import Annotated

import typer

from bdl import terminal
from bdl.cli_options import Datasets, Methods, Name, Profile, Results, Set, Splits

app = typer.Typer()


@app.command()
def report(
    name: Name,
    profile: Profile = "paper",
    set_: Set = [],
    dataset: Datasets = [],
    method: Methods = [],
    splits: Splits = None,
    results: Results = Path("results"),
    output: Annotated[Path | None, typer.Option(help="The file. Default: report.html beside the table.")] = None,
) -> None:
    """Write all that is known of a run as one HTML file: tables, figures, failures, what was found, origin, errata."""
    from bdl.publishing.page import write_page
    from bdl.spec import load_variant

    asked = load_variant(name, profile, set_, dataset, method, splits)
    terminal.write(f"{write_page(asked, results, output)}\n")
