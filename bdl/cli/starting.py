"""The command `bdl-bench init`: a file to start from."""

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from bdl.cli import terminal
from bdl.errors import InputError

app = typer.Typer()


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
