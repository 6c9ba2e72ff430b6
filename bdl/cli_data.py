"""The commands `bdl-bench data`: data sets and their files."""

from typing import Annotated

import typer

from bdl import terminal

app = typer.Typer(help="List, download and verify the data sets.", no_args_is_help=True)

Names = Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")]


@app.command("list")
def list_() -> None:
    """List the data sets and whether their files are here."""
    from bdl.data import DATASETS, about, status

    for name in DATASETS.names():
        states = [state for _, state in status(name)]
        here = f"{sum(state == 'ok' for state in states)} of {len(states)} files" if states else "needs no file"
        terminal.console().print(f"{name:<18} {here:<14} {'; '.join(about(name))}", highlight=False, soft_wrap=True)


@app.command()
def fetch(names: Names = None) -> None:
    """Download what is missing or corrupt."""
    from bdl.data import DATASETS, fetch

    for name in names or DATASETS.names():
        count = fetch(name)
        terminal.console().print(f"{name:<18} {count.downloaded} downloaded, {count.present} here already")


@app.command()
def verify(names: Names = None) -> None:
    """Check the files against their checksums; exit code 1 if one is corrupt or missing."""
    from bdl.data import DATASETS, status

    wrong = 0
    for name in names or DATASETS.names():
        states = status(name)
        bad = [(path, state) for path, state in states if state != "ok"]
        wrong += len(bad)
        terminal.console().print(f"{name:<18} {len(states) - len(bad)} of {len(states)} files are right")
        for path, state in bad[:3]:
            terminal.console().print(f"  {path}: {state}")
    if wrong:
        terminal.console().print("mend with: bdl-bench data fetch")
        raise typer.Exit(1)
