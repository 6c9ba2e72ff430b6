"""The commands on what there is: list, init, data (sets and their files) and references (sampled posteriors)."""

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from bdl.cli import terminal
from bdl.cli.options import AsJson, Datasets, Name, Profile
from bdl.errors import InputError, unknown

if TYPE_CHECKING:
    from bdl.plan import Cell


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


def _kinds(begun: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(begun)]


@app.command("list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help=f"Only these: {', '.join(KINDS)}.", autocompletion=_kinds)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List benchmarks, data sets, models, likelihoods, priors, learning rates, methods, references and metrics."""
    from bdl.cli.describe import REGISTRIES
    from bdl.spec import list_benchmarks

    titles = dict(list_benchmarks())
    names = {
        "benchmarks": [*titles],
        **{f"{registry.kind}s": registry.names() for registry in REGISTRIES},
    }
    if kind is not None and kind not in names:
        raise unknown("kind", kind, KINDS)
    if as_json:
        terminal.write_json(names if kind is None else names[kind])
        return
    console = terminal.console()
    for own in KINDS if kind is None else (kind,):
        if own == "benchmarks":
            for name, title in titles.items():
                console.print(Text(name, "bold"), f" {title}")
        elif kind is None:
            console.print(f"{own}: {', '.join(names[own])}")
        else:
            terminal.write("".join(f"{name}\n" for name in names[own]))


class Kind(StrEnum):
    """What a file is for."""

    METHOD = "method"
    SCORE = "score"
    BENCHMARK = "benchmark"


_FILES = {Kind.METHOD: "method.py", Kind.SCORE: "score.py", Kind.BENCHMARK: "benchmark.yaml"}
_NEXT = {
    Kind.METHOD: "name it in a benchmark file (bdl-bench init benchmark): method: {{name: {path}:MyMethod}}",
    Kind.SCORE: "name it in a benchmark file (bdl-bench init benchmark): metrics: [{{name: {path}:MyScore}}]",
    Kind.BENCHMARK: "run it with: bdl-bench run {path}",
}


@app.command()
def init(
    kind: Annotated[Kind, typer.Argument(help="What to write.")],
    path: Annotated[
        Path | None, typer.Argument(help="The file. Default: method.py, score.py, benchmark.yaml.")
    ] = None,
) -> None:
    """Write a commented file to start from, which runs as it is."""
    target = path or Path(_FILES[kind])
    ending = Path(_FILES[kind]).suffix
    if target.suffix != ending:
        raise InputError(
            f"{target}: a {kind} is in a file that ends in {ending}; call it {target.stem}{ending}"
        )
    text = (resources.files("bdl.cli") / "starters" / _FILES[kind]).read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text.replace(_FILES[kind], str(target)))
    except FileExistsError:
        raise InputError(
            f"{target} is there already; give another path: bdl-bench init {kind} PATH"
        ) from None
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; give another path") from None
    terminal.write(f"{target}: {_NEXT[kind].format(path=target)}\n")


data_app = typer.Typer(help="List, download and verify the data sets.", no_args_is_help=True)

Names = Annotated[list[str] | None, typer.Argument(help="Data sets; all by default.")]


@data_app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """List the data sets and whether their files are here."""
    from bdl.cli.describe import plain
    from bdl.data import DATASETS, about

    lines = [(name, _here(name), plain("; ".join(about(name)))) for name in DATASETS.names()]
    if as_json:
        terminal.write_json(
            [dict(zip(("name", "files", "about"), line, strict=True)) for line in lines]
        )
        return
    for line in _aligned(lines):
        terminal.console().print(line, highlight=False, soft_wrap=True)


@data_app.command()
def fetch(names: Names = None) -> None:
    """Download what is missing or corrupt."""
    from bdl.data import DATASETS, fetch

    chosen = names or DATASETS.names()
    for name in chosen:
        if told := _own(name):
            _say(name, told, chosen)
            continue
        present, downloaded = fetch(name)
        _say(name, f"{downloaded} downloaded, {present} here already", chosen)


@data_app.command()
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
        _say(
            name,
            f"{len(states) - len(bad)} of {len(states)} files are right"
            if states
            else "needs no file",
            chosen,
        )
        for path, state in bad[:3]:
            terminal.console().print(f"  {path}: {state}")
    if wrong:
        terminal.console().print("mend with: bdl-bench data fetch")
        raise typer.Exit(1)


def _aligned(lines: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max((len(line[column]) for line in lines), default=0) for column in (0, 1))
    return [f"{one:<{first}}  {other:<{second}}  {last}" for one, other, last in lines]


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
    """Describe of a data set that users bring along what it lacks, or that it is not checked here.

    Empty for others.
    """
    from bdl.data import DATASETS

    component = DATASETS.get(name)
    if not hasattr(component, "comes"):
        return ""
    lacking = component.lacking() if hasattr(component, "lacking") else None
    return lacking or f"{component.comes}, read and checked by each run"


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
    from bdl.plan.truths import sampled
    from bdl.references.base import read, state
    from bdl.spec import list_benchmarks

    lines, without = [], []
    for name in names or [name for name, _ in list_benchmarks()]:
        cells = _cells(name, profile, [])
        references = sampled(cells)
        for reference in references:
            found = state(reference.recipe)
            about = read(reference.recipe).certificate.summary() if found == "ready" else found
            lines.append((reference.benchmark, reference.place, about))
        if names and not references:
            computed = f"none is sampled, each is computed when it is needed: bdl-bench references show {name}"
            without.append(f"{name}: {computed if cells else 'it names no reference'}")
    if as_json:
        terminal.write_json(
            [dict(zip(("benchmark", "place", "state"), line, strict=True)) for line in lines]
        )
        return
    for line in (*_aligned(lines), *without):
        terminal.console().print(line, highlight=False, soft_wrap=True)


@references_app.command()
def show(name: Name, profile: Profile = "paper", dataset: Datasets = []) -> None:
    """Show the certificates of a benchmark's references."""
    from bdl.plan.truths import computed, details, sampled
    from bdl.references.base import state

    if not (cells := _cells(name, profile, dataset)):
        raise InputError(f"{name} names no reference: there is nothing to show")
    described = computed(cells)
    for reference in sampled(cells):
        missing = state(reference.recipe) == "missing"
        command = f"bdl-bench references build {name}" + (
            f" --profile {profile}" if profile != "paper" else ""
        )
        described.append(
            (
                reference.place,
                [f"missing; sample it: {command}"] if missing else details(reference),
            )
        )
    for place, lines in described:
        terminal.console().print(place, style="bold", highlight=False)
        for line in lines:
            terminal.console().print(f"  {line}", highlight=False, soft_wrap=True)


@references_app.command()
def build(
    name: Name,
    profile: Profile = "paper",
    dataset: Datasets = [],
    fresh: Annotated[bool, typer.Option("--fresh", help="Sample again what is here.")] = False,
) -> None:
    """Sample the references of a benchmark that are missing."""
    from bdl.plan.truths import sampled

    references = sampled(_cells(name, profile, dataset))
    if not references:
        raise InputError(f"no reference of {name} is sampled: each is computed when it is needed")
    from bdl.api.running import sample_references

    sample_references(references, terminal.console(), again=fresh)


def _cells(name: str, profile: str, datasets: list[str]) -> "list[Cell]":
    """List the cells that name a reference.

    Streams, whose distribution has to be drawn, name none.
    """
    from bdl.plan.planning import cells_of, check
    from bdl.spec import load_variant

    cells = cells_of(load_variant(name, profile, datasets=datasets).chosen)
    chosen = [cell for cell in cells if cell.settings.reference is not None]
    for cell in chosen:
        check(cell)
    return chosen
