"""What several commands take: which benchmark, which part of it, and where its results are."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

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


def _entries(context: typer.Context, begun: str) -> list[str]:
    """Complete an entry of the benchmark that is named before."""
    return [name for name in _field(context, "entries") if name.startswith(begun)]


def _datasets(context: typer.Context, begun: str) -> list[str]:
    """Complete a data set of the benchmark that is named before."""
    return [name for name in map(_label, _field(context, "datasets")) if name.startswith(begun)]


def _field(context: typer.Context, name: str) -> Iterable[Any]:
    """Read a field of a benchmark file under its profile, unchecked, since a shell waits; empty if that cannot be."""
    import yaml

    benchmark = context.params.get("name") or next(iter(context.args), "")  # not assigned before an option's value
    profile = context.params.get("profile")
    try:
        content = yaml.safe_load(shipped().get(benchmark, Path(benchmark)).read_text(encoding="utf-8"))
        changes = (content.get("profiles") or {}).get(profile, {})
        return list(content[name] if name == "entries" else changes.get(name, content[name]))
    except (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError):
        return []


def _label(dataset: Any) -> str:
    if isinstance(dataset, str) and ":" not in dataset:
        return dataset
    if isinstance(dataset, dict) and "label" in dataset:
        return str(dataset["label"])
    from bdl.spec import DatasetName  # which takes longer

    return str(DatasetName.read(dataset))


Name = Annotated[str, typer.Argument(help="Name of a benchmark, or path of a YAML file.", autocompletion=_benchmarks)]
Profile = Annotated[str, typer.Option(help="Profile of the benchmark file.")]
Set = Annotated[list[str], typer.Option("--set", help="Override a field: path.to.field=value.")]
Datasets = Annotated[
    list[str], typer.Option("--dataset", help="Only this data set (repeatable).", autocompletion=_datasets)
]
Methods = Annotated[list[str], typer.Option("--method", help="Only this entry (repeatable).", autocompletion=_entries)]
Splits = Annotated[str | None, typer.Option("--splits", help="How many splits, or which: 5, or 0,3,5-7.")]
Results = Annotated[Path, typer.Option("--results", parser=_folder, help="Folder of results.")]
