"""The commands list and init, data (sets and their files) and references (sampled posteriors)."""

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from bdl.cli import terminal
from bdl.cli.options import AsJson, Datasets, Name, Profile
from bdl.errors import InputError, unknown_name_error

if TYPE_CHECKING:
    from bdl.plan.task import Task


app = typer.Typer()

KINDS = (
    "benchmarks",
    "datasets",
    "models",
    "likelihoods",
    "priors",
    "rates",
    "methods",
    "references",
    "metrics",
)


def _complete_kind(prefix: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(prefix)]


@app.command("list")
def list_components(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"Only these: {', '.join(KINDS)}.", autocompletion=_complete_kind),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List benchmarks, and the components that a benchmark file can name."""
    from bdl.cli.describe import REGISTRIES
    from bdl.spec import list_benchmarks

    titles = dict(list_benchmarks())
    names = {
        "benchmarks": [*titles],
        **{f"{registry.kind}s": registry.names() for registry in REGISTRIES},
    }
    if kind is not None and kind not in names:
        raise unknown_name_error("kind", kind, KINDS)
    if as_json:
        terminal.write_json(names if kind is None else names[kind])
        return
    console = terminal.make_console()
    for kind_name in KINDS if kind is None else (kind,):
        if kind_name == "benchmarks":
            for name, title in titles.items():
                console.print(Text(name, "bold"), f" {title}")
        elif kind is None:
            console.print(f"{kind_name}: {', '.join(names[kind_name])}")
        else:
            terminal.write_text("".join(f"{name}\n" for name in names[kind_name]))


class StarterKind(StrEnum):
    """The component or the benchmark that a starter file defines."""

    METHOD = "method"
    GUEST = "guest"
    SCORE = "score"
    BENCHMARK = "benchmark"


_STARTER_FILES = {
    StarterKind.METHOD: "method.py",
    StarterKind.GUEST: "guest.py",
    StarterKind.SCORE: "score.py",
    StarterKind.BENCHMARK: "benchmark.yaml",
}
_NEXT_STEPS = {
    StarterKind.METHOD: (
        "name it in a benchmark file (bdl-bench init benchmark): method: {{name: {path}:MyMethod}}"
    ),
    StarterKind.GUEST: (
        "name it in a benchmark file (bdl-bench init benchmark), in an entry without a model: "
        "method: {{name: {path}:MyGuest}}"
    ),
    StarterKind.SCORE: (
        "name it in a benchmark file (bdl-bench init benchmark): "
        "metrics: [{{name: {path}:MyScore}}]"
    ),
    StarterKind.BENCHMARK: "run it with: bdl-bench run {path}",
}


@app.command()
def init(
    kind: Annotated[StarterKind, typer.Argument(help="What to write.")],
    path: Annotated[
        Path | None, typer.Argument(help="The file. Default: the kind, as in method.py.")
    ] = None,
) -> None:
    """Write a commented file to start from, which runs as it is."""
    starter = _STARTER_FILES[kind]
    target = path or Path(starter)
    ending = Path(starter).suffix
    if target.suffix != ending:
        raise InputError(
            f"{target}: a {kind} is in a file that ends in {ending}; call it {target.stem}{ending}"
        )
    text = (resources.files("bdl.cli") / "starters" / starter).read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text.replace(starter, str(target)))  # it names itself in its docstring
    except FileExistsError:
        raise InputError(
            f"{target} is there already; give another path: bdl-bench init {kind} PATH"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; give another path") from None
    terminal.write_text(f"{target}: {_NEXT_STEPS[kind].format(path=target)}\n")


data_app = typer.Typer(help="List, download and verify the data sets.", no_args_is_help=True)

Names = Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")]


@data_app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """List the data sets and whether their files are here."""
    from bdl.cli.describe import without_code_marks
    from bdl.data import DATASETS, describe_dataset

    lines = [
        (name, _describe_files(name), without_code_marks("; ".join(describe_dataset(name))))
        for name in DATASETS.names()
    ]
    if as_json:
        terminal.write_json(
            [dict(zip(("name", "files", "about"), line, strict=True)) for line in lines]
        )
        return
    _print_columns(lines)


@data_app.command("fetch")
def fetch_data(names: Names = None) -> None:
    """Download what is missing or corrupt."""
    from bdl.data import DATASETS, fetch_dataset

    shown_names = names or DATASETS.names()
    for name in shown_names:
        if user_data := _describe_user_data(name):
            _print_named(name, user_data, shown_names)
            continue
        present, downloaded = fetch_dataset(name)
        _print_named(name, f"{downloaded} downloaded, {present} here already", shown_names)


@data_app.command("verify")
def verify_data(names: Names = None) -> None:
    """Check the files against their checksums; exit code 1 if one is corrupt or missing."""
    from bdl.data import DATASETS, file_states

    n_wrong, shown_names = 0, names or DATASETS.names()
    for name in shown_names:
        if user_data := _describe_user_data(name):
            _print_named(name, user_data, shown_names)
            continue
        states = file_states(name)
        wrong_files = [(path, state) for path, state in states if state not in ("ok", "shipped")]
        n_wrong += len(wrong_files)
        right = f"{len(states) - len(wrong_files)} of {len(states)} files are right"
        _print_named(name, right if states else "needs no file", shown_names)
        for path, state in wrong_files[:3]:
            terminal.make_console().print(f"  {path}: {state}")
    if n_wrong:
        terminal.make_console().print("mend with: bdl-bench data fetch")
        raise typer.Exit(1)


def _print_columns(lines: list[tuple[str, str, str]]) -> None:
    name_width, state_width = (
        max((len(line[column]) for line in lines), default=0) for column in (0, 1)
    )
    terminal.print_lines(
        (f"{name:<{name_width}}  {state:<{state_width}}  {text}" for name, state, text in lines),
        column=name_width + state_width + 4,
    )


def _print_named(name: str, text: str, names: list[str]) -> None:
    width = max(map(len, names))
    terminal.print_lines([f"{name:<{width}}  {text}"], column=width + 2)


def _describe_files(name: str) -> str:
    """Count the files of a data set that are here, or name its source if none is downloaded."""
    from bdl.data import DATASETS, file_states

    if states := [state for _, state in file_states(name)]:
        return f"{sum(state in ('ok', 'shipped') for state in states)} of {len(states)} files"
    component = DATASETS.get(name)
    source = str(getattr(component, "origin_phrase", "needs no file"))
    missing = hasattr(component, "missing_download") and component.missing_download()
    return f"{source}, missing" if missing else source


def _describe_user_data(name: str) -> str:
    """Describe the files that a user has to bring along: what is missing, or that runs check them.

    Empty for a data set whose files the suite downloads.
    """
    from bdl.data import DATASETS

    component = DATASETS.get(name)
    if not hasattr(component, "origin_phrase"):
        return ""
    missing = component.missing_download() if hasattr(component, "missing_download") else None
    return missing or f"{component.origin_phrase}, read and checked by each run"


references_app = typer.Typer(
    help="List, show and sample the reference posteriors.", no_args_is_help=True
)


@references_app.command("list")
def list_references(
    names: Annotated[list[str] | None, typer.Argument(help="Benchmarks; all by default.")] = None,
    profile: Profile = "paper",
    as_json: AsJson = False,
) -> None:
    """List the references that are sampled, and whether they are here."""
    from bdl.plan.reference_posteriors import list_sampled_references
    from bdl.references.base import check_files, load_draws
    from bdl.spec import list_benchmarks

    lines: list[tuple[str, str, str]] = []
    notes = []
    for name in names or [name for name, _ in list_benchmarks()]:
        tasks = _tasks_with_references(name, profile, [])
        references = list_sampled_references(tasks)
        for reference in references:
            description: str = check_files(reference.recipe)
            if description == "ready":
                description = load_draws(reference.recipe).certificate.summary()
            lines.append((reference.benchmark, reference.label, description))
        if names and not references:
            reason = "it names no reference"
            if tasks:
                reason = (
                    "none is sampled, each is computed when it is needed: "
                    f"bdl-bench references show {name}"
                )
            notes.append(f"{name}: {reason}")
    if as_json:
        terminal.write_json(
            [dict(zip(("benchmark", "place", "state"), line, strict=True)) for line in lines]
        )
        return
    _print_columns(lines)
    terminal.print_lines(notes)


@references_app.command("show")
def show_references(name: Name, profile: Profile = "paper", dataset: Datasets = []) -> None:
    """Show the certificates of a benchmark's references."""
    from bdl.plan.reference_posteriors import (
        describe_computed_references,
        describe_reference,
        list_sampled_references,
    )
    from bdl.references.base import check_files

    if not (tasks := _tasks_with_references(name, profile, dataset)):
        raise InputError(f"{name} names no reference: there is nothing to show")
    sections = describe_computed_references(tasks)
    for reference in list_sampled_references(tasks):
        if check_files(reference.recipe) == "missing":
            option = f" --profile {profile}" if profile != "paper" else ""
            lines = [f"missing; sample it: bdl-bench references build {name}{option}"]
        else:
            lines = describe_reference(reference)
        sections.append((reference.label, lines))
    for heading, lines in sections:
        terminal.make_console().print(heading, style="bold", highlight=False)
        terminal.print_lines(f"  {line}" for line in lines)


@references_app.command("build")
def sample_missing_references(
    name: Name,
    profile: Profile = "paper",
    dataset: Datasets = [],
    fresh: Annotated[bool, typer.Option("--fresh", help="Sample again what is here.")] = False,
) -> None:
    """Sample the references of a benchmark that are missing."""
    from bdl.plan.reference_posteriors import list_sampled_references

    references = list_sampled_references(_tasks_with_references(name, profile, dataset))
    if not references:
        raise InputError(f"no reference of {name} is sampled: each is computed when it is needed")
    from bdl.api.running import print_reference_sampling

    print_reference_sampling(references, terminal.make_console(), fresh=fresh)


def _tasks_with_references(name: str, profile: str, datasets: list[str]) -> "list[Task]":
    """List the tasks that name a reference.

    A stream names none: its distribution would have to be drawn first.
    """
    from bdl.plan.planning import list_tasks
    from bdl.plan.task_checks import check_task
    from bdl.spec import load_request

    tasks = list_tasks(load_request(name, profile, datasets=datasets).selected_benchmark)
    referring = [task for task in tasks if task.settings.reference is not None]
    for task in referring:
        check_task(task)
    return referring
