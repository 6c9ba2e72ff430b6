"""The command `bdl-bench list`."""

from typing import Annotated

import typer
from rich.text import Text

from bdl.cli import terminal
from bdl.cli.options import AsJson
from bdl.errors import unknown

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
