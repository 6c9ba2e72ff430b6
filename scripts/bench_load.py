"""What training costs on a busy machine: the engine and JAX beside loops that keep cores busy.

The script makes the load itself: so many processes that count without end. The workload is that
of ``bench_training.py``, VIFA on networks 13-50-1, and the unit of cost is the model-minibatch.
Each contender has processes of its own, since OpenMP reads how its threads wait when it is loaded:

- ``engine``: compiled, on all threads, which wait awake as briefly as `bdl.runtime.SPINS` says.
- ``engine, long waits``: the same, as OpenMP waits by itself.
- ``engine, no waits``: the same, threads that fall asleep at once.
- ``engine, one thread``: one process with one thread.
- ``engine, processes``: as many processes of one thread as there are threads, which share the
  trials; what the slowest takes.
- ``JAX``: ``jit(vmap(scan))``, where JAX is installed.

Contenders take turns at each load. Costs are medians over repeats, ratios medians of the ratios
to the first contender within a repeat. Run it where nothing else runs. Several calls with other
``--loads`` fill one file, if system, day and workload are the same.

The JSON file has the keys ``system``, ``workload`` and ``loads`` (by load and contender, ``us``,
``us_min`` and ``ratio``).
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peers import command, machine, timing, workload
from peers.comparison import Contender, Cost, compare
from rich.console import Console
from rich.table import Table

from bdl.runtime import SPINS
from bdl.training.updates import is_compiler_installed

LOADS = 0, 2, 4
"""Processes that count without end."""


class Setting(NamedTuple):
    """How a contender runs."""

    spins: str | None = SPINS
    """Turns that its threads wait awake; None leaves it to OpenMP."""
    processes: int = 1
    threads: int = 1
    jax: bool = False


def settings(threads: int) -> dict[str, Setting]:
    """List the contenders that this machine can run."""
    contenders = {
        "engine": Setting(threads=threads),
        "engine, long waits": Setting(spins=None, threads=threads),
        "engine, no waits": Setting(spins="0", threads=threads),
        "engine, one thread": Setting(),
        "engine, processes": Setting(processes=threads),
    }
    if find_spec("jax"):
        contenders["JAX"] = Setting(threads=threads, jax=True)
    return contenders


class Runner:
    """The processes of one contender.

    Parameters
    ----------
    setting
        How they run.
    trials, epochs
        What they train.
    """

    def __init__(self, setting: Setting, trials: int, epochs: int) -> None:
        share = trials // setting.processes
        self._processes = []
        with environment({"GOMP_SPINCOUNT": setting.spins}):
            for _ in range(setting.processes):
                process = ProcessPoolExecutor(1, get_context("spawn"))
                process.submit(prepare, setting, share, epochs).result()
                self._processes.append(process)

    def seconds(self) -> float:
        """Train once: seconds per model-minibatch of all processes together."""
        futures = [process.submit(measure) for process in self._processes]
        return max(future.result() for future in futures) / len(self._processes)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.shutdown()


_prepared: list[Callable[[], float]] = []
"""In the process of a contender: the function that trains."""


def prepare(setting: Setting, trials: int, epochs: int) -> None:
    """Compile in the process of a contender."""
    work = workload.make(trials)
    if setting.jax:
        _prepared.append(timing.JaxRun(work, epochs).seconds)
        return
    torch.set_num_threads(setting.threads)
    compiled = is_compiler_installed()
    _prepared.append(partial(timing.engine_seconds, work, epochs, compile=compiled))
    timing.engine_seconds(work, 1, compile=compiled)


def measure() -> float:
    """Train in the process of a contender: seconds per model-minibatch."""
    return _prepared[0]()


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for the processes that are started in a block; None removes one."""
    before = {name: os.environ.get(name) for name in variables}
    _set_variables(variables)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep so many cores busy during a block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.quick:
        options.trials, options.repeats, options.epochs = 8, 1, 1
    console, costs = Console(), {}
    with ExitStack() as stack:
        contenders = {}
        for name, setting in settings(options.threads).items():
            runner = Runner(setting, options.trials, options.epochs)
            stack.callback(runner.close)
            contenders[name] = Contender(runner.seconds)
        for load in options.loads:
            with busy_loops(load):
                costs[load] = compare(contenders, options.repeats)
            console.print(_table(load, costs[load]))
    report: dict[str, Any] = {
        "system": {**machine.system(options.threads), "cores": machine.cores()},
        "workload": {name: getattr(options, name) for name in ("trials", "repeats", "epochs")},
        "loads": {
            str(load): {
                name: {key: value for key, value in asdict(cost).items() if key != "setup_s"}
                for name, cost in by_name.items()
            }
            for load, by_name in costs.items()
        },
    }
    if options.json:
        report["loads"] = earlier_loads(options.json, report) | report["loads"]
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def earlier_loads(file: Path, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the costs that a file has from an earlier call, on the same system and workload."""
    if not file.exists():
        return {}
    earlier = json.loads(file.read_text())
    same = all(earlier[name] == report[name] for name in ("system", "workload"))
    loads: dict[str, Any] = earlier["loads"] if same else {}
    return loads


def _table(load: int, costs: Mapping[str, Cost]) -> Table:
    table = Table("contender", title=f"Microseconds per model-minibatch, {load} busy loops")
    for heading in ("median", "fastest", "ratio"):
        table.add_column(heading, justify="right")
    for name, cost in costs.items():
        table.add_row(name, f"{cost.us:.2f}", f"{cost.us_min:.2f}", f"{cost.ratio:.2f}")
    return table


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__ or "", repeats=5, epochs=5)
    parser.add_argument(
        "--loads", type=int, nargs="+", default=LOADS, help="numbers of busy loops (0 2 4)"
    )
    parser.add_argument("--quick", action="store_true", help="8 trials, 1 repeat, 1 epoch")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
