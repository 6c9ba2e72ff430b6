"""What natural gradients cost: the engine beside a plain NumPy loop and JAX, and what it is worth to share inputs.

Two parts, both or one of them (``--parts``), on logistic regressions of the benchmark
slang-logistic in float64, S = 12: australian (D = 15, minibatches of M = 32), a1a (D = 124, M =
128) and usps_3v5 (D = 257, M = 64). The unit of cost is an update of one model, with its share of
everything that it needs.

- ``updates``: natural gradients with the empirical Fisher matrix, mean-field and full, with the Hessian, full, and
  SLANG with L = 1 and 10.
  - ``engine``: `bdl.training.engine.MinibatchFitting` itself, 20 models as in a run, compiled
    where a compiler is.
  - ``plain loop``: one model at a time in NumPy, as the paper has it (`peers.natural_loop`): all S M gradients, D x D
    matrices, for SLANG an eigendecomposition of one, and `numpy.linalg.solve`.
  - ``JAX``: the same lines, ``jit(vmap(scan))`` with `jax.random`, where JAX is installed.
- ``sharing``: SLANG with L = 1 in the engine. The S M gradients of a linear model share their inputs, so that M rows
  stand for them (``M rows``, `bdl.models.gradients`); beside it all of them, known by inputs and
  errors (``S M outer products``) or as a matrix (``S M rows``).

Before anything is timed, one update from the same state with the same rows and parameter samples
must agree with the plain loop's to 1e-9, in means and precisions; otherwise the script ends with
exit code 1.

Rules of fairness. Every contender draws its minibatches with replacement, gathers them, draws its
noise and works in float64. Set-up and compilation are left out of the cost and reported apart
(compiler caches are cold). All have the same cores (``--threads``); the plain loop is not split
over processes, so compare it at ``--threads 1``. Contenders take turns of about 0.3 s; costs are
medians over repeats, ratios medians of the ratios within a repeat, so that a slow spell of the
machine strikes all. A compilation takes about ten seconds, and a data set needs seven of them: by
default there is one.

The JSON file has the keys ``system``, ``settings`` and, for the parts measured, ``agreement``
(largest relative difference from the plain loop, by data set and entry and by contender),
``updates`` and ``sharing``: lists of ``dataset``, ``entry``, ``dim``, ``batch_size``,
``contender``, ``us``, ``us_min``, ``ratio`` to the first contender and ``setup_s``; in ``sharing``
also ``difference`` from the plain loop, and ``setup_s`` is without what ``updates`` has compiled.
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from peers import command, machine, natural_agreement, natural_cost
from peers.command import count, number
from peers.comparison import Cost, compare
from peers.natural_workload import Regressions, make
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from bdl.training.updates import is_compiler_installed

PARTS = ("updates", "sharing")
DATASETS = ("australian", "a1a", "usps_3v5")
ENTRIES = ("mf-fisher", "slang-1", "slang-10", "full-fisher", "full-hessian")
SHARING = "slang-1"
Works = Mapping[tuple[str, str], Regressions]
"""By data set and entry."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.quick:
        options.models, options.repeats = 2, 2
    machine.confine(options.threads)
    # NumPy's libraries count the cores when they are loaded
    with machine.cold_compiler(), threadpool_limits(options.threads):
        return _run(options, Console())


def _run(options: argparse.Namespace, console: Console) -> int:
    compile = is_compiler_installed() and not options.quick
    settings = {name: getattr(options, name) for name in ("models", "repeats", "quick")}
    report: dict[str, Any] = {
        "system": machine.system(options.threads),
        "settings": {**settings, "compiled": compile},
    }
    if "updates" in options.parts:
        works = {
            key: make(*key, options.models) for key in _keys(options.datasets, options.entries)
        }
        prepared = {
            key: natural_cost.contenders(work, compile=compile) for key, work in works.items()
        }
        differences = {
            key: natural_agreement.agree(work, compile=compile) for key, work in works.items()
        }
        if not _agree((value for own in differences.values() for value in own.values()), console):
            return 1
        costs = {key: compare(own, options.repeats) for key, own in prepared.items()}
        console.print(_table("An update of one model", works, costs))
        report["agreement"] = {
            f"{dataset} {entry}": own for (dataset, entry), own in differences.items()
        }
        report["updates"] = _records(works, costs)
    if "sharing" in options.parts:
        works = {key: make(*key, options.models) for key in _keys(options.datasets, [SHARING])}
        shared = {
            key: natural_cost.sharing(work, options.repeats, compile=compile)
            for key, work in works.items()
        }
        if not _agree(
            (cost.difference for own in shared.values() for cost in own.values()), console
        ):
            return 1
        console.print(
            _table("An update of SLANG by the engine, gradients in several ways", works, shared)
        )
        report["sharing"] = _records(works, shared)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _keys(datasets: Iterable[str], entries: Sequence[str]) -> list[tuple[str, str]]:
    return [(dataset, entry) for dataset in datasets for entry in entries]


def _agree(differences: Iterable[float], console: Console) -> bool:
    """Return whether all are small enough."""
    found = list(differences)
    agree = all(value <= natural_agreement.TOLERANCE for value in found)
    verdict = "agree" if agree else "[red]disagree[/red]"
    console.print(f"{verdict}: largest differences {', '.join(f'{value:.0e}' for value in found)}")
    return agree


def _records(
    works: Works, costs: Mapping[tuple[str, str], Mapping[str, Cost]]
) -> list[dict[str, Any]]:
    """List what the report has of costs."""
    return [
        {
            "dataset": key[0],
            "entry": key[1],
            "dim": works[key].problem.dim,
            "batch_size": works[key].batch_size,
            "contender": name,
            **asdict(cost),
        }
        for key, own in costs.items()
        for name, cost in own.items()
    ]


def _table(title: str, works: Works, costs: Mapping[tuple[str, str], Mapping[str, Cost]]) -> Table:
    table = Table("data set", "entry", title=f"{title}, microseconds (ratio to the first)")
    first, *others = next(iter(costs.values()))
    for heading in ("D", first, *(part for name in others for part in (name, "ratio"))):
        table.add_column(heading, justify="right")
    for key, own in costs.items():
        cells = [
            cell
            for name in others
            for cell in (number(own[name].us, 1), number(own[name].ratio, 2))
        ]
        table.add_row(*key, f"{works[key].problem.dim}", number(own[first].us, 1), *cells)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = command.plain(__doc__ or "")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (both)"
    )
    parser.add_argument(
        "--datasets", nargs="+", choices=DATASETS, default=DATASETS[:1], help="(australian)"
    )
    parser.add_argument(
        "--entries", nargs="+", choices=ENTRIES, default=ENTRIES, help="of updates (all)"
    )
    parser.add_argument("--models", type=count, default=20, help="models trained together (20)")
    parser.add_argument(
        "--repeats", type=count, default=5, help="times each contender is measured (5)"
    )
    parser.add_argument("--quick", action="store_true", help="2 models, 2 repeats, eager")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
