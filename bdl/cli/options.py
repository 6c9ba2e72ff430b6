"""Options that several commands take: which benchmark, which part of it, and where its results are."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bdl.errors import InputError, short
from bdl.registry import shipped

if TYPE_CHECKING:
    from bdl.spec import Variant


AUTO = 0
"""Number of processes that stands for as many as pay."""
_DIGITS = 9
"""Of a number of processes that can be meant."""


def _folder(given: str | Path) -> Path:
    """Take a folder.

    An empty text, which a variable of a script may be, would be the working directory.
    """
    if given == "":
        raise InputError("--results '': give a folder, or leave it out for results")
    return Path(given)


def count(given: str | int) -> int:
    """Take a number of processes, or ``auto``, which is `AUTO`."""
    if given == "auto":
        return AUTO
    if not str(given).isdecimal() or len(str(given)) > _DIGITS or int(given) == AUTO:
        raise InputError(f"--jobs {short(given)}: give 1, a larger number, or auto")
    return int(given)


def _benchmarks(begun: str) -> list[str]:
    return [name for name in shipped() if name.startswith(begun)]


Name = Annotated[
    str,
    typer.Argument(
        help="Name of a benchmark, or path of a YAML file.", autocompletion=_benchmarks
    ),
]
Profile = Annotated[str, typer.Option(help="Profile of the benchmark file.")]
Set = Annotated[list[str], typer.Option("--set", help="Override a field: path.to.field=value.")]
Datasets = Annotated[
    list[str],
    typer.Option("--dataset", help="Only this data set, or those like 'u*' (repeatable)."),
]
Methods = Annotated[
    list[str],
    typer.Option("--method", help="Only this method, or those like 'vifa*' (repeatable)."),
]
Splits = Annotated[
    str | None, typer.Option("--splits", help="How many splits, or which: 5, or 0,3,5-7.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Write it as JSON, for programs.")]
Uncertified = Annotated[
    bool,
    typer.Option(
        "--uncertified", help="Measure against sampled references that broke a rule, too."
    ),
]
Results = Annotated[Path, typer.Option("--results", parser=_folder, help="Folder of results.")]


class Selection(NamedTuple):
    """A benchmark, or a part or a variant of it, as options select it, and the folder of results."""

    name: Name
    profile: Profile = "paper"
    set_: Set = []  # noqa: RUF012  typer makes a list of its own
    dataset: Datasets = []  # noqa: RUF012
    method: Methods = []  # noqa: RUF012
    splits: Splits = None
    uncertified: Uncertified = False
    results: Results = Path("results")

    @property
    def asked(self) -> "Variant":
        """What is selected; errors as in `bdl.spec.load_variant`."""
        from bdl.spec import load_variant

        return load_variant(*self[:-1])


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command, whose first parameter is a `Selection`, take its fields as options of its own."""
    own = list(inspect.signature(command).parameters.values())[1:]
    kind = inspect.Parameter.KEYWORD_ONLY
    fields = [
        inspect.Parameter(
            name,
            kind,
            default=Selection._field_defaults.get(name, inspect.Parameter.empty),
            annotation=annotation,
        )
        for name, annotation in Selection.__annotations__.items()
    ]

    @wraps(command)
    def wrapped(**given: Any) -> None:
        command(Selection(**{name: given.pop(name) for name in Selection._fields}), **given)

    parameters = [
        *fields[:-1],
        *(parameter.replace(kind=kind) for parameter in own),
        fields[-1],
    ]  # the folder last
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapped
