"""Options of several commands: the benchmark, the part of it, and the folder of results."""

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bdl.errors import InputError, abbreviate
from bdl.files import DEFAULT_RESULTS
from bdl.registry import shipped_benchmarks

if TYPE_CHECKING:
    from bdl.spec import Request


AUTO = 0
"""Number of processes that stands for as many as shorten the run."""
_JOBS_DIGITS = 9
"""Digits of a number of processes; more are a slip."""


def _parse_folder(text: str | Path) -> Path:
    """Parse the folder of results.

    Refuse an empty text, such as an unset variable of a script: it would be the working directory.
    """
    if text == "":
        raise InputError("--results '': give a folder, or leave it out for results")
    return Path(text)


def parse_jobs(text: str | int) -> int:
    """Parse a number of processes, or ``auto``, which is `AUTO`."""
    if text == "auto":
        return AUTO
    if not str(text).isdecimal() or len(str(text)) > _JOBS_DIGITS or int(text) == AUTO:
        raise InputError(f"--jobs {abbreviate(text)}: give 1, a larger number, or auto")
    return int(text)


def _complete_benchmark(prefix: str) -> list[str]:
    return [name for name in shipped_benchmarks() if name.startswith(prefix)]


Name = Annotated[
    str,
    typer.Argument(
        help="Name of a benchmark, or path of a YAML file.", autocompletion=_complete_benchmark
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
Results = Annotated[
    Path, typer.Option("--results", parser=_parse_folder, help="Folder of results.")
]


class RequestOptions(NamedTuple):
    """Options that select a benchmark, a part or a variant of it, and the folder of results."""

    name: Name
    profile: Profile = "paper"
    set_: Set = []  # noqa: RUF012  typer makes a list of its own
    dataset: Datasets = []  # noqa: RUF012
    method: Methods = []  # noqa: RUF012
    splits: Splits = None
    uncertified: Uncertified = False
    results: Results = DEFAULT_RESULTS

    @property
    def request(self) -> "Request":
        """The request that they make; errors as in `bdl.spec.load_request`."""
        from bdl.spec import load_request

        return load_request(*self[:-1])

    @property
    def request_of_results(self) -> "Request":
        """The request of results that are shown, whose benchmark was checked when it was run."""
        from bdl.spec import load_request

        return load_request(*self[:-1], checked=True)


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the first parameter of a command, `RequestOptions`, by its fields as options."""
    command_parameters = list(inspect.signature(command).parameters.values())[1:]
    kind = inspect.Parameter.KEYWORD_ONLY
    fields = [
        inspect.Parameter(
            name,
            kind,
            default=RequestOptions._field_defaults.get(name, inspect.Parameter.empty),
            annotation=annotation,
        )
        for name, annotation in RequestOptions.__annotations__.items()
    ]

    @wraps(command)
    def wrapper(**arguments: Any) -> None:
        command(
            RequestOptions(**{name: arguments.pop(name) for name in RequestOptions._fields}),
            **arguments,
        )

    parameters = [
        *fields[:-1],
        *(parameter.replace(kind=kind) for parameter in command_parameters),
        fields[-1],  # the folder of results is last in the help
    ]
    # typer reads the options of a command from its signature and annotations
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
