"""What noisy methods cost: updates of noisy Adam and noisy K-FAC beside Adam.

One network 784-100-10 (D = 79,510) on made-up digits, minibatches of 100 of 10,000 rows, float32. The unit of cost is
an update, with its share of everything that it needs: minibatches, noise, statistics every 10 updates and inverses
every 100. Contenders:

- ``adam``, ``noisy-adam`` and ``noisy-kfac`` by the engine, eager, or compiled with ``--compile``;
- ``PyTorch``: the usual loop of one network with `torch.optim.Adam`, eager.

An update of noisy Adam should cost at most 1.2 times one of Adam, one of noisy K-FAC at most 3 times; both are held
against Adam by the engine. Set-up, compilation and the first epoch are left out of the cost. Contenders take turns, and
ratios are medians of the ratios within a repeat, so that a slow spell of the machine strikes all. A model that diverges
ends the script.

The JSON file has the keys ``system``, ``settings``, ``costs`` (``us``, ``us_min``, ``ratio`` to ``adam``, ``setup_s``,
by name) and ``targets`` (``limit``, ``ratio``, ``holds``, by name).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from time import perf_counter

import numpy as np
import torch
from peers import command, machine
from peers.command import verdict
from peers.comparison import Contender, Cost, compare
from peers.methods import Target
from peers.timing import engine_seconds
from peers.workload import Workload
from rich.console import Console
from rich.table import Table
from torch import nn

from bdl.data import Dataset
from bdl.methods import METHODS
from bdl.methods.base import MinibatchMethod
from bdl.models.likelihoods import Categorical
from bdl.models.networks import Mlp
from bdl.models.problem import Problem
from bdl.training.trials import Pool, Trials

D_IN, HIDDEN, CLASSES, BATCH_SIZE = 784, 100, 10, 100
METHOD_NAMES = ("adam", "noisy-adam", "noisy-kfac")
LIMITS = {"noisy-adam": 1.2, "noisy-kfac": 3.0}
"""Largest cost of an update that is acceptable, relative to Adam."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.plain(__doc__ or "")
    parser.add_argument("--repeats", type=command.count, default=7, help="times each contender is measured (7)")
    parser.add_argument("--updates", type=command.count, default=100, help="updates of an epoch (100)")
    parser.add_argument("--compile", action="store_true", help="compile the engine's programs")
    options = parser.parse_args(arguments)
    machine.confine(options.threads)
    with machine.cold_compiler():
        costs = measure(options.updates, options.repeats, compile=options.compile)
    targets = {name: Target(limit, costs[name].ratio, costs[name].ratio <= limit) for name, limit in LIMITS.items()}
    show(costs, targets, Console())
    if options.json:
        report = {
            "system": machine.system(options.threads),
            "settings": {name: getattr(options, name) for name in ("repeats", "updates", "compile")},
            "costs": {name: asdict(cost) for name, cost in costs.items()},
            "targets": {name: asdict(target) for name, target in targets.items()},
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def measure(updates: int, repeats: int, *, compile: bool) -> dict[str, Cost]:
    """Time all contenders in turn, an epoch after a warm-up each."""
    works = {name: digits(METHODS.get(name)(), updates) for name in METHOD_NAMES}

    def engine(name: str) -> Contender:
        return Contender(lambda: engine_seconds(works[name], 1, compile))

    return compare({**{name: engine(name) for name in works}, "PyTorch": Contender(lambda: loop(updates))}, repeats)


def rows(updates: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw inputs and labels for an epoch of so many updates."""
    rng = np.random.default_rng(0)
    labels = np.arange(updates * BATCH_SIZE) % CLASSES
    x = rng.normal(size=(CLASSES, D_IN))[labels] + rng.normal(size=(len(labels), D_IN))
    return np.maximum(x, 0), labels


def digits(method: MinibatchMethod, updates: int) -> Workload[MinibatchMethod]:
    """Make one trial."""
    x, labels = rows(updates)
    dataset = Dataset("digits", x, labels.astype(np.float64), task="classification")
    pool, hyper = Pool.load(dataset), {"learning_rate": 1e-3, "prior_precision": 1.0, "kl_weight": 1.0}
    trials = Trials.make(dataset, pool, [("bench_noisy",)], [np.arange(len(x))], [hyper])
    return Workload(method, Problem(Mlp((HIDDEN,)), Categorical(), D_IN, CLASSES), dataset, pool, trials, BATCH_SIZE)


def loop(updates: int) -> float:
    """Train by plain PyTorch; seconds of an update in the second epoch."""
    x, labels = (torch.from_numpy(array) for array in rows(updates))
    x = x.float()
    net = nn.Sequential(nn.Linear(D_IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    optimizer, start = torch.optim.Adam(net.parameters(), weight_decay=1 / len(x)), 0.0
    for _ in range(2):
        start = perf_counter()
        for batch in torch.split(torch.randperm(len(x)), BATCH_SIZE):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return (perf_counter() - start) / updates


def show(costs: Mapping[str, Cost], targets: Mapping[str, Target], console: Console) -> None:
    """Print the costs, and whether the targets hold."""
    table = Table("contender", title="Microseconds per update")
    for heading in ("update", "fastest", "ratio"):
        table.add_column(heading, justify="right")
    for name, cost in costs.items():
        table.add_row(name, f"{cost.us:.0f}", f"{cost.us_min:.0f}", f"{cost.ratio:.2f}")
    console.print(table)
    for name, target in targets.items():
        limit = f"at most {target.limit:g} times Adam"
        console.print(f"an update of {name} costs {target.ratio:.2f} times, {limit}: {verdict(target.holds)}")


if __name__ == "__main__":
    raise SystemExit(main())
