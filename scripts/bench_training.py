"""What training costs: the engine beside a plain PyTorch loop and JAX, in one run.

All contenders train VIFA (K = 1, L = 4, Adam, each gradient clipped at norm 10) on a network with
13 inputs, 50 ReLU units and one output (D = 751), minibatches of 10, synthetic data of Boston's
shape (506 x 13, 364 training rows a trial). The unit of cost is the model-minibatch: one gradient
of one model on one minibatch, with its share of everything an update needs.

- ``engine, compiled`` and ``engine, eager``: `bdl.training.engine.MinibatchFitting` itself, from
  shuffling to Adam.
- ``plain loop``: one model and one minibatch at a time; autograd of the negative ELBO, gradients added up over the
  four minibatches of an update, `torch.optim.Adam`, `torch.randn`.
- ``plain loop, tuned``: the same with one loss and one `backward` an update.
- ``JAX``: ``jit(vmap(scan))`` with `jax.random`, where JAX is installed.

Before anything is timed, one update from the same state with the same noise and minibatches must
agree between all of them to 1e-5; otherwise the script ends with exit code 1.

Rules of fairness. Every contender shuffles each epoch, gathers its minibatches, draws its noise
and works in float32. Set-up and compilation are left out of the cost and reported apart (compiler
caches are cold). All have the same cores: ``--threads`` confines the process to so many, where the
system allows it. Contenders take turns, a repeat each; costs are medians over repeats, ratios
medians of the ratios within a repeat, so that a slow spell of the machine strikes all. The plain
loop is not split over processes: it keeps one core busy, so compare it at ``--threads 1`` as well.
The engine's numbers are reproducible trial by trial, which the peers' are not.

The JSON file has the keys ``system``, ``workload``, ``agreement`` (largest relative difference
from the plain loop, by contender), ``contenders`` (``us``, ``us_min``, ``ratio`` to the first
contender, ``setup_s``, by name) and, with ``--scaling``, ``scaling`` (a list of
`peers.scaling.Point`).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from peers import agreement, command, machine, timing, workload
from peers.command import number
from peers.comparison import Contender, Cost, compare
from peers.scaling import Point, by_parameters, by_trials
from rich.console import Console
from rich.table import Table

from bdl.methods.vifa import Vifa
from bdl.training.updates import is_compiler_installed

COMPILED, EAGER, JAX = "engine, compiled", "engine, eager", "JAX"
LOOP, TUNED_LOOP = "plain loop", "plain loop, tuned"
TRIALS = (1, 10, 30, 150, 300, 1000, 3000)
PARAMETERS = (100, 1_000, 10_000, 100_000, 1_000_000)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.quick:
        options.trials, options.repeats, options.epochs = 8, 2, 1
    machine.confine(options.threads)
    with machine.cold_compiler():
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
        "system": machine.system(options.threads),
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
    if is_compiler_installed():
        setup = timing.engine_setup(work)
        found[COMPILED] = Contender(
            lambda: timing.engine_seconds(work, epochs, compile=True), setup
        )
    found[EAGER] = Contender(lambda: timing.engine_seconds(work, epochs, compile=False))
    found[LOOP] = Contender(lambda: timing.loop_seconds(work, epochs, together=False))
    found[TUNED_LOOP] = Contender(lambda: timing.loop_seconds(work, epochs, together=True))
    if find_spec("jax"):
        run = timing.JaxRun(work, epochs)
        found[JAX] = Contender(run.seconds, run.compile_seconds)
    return found


def agree(trials: int, names: Sequence[str]) -> dict[str, float]:
    """Compare one update of every contender with the plain loop's.

    The largest relative difference of each.

    The engine is stopped before and after the update, and the peers repeat it.
    """
    work = workload.make(trials, rows=Vifa().batches_per_step * workload.BATCH_SIZE)
    found = {}
    for name, compile in ((COMPILED, True), (EAGER, False)):
        if name in names:
            update = agreement.engine_update(work, compile)
            expected = agreement.loop_numbers(work, update)
            found[name] = agreement.difference(agreement.engine_numbers(update), expected)
    found[TUNED_LOOP] = agreement.difference(
        agreement.loop_numbers(work, update, together=True), expected
    )
    if JAX in names:
        found[JAX] = agreement.difference(agreement.jax_numbers(work, update), expected)
    return found


def scale(quick: bool) -> list[Point]:
    """Measure the engine at many sizes."""
    compile = is_compiler_installed() and not quick
    trials, parameters = (TRIALS[:2], PARAMETERS[:2]) if quick else (TRIALS, PARAMETERS)
    return [*by_trials(trials, compile), *by_parameters(parameters, compile)]


def _cost_table(costs: Mapping[str, Cost], trials: int) -> Table:
    table = Table("contender", title=f"Microseconds per model-minibatch, {trials} trials, D = 751")
    for heading in ("median", "fastest", f"ratio to {next(iter(costs))}", "compilation (s)"):
        table.add_column(heading, justify="right")
    for name, cost in costs.items():
        table.add_row(
            name,
            f"{cost.us:.2f}",
            f"{cost.us_min:.2f}",
            f"{cost.ratio:.2f}",
            number(cost.setup_s, 1),
        )
    return table


def _scaling_table(points: Sequence[Point]) -> Table:
    table = Table("by", title="The engine, microseconds per model-minibatch")
    for heading in ("trials", "parameters", "eager", "compiled", "compilation (s)"):
        table.add_column(heading, justify="right")
    for p in points:
        cells = (number(p.eager_us, 2), number(p.compiled_us, 2), number(p.compile_s, 1))
        table.add_row(p.by, f"{p.trials}", f"{p.dim:,}", *cells)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__ or "", repeats=7, epochs=10)
    parser.add_argument(
        "--scaling", action="store_true", help="also measure the engine at many sizes (minutes)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="8 trials, 2 repeats, 1 epoch; a short --scaling"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
