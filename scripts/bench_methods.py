"""What methods cost: updates of SLANG, BBB, MC dropout and SWAG beside VIFA, and how SLANG's grow.

Three parts, all or some of them (``--parts``):

- ``methods``: SLANG and SLANG-OnlineEig (L = 1, S = 4), BBB (S = 4), MC dropout (4 masks) and SWAG (K = 20) beside
  VIFA (K = 1, L = 4) on the workload of `bench_training.py`: a network with 13 inputs, 50 ReLU
  units and one output (D = 751), minibatches of 10, 150 trials, trained by the engine, compiled
  where there is a compiler. The unit of cost is one gradient of one model on one minibatch, with
  its share of everything an update needs. An update evaluates S = 4 gradients for SLANG and BBB,
  one a sample, all on the same minibatch; 4 for VIFA and MC dropout, one a minibatch; one for
  SWAG. The cost of a whole update stands beside it. A gradient of SLANG should cost at most 3
  times one of VIFA, and a gradient of BBB no more than one of VIFA.
- ``gradients``: the products that an update of SLANG needs (the Gram matrix of the M gradients of single examples,
  their product with one column, two combinations, the sum of squares), gradients included, on
  networks 13-h-1 with about 500 to 5,000,000 parameters, one sample and M of 10, 50 and 200,
  eager: outer products of layers' inputs and errors (`bdl.models.gradients`) beside the M x D
  matrix of `torch.func`. Both must agree to 1e-4; otherwise the script ends with exit code 1. A
  matrix of more than 2 GB is skipped.
- ``scaling``: an update of SLANG (S = 4, minibatches of 200) by the engine, eager, of one model 784-h-h-10 with a
  categorical likelihood: ranks 1 to 32 at 784-400-400-10 (D = 478,410), and 807 to 999,382
  parameters at ranks 1 and 8; seconds and peak memory. Exponents are fitted to the last three
  points of a series.

Rules of fairness. All methods shuffle each epoch, gather their minibatches, draw their noise and
work in float32, on the same trials. Set-up and compilation are left out of the cost and reported
apart (compiler caches are cold; the generator of random numbers, which all share, is in the time
of the first). ``--threads`` confines the process to so many cores, where the system allows it.
Contenders take turns, a repeat each; costs are medians over repeats, ratios medians of the ratios
within a repeat, so that a slow spell of the machine strikes all. SWAG collects an iterate an epoch
from the first on. A model that diverges ends the script. Each point of ``scaling`` has a process
of its own; its memory is that of the whole process, with the libraries, and beside it stands that
of a process that has only trained the smallest network (``idle_gb``).

The JSON file has the keys ``system``, ``settings`` and, for the parts measured, ``methods``
(``us``, ``us_min``, ``ratio`` to VIFA, all three of a gradient, ``setup_s``, ``gradients`` in an
update, ``update_us``, ``update_ratio``, by name), ``targets`` (``limit``, ``ratio``, ``holds``, by
name), ``gradients`` (a list of `peers.gradients.GradientPoint`), ``scaling`` (a list of
`peers.slang_scaling.SlangPoint`), ``exponents`` (by what of what) and ``memory`` (``limit_gb``,
``peak_gb`` of the largest rank, ``holds``).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peers import command, figure, gradients, machine, methods, slang_scaling
from peers.command import number, verdict
from rich.console import Console
from rich.table import Table

from bdl.training.updates import is_compiler_installed

PARTS = ("methods", "gradients", "scaling")
DIMS, EXAMPLES = (500, 5_000, 50_000, 500_000, 5_000_000), (10, 50, 200)
SIZES = slang_scaling.Sizes()
QUICK_SIZES = slang_scaling.Sizes(ranks=(1, 2), paper=50, hidden=(12, 50), hidden_ranks=(1,))
MEMORY_GB = 24.0
"""What the largest rank may need."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.quick:
        options.trials, options.repeats, options.epochs = 8, 2, 1
    machine.confine(options.threads)
    with machine.cold_compiler():
        return _run(options, Console())


def _run(options: argparse.Namespace, console: Console) -> int:
    settings = {name: getattr(options, name) for name in ("trials", "repeats", "epochs", "quick")}
    report: dict[str, Any] = {"system": machine.system(options.threads), "settings": settings}
    measured, sizes = figure.Measured(), QUICK_SIZES if options.quick else SIZES
    if "methods" in options.parts:
        compile = is_compiler_installed() and not options.quick
        costs = methods.measure(options.trials, options.epochs, options.repeats, compile=compile)
        measured, report = (
            measured._replace(costs=costs),
            report | _methods(costs, options.trials, compile, console),
        )
    if "gradients" in options.parts:
        points = list(
            gradients.measure(DIMS[:2] if options.quick else DIMS, EXAMPLES, options.repeats)
        )
        measured, report = (
            measured._replace(gradients=points),
            report | _gradients(points, console),
        )
        if not all(point.agrees for point in points):
            console.print(f"[red]disagree[/red]: more than {gradients.TOLERANCE}")
            return 1
    if "scaling" in options.parts:
        updates = list(slang_scaling.measure(sizes, options.threads))
        measured, report = (
            measured._replace(slang=updates),
            report | _scaling(updates, sizes, console),
        )
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    if options.figure:
        figure.draw(options.figure, measured, sizes)
    return 0


def _methods(
    costs: Mapping[str, methods.MethodCost], trials: int, compile: bool, console: Console
) -> dict[str, Any]:
    """Print the costs of methods, and say whether the targets hold.

    What the report has of them.
    """
    how = "compiled" if compile else "eager"
    table = Table(
        "method", title=f"Microseconds per gradient and per update, {trials} trials, {how}"
    )
    for heading in ("gradient", "fastest", "ratio", "in update", "update", "ratio", "compiled in"):
        table.add_column(heading, justify="right")
    for name, cost in costs.items():
        gradient = (f"{cost.us:.2f}", f"{cost.us_min:.2f}", f"{cost.ratio:.2f}")
        update = (f"{cost.gradients}", f"{cost.update_us:.2f}", f"{cost.update_ratio:.2f}")
        table.add_row(name, *gradient, *update, number(cost.setup_s, 1, " s"))
    console.print(table)
    targets = methods.targets(costs)
    for name, target in targets.items():
        limit = f"at most {target.limit:g} times {methods.REFERENCE}"
        console.print(
            f"a gradient of {name} costs {target.ratio:.2f} times, {limit}: {verdict(target.holds)}"
        )
    return {
        "methods": {name: asdict(cost) for name, cost in costs.items()},
        "targets": {name: asdict(target) for name, target in targets.items()},
    }


def _gradients(points: Sequence[gradients.GradientPoint], console: Console) -> dict[str, Any]:
    """Print the costs of gradients of single examples; what the report has of them."""
    table = Table(title="Gradients of single examples and their products, microseconds")
    for heading in ("parameters", "examples", "outer", "matrix", "ratio", "faster", "differ by"):
        table.add_column(heading, justify="right")
    for p in points:
        cells = (f"{p.dim:,}", f"{p.examples}", number(p.outer_us, 0))
        if p.ratio is None:
            table.add_row(*cells, f"skipped: {p.matrix_gb:.1f} GB")
        else:
            faster = "outer" if p.ratio > 1 else "matrix"
            table.add_row(
                *cells, number(p.matrix_us, 0), f"{p.ratio:.2f}", faster, f"{p.difference:.0e}"
            )
    console.print(table)
    return {"gradients": [asdict(point) for point in points]}


def _scaling(
    points: Sequence[slang_scaling.SlangPoint], sizes: slang_scaling.Sizes, console: Console
) -> dict[str, Any]:
    """Print how SLANG's updates grow, and whether the largest rank fits.

    What the report has of them.
    """
    table = Table(title="An update of SLANG, one model, eager")
    for heading in ("hidden units", "parameters", "rank", "seconds", "peak (GB)", "idle (GB)"):
        table.add_column(heading, justify="right")
    for p in points:
        cells = (f"{p.seconds:.4f}", f"{p.peak_gb:.2f}", f"{p.idle_gb:.2f}")
        table.add_row(f"2 x {p.hidden}", f"{p.dim:,}", f"{p.rank}", *cells)
    console.print(table)
    exponents = slang_scaling.exponents(points, sizes)
    for name, value in exponents.items():
        console.print(f"{name}: exponent {number(value, 2)}")
    largest = max((p for p in points if p.hidden == sizes.paper), key=lambda p: p.rank)
    fits = largest.peak_gb <= MEMORY_GB
    where = f"rank {largest.rank} at {largest.dim:,} parameters"
    console.print(
        f"{where} needs {largest.peak_gb:.2f} GB, at most {MEMORY_GB:g} GB: {verdict(fits)}"
    )
    memory = {"limit_gb": MEMORY_GB, "peak_gb": largest.peak_gb, "holds": fits}
    return {
        "scaling": [asdict(point) for point in points],
        "exponents": exponents,
        "memory": memory,
    }


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(__doc__ or "", repeats=7, epochs=10)
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (all)"
    )
    parser.add_argument(
        "--figure", type=Path, metavar="FILE", help="draw the numbers (PNG or PDF)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="everything tiny and eager, in less than half a minute",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
