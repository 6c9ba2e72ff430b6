"""Follows what a user asked for, from the command to the table, through the code of `bdl`.

Two commands are run on a small benchmark, ``run`` and ``table``. Every call of a function of the
package is seen by `sys.setprofile`. Printed are

- the functions that get a request as an argument: a `Request`, a `Benchmark` or a `Task`, alone or
  in a list;
- the files that these functions are in;
- the climbs: pairs of a caller and a function that gets a request and lies in a higher package, as
  the layers of ``pyproject.toml`` order them. A reader who follows the request has to go up there.
"""

import argparse
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import bdl
from bdl import cli
from bdl.plan.task import Task
from bdl.spec import Benchmark, Request

PACKAGE = Path(bdl.__file__).parent
REQUESTS = (Request, Benchmark, Task)

BENCHMARK = """
name: walk
title: A small benchmark
datasets: [diabetes]
splits: 2
baseline: exact
entries:
  exact:
    model: &model {name: linear}
    likelihood: &numbers {name: gaussian}
    method: {name: conjugate}
    hyper: {prior_precision: 1, noise_precision: 0.0003}
    reference: {name: conjugate}
  searched:
    model: *model
    likelihood: *numbers
    method: {name: vifa, gradients_per_update: 2}
    training: {epochs: 1, batch_size: 50}
    hyper: {prior_precision: 1, noise_precision: 0.0003}
    search:
      trials: 2
      folds: 2
      metric: nmll
      space:
        learning_rate: {low: 0.005, high: 0.02}
    reference: {name: conjugate}
evaluation: {samples: 5}
metrics: [nmll, rmse, rel_mean_dist, runtime]
"""


class Stay(NamedTuple):
    """A function that gets a request."""

    file: str
    """Path below the package."""
    function: str


class Walk:
    """The functions that requests go through, and the climbs between them."""

    def __init__(self, levels: dict[str, int]) -> None:
        self.levels = levels
        self.stays: Counter[Stay] = Counter()
        self.climbs: Counter[tuple[Stay, Stay]] = Counter()
        self._paths: dict[CodeType, str | None] = {}

    def watch(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call; a function for `sys.setprofile`."""
        if event != "call":
            return
        stay = self._locate(frame)
        if stay is None or not self._gets_request(frame):
            return
        self.stays[stay] += 1
        caller = frame.f_back
        while caller is not None and self._locate(caller) is None:
            caller = caller.f_back
        if caller is None:
            return
        caller_stay = self._locate(caller)
        if caller_stay and self.find_level(stay) > self.find_level(caller_stay):
            self.climbs[caller_stay, stay] += 1

    def _locate(self, frame: FrameType) -> Stay | None:
        code = frame.f_code
        if code not in self._paths:
            path = Path(code.co_filename)
            is_ours = path.is_relative_to(PACKAGE) and not code.co_name.startswith("<")
            self._paths[code] = str(path.relative_to(PACKAGE)) if is_ours else None
        file = self._paths[code]
        return None if file is None else Stay(file, code.co_qualname)

    def find_level(self, stay: Stay) -> int:
        """Return the height of the package that a function is in."""
        return self.levels[stay.file.partition("/")[0].removesuffix(".py")]

    @staticmethod
    def _gets_request(frame: FrameType) -> bool:
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount
        for name in code.co_varnames[:count]:
            value = frame.f_locals.get(name)
            if isinstance(value, list | tuple) and value:
                value = value[0]
            if isinstance(value, REQUESTS):
                return True
        return False


def read_levels() -> dict[str, int]:
    """Read the height of each package, 0 for the lowest."""
    config = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    levels: dict[str, int] = {"__init__": 0}
    for level, layer in enumerate(reversed(layers)):
        for package in layer.split(" | "):
            levels[package] = level
    return levels


def follow(folder: Path) -> Walk:
    """Run the two commands in a folder, and return the walk."""
    path = folder / "walk.yaml"
    path.write_text(BENCHMARK, encoding="utf-8")
    words = [str(path), "--results", str(folder / "results")]
    walk = Walk(read_levels())
    for command in (["run", *words, "--tracking", "none", "--no-compile"], ["table", *words]):
        sys.argv = ["bdl-bench", *command]
        with redirect_stdout(StringIO()):
            sys.setprofile(walk.watch)
            try:
                cli.main()
            except SystemExit as end:
                if end.code:
                    raise
            finally:
                sys.setprofile(None)
    return walk


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print each function and each climb")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        walk = follow(Path(folder))
    files = {stay.file for stay in walk.stays}
    if options.list:
        for file, function in sorted(walk.stays):
            print(f"{file}: {function}")
        for caller, stay in sorted(walk.climbs):
            print(f"climb from {caller.file}: {caller.function} to {stay.file}: {stay.function}")
    print(f"{len(walk.stays)} functions, {len(files)} files, {len(walk.climbs)} climbs")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
