"""The commands `bdl-bench list`, of what there is, and `bdl-bench init`, of a file to start from."""

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from bdl.cli import terminal
from bdl.cli.options import AsJson
from bdl.errors import InputError, unknown

app = typer.Typer()

KINDS = ("benchmarks", "datasets", "models", "likelihoods", "priors", "rates", "methods", "references", "metrics")


def _kinds(begun: str) -> list[str]:
    """Complete a kind."""
    return [kind for kind in KINDS if kind.startswith(begun)]


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help=f"Only these: {', '.join(KINDS)}.", autocompletion=_kinds)] = None,
    as_json: AsJson = False,
) -> None:
    """List benchmarks, data sets, models, likelihoods, priors, learning rates, methods, references and metrics."""
    from bdl.data import DATASETS
    from bdl.methods import METHODS
    from bdl.metrics import METRICS
    from bdl.models import LIKELIHOODS, MODELS, PRIORS
    from bdl.references import REFERENCES
    from bdl.spec import list_benchmarks
    from bdl.training.schedule import RATES

    registries = (DATASETS, MODELS, LIKELIHOODS, PRIORS, RATES, METHODS, REFERENCES, METRICS)
    titles = dict(list_benchmarks())
    names = {"benchmarks": [*titles], **{own: kinds.names() for own, kinds in zip(KINDS[1:], registries, strict=True)}}
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
    path: Annotated[Path | None, typer.Argument(help="The file. Default: method.py, score.py, benchmark.yaml.")] = None,
) -> None:
    """Write a commented file to start from, which runs as it is."""
    target = path or Path(_FILES[kind])
    ending = Path(_FILES[kind]).suffix
    if target.suffix != ending:
        raise InputError(f"{target}: a {kind} is in a file that ends in {ending}; call it {target.stem}{ending}")
    text = (resources.files("bdl.cli") / "starters" / _FILES[kind]).read_text(encoding="utf-8")
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text.replace(_FILES[kind], str(target)))
    except FileExistsError:
        raise InputError(f"{target} is there already; give another path: bdl-bench init {kind} PATH") from None
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}; give another path") from None
    terminal.write(f"{target}: {_NEXT[kind].format(path=target)}\n")
