"""What one network costs: updates of the engine beside PyTorch's Adam in a plain loop and numpyro, in one run.

Networks, one gradient an update but where it says otherwise:

- ``13-50-1``, ReLU (D = 751), on 364 rows of synthetic data of Boston's shape, minibatches of 10. Also numpyro's
  `SVI.update` with its diagonal and its low-rank guide (rank 1), where numpyro is installed: an
  epoch as one ``jit(scan)``.
- ``784-100-10`` (D = 79,510) on made-up digits, minibatches of 100: noisy Adam and noisy K-FAC, with statistics every
  10 updates and inverses every 100.
- ``784-400-400-10`` (D = 478,410) on made-up digits, minibatches of 200.

Beside them, the Laplace approximation of a trained network 13-50-1 on those 364 rows, by
laplace-torch and by `bdl.fit`, which is told to stay at its weights: whole fits.

``torch Adam`` is a `torch.nn.Sequential`, autograd and `torch.optim.Adam`; IVON and bayesian-torch
take its place where they are installed (``pip install --no-deps ivon-opt bayesian-torch``), with
one sample. Methods run as `bdl.fit` runs them, traced and compiled. The unit of cost is the
update, with its share of shuffling, gathering and noise. Contenders take turns, a repeat each;
costs are medians over repeats, ratios to ``torch Adam`` medians of the ratios within a repeat.
Tracing and compilation are left out of the cost, and stand beside it in seconds, from an empty
cache. A whole fit is both: as many updates as 120 epochs of Boston have.

The JSON file has the keys ``system``, ``settings`` and ``networks`` (``us``, ``us_min``,
``ratio``, ``setup_s``, by name of network and contender).
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from time import perf_counter

import torch
from peers import command, machine
from peers.command import number
from peers.comparison import Contender, Cost, compare
from peers.single import BayesianTorch, Ivon, TorchLoop, laplace_torch, numpyro_epoch
from peers.timing import engine_epochs, engine_seconds
from peers.workload import D_IN, TRAINING_ROWS, Workload, digits, make
from rich.console import Console
from rich.table import Table
from torch import Tensor

import bdl
from bdl.methods.base import MinibatchMethod
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.noisy_adam import NoisyAdam
from bdl.methods.noisy_kfac import NoisyKfac
from bdl.methods.point_estimate import Adam
from bdl.methods.slang import Slang
from bdl.methods.vifa import Vifa
from bdl.training.updates import is_compiler_installed

NOISE_SD = 0.3
UPDATES = TRAINING_ROWS // 10
"""Of an epoch, of all networks."""
FIT = 120 * UPDATES
"""Updates of a whole fit."""
FAMILIES: Mapping[str, MinibatchMethod] = {
    "adam": Adam(),
    "bbb": BayesByBackprop(samples=1),
    "vifa": Vifa(latent_dim=1, gradients_per_update=1),
    "slang": Slang(rank=1, samples=1),
}
NOISY: Mapping[str, MinibatchMethod] = {
    "adam": Adam(),
    "noisy-adam": NoisyAdam(),
    "noisy-kfac": NoisyKfac(),
}


@dataclass(frozen=True)
class Network:
    """What is trained, by which methods, and how many epochs are timed."""

    sizes: tuple[int, ...]
    batch_size: int
    methods: Mapping[str, MinibatchMethod]
    epochs: int

    @property
    def regression(self) -> bool:
        """Whether the target is a number; digits are classified."""
        return self.sizes[-1] == 1

    def workload(self, method: MinibatchMethod) -> Workload[MinibatchMethod]:
        """Make the one trial."""
        if self.regression:
            return make(1, *self.sizes[1:-1]).with_method(method)
        return digits(self.sizes[1:-1], self.batch_size, UPDATES, method)


LOOPS: Mapping[str, tuple[type[TorchLoop], str]] = {
    "torch Adam": (TorchLoop, "torch"),
    "IVON": (Ivon, "ivon"),
    "bayesian-torch": (BayesianTorch, "bayesian_torch"),
}
"""Plain loops, with the package that each needs."""
NETWORKS = {
    "13-50-1": Network((D_IN, 50, 1), 10, FAMILIES, 20),
    "784-100-10": Network((784, 100, 10), 100, NOISY, 3),
    "784-400-400-10": Network((784, 400, 400, 10), 200, FAMILIES, 1),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.plain(__doc__)
    parser.add_argument(
        "--repeats", type=command.count, default=7, help="times each contender is measured (7)"
    )
    parser.add_argument(
        "--network", choices=NETWORKS, action="append", help="only this one (repeatable)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="nothing is compiled, one epoch: a check, no measurement",
    )
    options = parser.parse_args(arguments)
    repeats = 1 if options.quick else options.repeats
    machine.confine(options.threads)
    found = dict[str, dict[str, Cost]]()
    with machine.cold_compiler():
        for name in options.network or NETWORKS:
            found[name] = compare(contenders(NETWORKS[name], quick=options.quick), repeats)
            Console().print(_table(name, found[name]))
        if find_spec("laplace") and not options.network:
            for curvature in ("ggn", "kronecker"):
                name = f"laplace, {curvature}"
                found[name] = compare(laplaces(NETWORKS["13-50-1"], curvature), repeats)
                Console().print(_table(name, found[name]))
    if options.json:
        _write(options, found)
    return 0


def contenders(network: Network, *, quick: bool) -> dict[str, Contender]:
    """Prepare all of them; the first is what ratios refer to."""
    epochs = 1 if quick else network.epochs
    x, y = _data(network)
    loops = {
        "torch Adam": (TorchLoop, "torch"),
        "IVON": (Ivon, "ivon"),
        "bayesian-torch": (BayesianTorch, "bayesian_torch"),
    }
    found = {
        name: Contender(
            partial(_timed, loop(network.sizes, x, y, network.batch_size).epoch, epochs)
        )
        for name, (loop, package) in loops.items()
        if find_spec(package)
    }
    for name, method in network.methods.items():
        work = network.workload(method)
        found[f"{name}, traced"] = _engine(work, epochs, compile=False)
        if is_compiler_installed() and not quick:
            found[f"{name}, compiled"] = _engine(work, epochs, compile=True)
    if network.regression and find_spec("numpyro"):
        for guide in ("diagonal", "low rank"):
            start = perf_counter()
            epoch = numpyro_epoch(guide, x, y)
            epoch()
            found[f"numpyro {guide}"] = Contender(
                partial(_timed, epoch, epochs), perf_counter() - start
            )
    return found


def laplaces(network: Network, curvature: str) -> dict[str, Contender]:
    """Prepare Laplace approximations of one network, which is trained.

    A first one is not timed.
    """
    x, y = _data(network)
    loop = TorchLoop(network.sizes, x, y, network.batch_size)
    for _ in range(20):
        loop.epoch()
    method = {"name": "laplace", "curvature": curvature, "linearised": True, "climb": False}
    hyper = {"prior_precision": 1.0, "noise_precision": 1 / NOISE_SD**2}
    inputs, targets = x.numpy(), y.numpy()
    fits = {
        "laplace-torch": lambda: laplace_torch(loop.net, x, y, curvature, NOISE_SD),
        "laplace": lambda: bdl.fit(
            method, loop.net, "gaussian", inputs, targets, hyper, standardise="none"
        ),
    }
    return {name: Contender(partial(_once, fit)) for name, fit in fits.items()}


def _once(fit: Callable[[], object]) -> float:
    """Seconds of a call, after another one."""
    fit()
    start = perf_counter()
    fit()
    return perf_counter() - start


def _data(network: Network) -> tuple[Tensor, Tensor]:
    """Return the training rows, as the trial sees them."""
    work = network.workload(Adam())
    x, y = work.data()
    rows = torch.from_numpy(work.trials.rows[0])
    return x[0][rows], y[0][rows]


def _engine(work: Workload[MinibatchMethod], epochs: int, *, compile: bool) -> Contender:
    first, warm = engine_epochs(work, 2, compile)
    return Contender(lambda: engine_seconds(work, epochs, compile), float(first - warm))


def _timed(epoch: Callable[[], None], epochs: int) -> float:
    """Seconds per update, without a first epoch."""
    epoch()
    start = perf_counter()
    for _ in range(epochs):
        epoch()
    return (perf_counter() - start) / (epochs * UPDATES)


def _table(network: str, costs: Mapping[str, Cost]) -> Table:
    first = next(iter(costs))
    table = Table(title=f"One network {network}, an update" if network in NETWORKS else network)
    for heading in ("Contender", "µs", f"relative to {first}", "set-up, s", f"{FIT} updates, s"):
        table.add_column(heading, justify="left" if heading == "Contender" else "right")
    for name, cost in costs.items():
        whole = (cost.setup_s or 0) + 1e-6 * cost.us * FIT if network in NETWORKS else None
        row = number(cost.us, 0), number(cost.ratio, 2), number(cost.setup_s, 1), number(whole, 1)
        table.add_row(name, *row)
    return table


def _write(options: argparse.Namespace, networks: Mapping[str, Mapping[str, Cost]]) -> None:
    report = {
        "system": machine.system(options.threads),
        "settings": {"repeats": options.repeats},
        "networks": {
            name: {each: asdict(cost) for each, cost in costs.items()}
            for name, costs in networks.items()
        },
    }
    options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
