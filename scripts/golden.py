"""Golden trials: stored digits of every component and every branch that a shipped benchmark takes.

Results are known by the versions of what they rest on. What keeps these honest is kept here: a few
updates of each method by the engine, scores of fixed evaluations, models at fixed parameters and
so on, whose digits stand in ``tests/golden/``. Digits that move while no version does are an
error::

    python scripts/golden.py                  compare all, and say what to do python
    scripts/golden.py --check vifa     compare the cases of one component, or of several python
    scripts/golden.py --record         store what is new, drop what is no longer used python
    scripts/golden.py --bump vifa      raise the version of a component, and store its digits again

A name that two components share is written with its kind, ``method:conjugate``. Beside components,
``engine``, ``preparation``, ``scoring`` and ``search`` have versions. Exit code 1: digits moved,
or are missing.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from goldens import book
from goldens.bump import bump

from bdl.errors import InputError

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "golden"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.bump:
            file, number = bump(book.owner(options.bump))
            print(f"{options.bump} has version {number} now ({file.name})")
            again = [sys.executable, __file__, "--record", "--folder", str(options.folder)]
            return subprocess.run(
                again, check=False
            ).returncode  # a new process: the source has changed
        if options.record:
            found = {kind: book.record(options.folder, kind) for kind in book.KINDS}
            lines = book.lines(found, options.folder)
        else:
            lines = check(options.folder, options.check or ())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    return 1 if lines else 0


def check(folder: Path, names: Sequence[str] = (), kinds: Sequence[str] = book.KINDS) -> list[str]:
    """Compare the cases of some components, or all; one line for each cause of a difference."""
    owners = [book.owner(name) for name in names]
    if not all(":" in own for own in owners):  # the engine, say, which is part of every case
        owners = []
    wanted = [
        kind
        for kind in kinds
        if not owners or any(own.partition(":")[0] == kind for own in owners)
    ]
    found = {kind: book.examine(folder, kind, owners) for kind in wanted}
    lines = book.lines(found, folder)
    if left := [name for kind in (() if owners else wanted) for name in book.gone(folder, kind)]:
        lines.append(
            f"{left[0]} has golden digits, and nothing uses it: run `{book.COMMAND} --record`"
        )
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", nargs="+", metavar="NAME", help="compare the cases of these alone"
    )
    what.add_argument("--record", action="store_true", help="store what is new")
    what.add_argument("--bump", metavar="NAME", help="raise a version, and store digits again")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the digits are")
    return parser


if __name__ == "__main__":
    sys.exit(main())
