"""The commands `bdl-bench data`: data sets and their files."""

from typing import Annotated

import typer

from bdl.cli import terminal
from bdl.cli.options import AsJson

app = typer.Typer(help="List, download and verify the data sets.", no_args_is_help=True)

Names = Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the data sets and whether their files are here."""
    from bdl.cli.describe import plain
    from bdl.data import DATASETS, about

    lines = [(name, _here(name), plain("; ".join(about(name)))) for name in DATASETS.names()]
    if as_json:
        terminal.write_json([dict(zip(("name", "files", "about"), line, strict=True)) for line in lines])
        return
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    for name, here, told in lines:
        text = f"{name:<{widths[0]}}  {here:<{widths[1]}}  {told}"
        terminal.console().print(text, highlight=False, soft_wrap=True)


@app.command()
def fetch(names: Names = None) -> None:
    """Download what is missing or corrupt."""
    from bdl.data import DATASETS, fetch

    chosen = names or DATASETS.names()
    for name in chosen:
        if told := _own(name):
            _say(name, told, chosen)
            continue
        count = fetch(name)
        _say(name, f"{count.downloaded} downloaded, {count.present} here already", chosen)


@app.command()
def verify(names: Names = None) -> None:
    """Check the files against their checksums; exit code 1 if one is corrupt or missing."""
    from bdl.data import DATASETS, status

    wrong, chosen = 0, names or DATASETS.names()
    for name in chosen:
        if told := _own(name):
            _say(name, told, chosen)
            continue
        states = status(name)
        bad = [(path, state) for path, state in states if state != "ok"]
        wrong += len(bad)
        _say(name, f"{len(states) - len(bad)} of {len(states)} files are right" if states else "needs no file", chosen)
        for path, state in bad[:3]:
            terminal.console().print(f"  {path}: {state}")
    if wrong:
        terminal.console().print("mend with: bdl-bench data fetch")
        raise typer.Exit(1)


def _say(name: str, told: str, names: list[str]) -> None:
    width = max(map(len, names))
    terminal.console().print(f"{name:<{width}}  {told}", highlight=False, soft_wrap=True)


def _here(name: str) -> str:
    """Return whether the files of a data set are here, or how it comes if it is not downloaded from here."""
    from bdl.data import DATASETS, status

    if states := [state for _, state in status(name)]:
        return f"{sum(state == 'ok' for state in states)} of {len(states)} files"
    component = DATASETS.get(name)
    comes = str(getattr(component, "comes", "needs no file"))
    return f"{comes}, missing" if hasattr(component, "lacking") and component.lacking() else comes


def _own(name: str) -> str:
    """Describe of a data set that users bring along what it lacks, or that it is not checked here; empty for others."""
    from bdl.data import DATASETS

    component = DATASETS.get(name)
    if not hasattr(component, "comes"):
        return ""
    lacking = component.lacking() if hasattr(component, "lacking") else None
    return lacking or f"{component.comes}, read and checked by each run"
