"""What several commands take: which benchmark, which part of it, and where its results are."""

from pathlib import Path
from typing import Annotated

import typer

from bdl.errors import InputError
from bdl.shipped import shipped


def _folder(given: str | Path) -> Path:
    """Take a folder; an empty text, which a variable of a script may be, would be the working directory."""
    if given == "":
        raise InputError("--results '': give a folder, or leave it out for results")
    return Path(given)


def _benchmarks(begun: str) -> list[str]:
    """Complete the name of a benchmark."""
    return [name for name in shipped() if name.startswith(begun)]


Name = Annotated[str, typer.Argument(help="Name of a benchmark, or path of a YAML file.", autocompletion=_benchmarks)]
Profile = Annotated[str, typer.Option(help="Profile of the benchmark file.")]
Set = Annotated[list[str], typer.Option("--set", help="Override a field: path.to.field=value.")]
Datasets = Annotated[list[str], typer.Option("--dataset", help="Only this data set (repeatable).")]
Methods = Annotated[list[str], typer.Option("--method", help="Only this entry (repeatable).")]
Splits = Annotated[str | None, typer.Option("--splits", help="How many splits, or which: 5, or 0,3,5-7.")]
Results = Annotated[Path, typer.Option("--results", parser=_folder, help="Folder of results.")]
