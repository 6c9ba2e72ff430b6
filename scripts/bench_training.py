"""What training costs: the engine beside a plain PyTorch loop and JAX, in one run.

All contenders train VIFA (K = 1, L = 4, Adam, each gradient clipped at norm 10) on a network with 13 inputs, 50
ReLU units and one output (D = 751), minibatches of 10, synthetic data of Boston's shape (506 x 13, 364 training
rows a trial). The unit of cost is the model-minibatch: one gradient of one model on one minibatch, with its share
of everything an update needs.

- ``engine, compiled`` and ``engine, eager``: `bdl.training.engine.train` itself, from shuffling to Adam.
- ``plain loop``: one model and one minibatch at a time; autograd of the negative ELBO, gradients added up over the
  four minibatches of an update, `torch.optim.Adam`, `torch.randn`.
- ``plain loop, tuned``: the same with one loss and one `backward` an update.
- ``JAX``: ``jit(vmap(scan))`` with `jax.random`, where JAX is installed.

Before anything is timed, one update from the same state with the same noise and minibatches must agree between all
of them to 1e-5; otherwise the script ends with exit code 1.

Rules of fairness. Every contender shuffles each epoch, gathers its minibatches, draws its noise and works in
float32. Set-up and compilation are left out of the cost and reported apart (compiler caches are cold). All have the
same cores: ``--threads`` confines the process to so many, where the system allows it. Contenders take turns, a
repeat each; costs are medians over repeats, ratios medians of the ratios within a repeat, so that a slow spell of
the machine strikes all. The plain loop is not split over processes: it keeps one core busy, so compare it at
``--threads 1`` as well. The engine's numbers are reproducible trial by trial, which the peers' are not.

The JSON file has the keys ``system``, ``workload``, ``agreement`` (largest relative difference from the plain loop,
by contender), ``contenders`` (``us``, ``us_min``, ``ratio`` to the first contender, ``setup_s``, by name) and, with
``--scaling``, ``scaling`` (a list of `peers.scaling.Point`).
"""

import argparse
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from peers import agreement, timing, workload
from peers.scaling import Point, by_parameters, by_trials
from rich.console import Console
from rich.table import Table

from bdl.methods.vifa import Vifa
from bdl.training.compiling import compiler_found

COMPILED, EAGER, JAX = "engine, compiled", "engine, eager", "JAX"
LOOP, TUNED_LOOP = "plain loop", "plain loop, tuned"
TRIALS = (1, 10, 30, 150, 300, 1000, 3000)
PARAMETERS = (100, 1_000, 10_000, 100_000, 1_000_000)


class Contender(NamedTuple):
    """What is timed."""

    seconds: Callable[[], float]
    """Runs it; seconds per model-minibatch."""
    setup_s: float | None = None
    """Seconds of compilation; None if nothing is compiled."""


@dataclass(frozen=True)
class Cost:
    """What one contender costs."""

    us: float
    """Microseconds per model-minibatch, median of the repeats."""
    us_min: float
    """The same, fastest repeat."""
    ratio: float
    """Cost relative to the first contender, median of the repeats."""
    setup_s: float | None
    """Seconds of compilation; None if nothing is compiled."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.quick:
        options.trials, options.repeats, options.epochs = 8, 2, 1
    _confine(options.threads)
    with TemporaryDirectory(ignore_cleanup_errors=True) as cold_cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cold_cache
        return _run(options, Console())


def _run(options: argparse.Namespace, console: Console) -> int:
    contenders = prepare(options.trials, options.epochs)
    differences = agree(options.trials, list(contenders))
    for name, value in differences.items():
        console.print(f"{name}: one update differs from the plain loop's by {value:.1e}")
    if not all(value <= agreement.TOLERANCE for value in differences.values()):
        console.print(f"[red]disagree[/red]: more than {agreement.TOLERANCE}")
        return 1
    console.print("agree")
    costs = compare(contenders, options.repeats)
    console.print(_cost_table(costs, options.trials))
    report: dict[str, Any] = {
        "system": _system(options.threads),
        "workload": {name: getattr(options, name) for name in ("trials", "repeats", "epochs")},
        "agreement": differences,
        "contenders": {name: asdict(cost) for name, cost in costs.items()},
    }
    if options.scaling:
        points = scale(options.quick)
        console.print(_scaling_table(points))
        report["scaling"] = [asdict(point) for point in points]
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def prepare(trials: int, epochs: int) -> dict[str, Contender]:
    """Compile what is to be compiled, and list the contenders that this machine can run."""
    work = workload.make(trials)
    found = {}
    if compiler_found():
        setup = timing.engine_setup(work)
        found[COMPILED] = Contender(lambda: timing.engine_seconds(work, epochs, compile=True), setup)
    found[EAGER] = Contender(lambda: timing.engine_seconds(work, epochs, compile=False))
    found[LOOP] = Contender(lambda: timing.loop_seconds(work, epochs, together=False))
    found[TUNED_LOOP] = Contender(lambda: timing.loop_seconds(work, epochs, together=True))
    if find_spec("jax"):
        run = timing.JaxRun(work, epochs)
        found[JAX] = Contender(run.seconds, run.compile_seconds)
    return found


def agree(trials: int, names: Sequence[str]) -> dict[str, float]:
    """Compare one update of every contender with the plain loop's; the largest relative difference of each.

    The engine is stopped before and after the update, and the peers repeat it.
    """
    work = workload.make(trials, rows=Vifa().batches_per_step * workload.BATCH_SIZE)
    found = {}
    for name, compile in ((COMPILED, True), (EAGER, False)):
        if name in names:
            update = agreement.engine_update(work, compile)
            expected = agreement.loop_numbers(work, update)
            found[name] = agreement.difference(agreement.engine_numbers(update), expected)
    found[TUNED_LOOP] = agreement.difference(agreement.loop_numbers(work, update, together=True), expected)
    if JAX in names:
        found[JAX] = agreement.difference(agreement.jax_numbers(work, update), expected)
    return found


def compare(contenders: Mapping[str, Contender], repeats: int) -> dict[str, Cost]:
    """Time the contenders in turn; the first is what ratios refer to."""
    seconds = np.array([[each.seconds() for each in contenders.values()] for _ in range(repeats)])
    ratios = np.median(seconds / seconds[:, :1], axis=0)
    return {
        name: Cost(1e6 * float(np.median(own)), 1e6 * float(own.min()), float(ratio), contenders[name].setup_s)
        for name, own, ratio in zip(contenders, seconds.T, ratios, strict=True)
    }


def scale(quick: bool) -> list[Point]:
    """Measure the engine at many sizes."""
    compile = compiler_found() and not quick
    trials, parameters = (TRIALS[:2], PARAMETERS[:2]) if quick else (TRIALS, PARAMETERS)
    return [*by_trials(trials, compile), *by_parameters(parameters, compile)]


def _confine(threads: int) -> None:
    """Give every contender the same cores; JAX counts those that the process may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.set_num_threads(threads)


def _system(threads: int) -> Mapping[str, object]:
    packages = ["torch", "numpy", *(["jax"] if find_spec("jax") else [])]
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        **{name: version(name) for name in packages},
    }


def _cost_table(costs: Mapping[str, Cost], trials: int) -> Table:
    table = Table("contender", title=f"Microseconds per model-minibatch, {trials} trials, D = 751")
    for heading in ("median", "fastest", f"ratio to {next(iter(costs))}", "compilation (s)"):
        table.add_column(heading, justify="right")
    for name, cost in costs.items():
        table.add_row(name, f"{cost.us:.2f}", f"{cost.us_min:.2f}", f"{cost.ratio:.2f}", _number(cost.setup_s, 1))
    return table


def _scaling_table(points: Sequence[Point]) -> Table:
    table = Table("by", title="The engine, microseconds per model-minibatch")
    for heading in ("trials", "parameters", "eager", "compiled", "compilation (s)"):
        table.add_column(heading, justify="right")
    for p in points:
        cells = (_number(p.eager_us, 2), _number(p.compiled_us, 2), _number(p.compile_s, 1))
        table.add_row(p.by, f"{p.trials}", f"{p.dim:,}", *cells)
    return table


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _parser() -> argparse.ArgumentParser:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser.add_argument("--trials", type=_count, default=150, help="models trained together (150)")
    parser.add_argument("--repeats", type=_count, default=7, help="times each contender is measured (7)")
    parser.add_argument("--epochs", type=_count, default=10, help="epochs of a measurement, 36 minibatches each (10)")
    parser.add_argument("--threads", type=_count, default=cores, help=f"cores for all contenders ({cores})")
    parser.add_argument("--scaling", action="store_true", help="also measure the engine at many sizes (minutes)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers")
    parser.add_argument("--quick", action="store_true", help="8 trials, 2 repeats, 1 epoch; a short --scaling")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 up")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
