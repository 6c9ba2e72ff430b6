"""The commands `bdl-bench submit` and `bdl-bench verify`."""

from pathlib import Path
from typing import Annotated

import typer

from bdl.cli import terminal
from bdl.cli.options import Selection, selecting

app = typer.Typer()


@app.command()
@selecting
def submit(
    selection: Selection,
    output: Annotated[Path | None, typer.Option(help="The file. Default: the benchmark's name, with .zip.")] = None,
) -> None:
    """Make one file of a finished run, which others can verify: spec, rows and predictions."""
    from bdl.publishing.submitting import submit as make

    asked = selection.asked
    made = make(asked, selection.results, output or Path(f"{asked.benchmark.name}.zip"))
    terminal.write(
        f"{made.path}: {made.fits} fits, {made.megabytes:.2g} MB; check it with: bdl-bench verify {made.path}\n"
    )


@app.command()
def verify(bundles: Annotated[list[Path], typer.Argument(help="Files that bdl-bench submit has made.")]) -> None:
    """Compute the scores of bundles again from their predictions, with our data; refuse what does not follow."""
    from rich.table import Table

    from bdl.publishing.submitting import registered
    from bdl.publishing.verifying import verify as check

    shown, foreign = Table("bundle", "cell", "splits", "failed", "recomputed", "self-reported"), False
    marks = list[str]()
    for path in bundles:
        for own in check(path):
            foreign |= own.foreign
            counts = str(own.splits), str(own.failed)
            names = ", ".join(own.scores), ", ".join(own.reported)
            shown.add_row(path.name, own.cell + " *" * own.foreign, *counts, *names)
        commit, why = registered(path)
        mark = f"pre-registered, its spec is in commit {commit[:12]}" if commit else f"not pre-registered: {why}"
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
