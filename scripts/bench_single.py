"""What one network costs: updates of the engine beside PyTorch's Adam in a plain loop and numpyro, in one run.

All train a network with 13 inputs, 50 ReLU units and one output (D = 751) on 364 rows of synthetic data of Boston's
shape, minibatches of 10, one gradient an update. The unit of cost is the update, with its share of shuffling,
gathering and noise.

- ``torch Adam``: a `torch.nn.Sequential`, autograd of the mean squared error, `torch.optim.Adam`.
- ``adam``, ``bbb`` (S = 1), ``vifa`` (K = 1, L = 1) and ``slang`` (rank 1, S = 1), traced and compiled: the engine, as
  `bdl.fit` runs it.
- ``numpyro diagonal`` and ``numpyro low rank`` (rank 1), where numpyro is installed: `SVI.update` with its own guides,
  an epoch as one ``jit(scan)``.

Contenders take turns, a repeat each; costs are medians over repeats, ratios to ``torch Adam`` medians of the ratios
within a repeat. Tracing and compilation are left out of the cost, and stand beside it in seconds.

The JSON file has the keys ``system``, ``date``, ``settings`` and ``contenders`` (``us``, ``us_min``, ``ratio``,
``setup_s``, by name).
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import count
from time import perf_counter

import torch
from peers import command, machine
from peers.command import number
from peers.comparison import Contender, Cost, compare
from peers.timing import engine_epochs, engine_seconds
from peers.workload import D_IN, TRAINING_ROWS, Workload, make
from rich.console import Console
from rich.table import Table
from torch import Tensor

from bdl.methods.base import MinibatchMethod
from bdl.methods.bbb import BayesByBackprop
from bdl.methods.point_estimate import Adam
from bdl.methods.slang import Slang
from bdl.methods.vifa import Vifa
from bdl.training.programs import compiler_found

METHODS: Mapping[str, MinibatchMethod] = {
    "adam": Adam(),
    "bbb": BayesByBackprop(samples=1),
    "vifa": Vifa(latent_dim=1, gradients_per_update=1),
    "slang": Slang(rank=1, samples=1),
}
BATCH = 10
UPDATES = TRAINING_ROWS // BATCH
"""Of an epoch."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.plain(__doc__)
    parser.add_argument("--repeats", type=command.count, default=7, help="times each contender is measured (7)")
    parser.add_argument("--epochs", type=command.count, default=20, help="epochs of a measurement (20)")
    parser.add_argument("--quick", action="store_true", help="nothing is compiled, one epoch: a check, no measurement")
    options = parser.parse_args(arguments)
    if options.quick:
        options.repeats, options.epochs = 1, 1
    machine.confine(options.threads)
    with machine.cold_compiler():
        costs = compare(contenders(options.epochs, compile=compiler_found() and not options.quick), options.repeats)
    Console().print(_table(costs))
    if options.json:
        _write(options, costs)
    return 0


def contenders(epochs: int, *, compile: bool) -> dict[str, Contender]:
    """Prepare all of them; the first is what ratios refer to."""
    work = make(1)
    x, y = work.data()
    rows = torch.from_numpy(work.trials.rows[0])
    found = {"torch Adam": Contender(partial(_timed, TorchLoop(x[0][rows], y[0][rows]).epoch, epochs))}
    for name, method in METHODS.items():
        own = work.with_method(method)
        found[f"{name}, traced"] = _engine(own, epochs, compile=False)
        if compile:
            found[f"{name}, compiled"] = _engine(own, epochs, compile=True)
    if find_spec("numpyro"):
        for guide in ("diagonal", "low rank"):
            start = perf_counter()
            epoch = numpyro_epoch(guide, x[0][rows], y[0][rows])
            epoch()
            found[f"numpyro {guide}"] = Contender(partial(_timed, epoch, epochs), perf_counter() - start)
    return found


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


class TorchLoop:
    """A network as most people would train it; inputs (n, 13), targets (n,)."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.net = torch.nn.Sequential(torch.nn.Linear(D_IN, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
        self.adam = torch.optim.Adam(self.net.parameters(), lr=0.01)

    def epoch(self) -> None:
        """Train on all rows once."""
        for rows in torch.randperm(len(self.y))[: UPDATES * BATCH].view(UPDATES, BATCH):
            loss = (self.net(self.x[rows]).squeeze(1) - self.y[rows]).square().mean()
            self.adam.zero_grad()
            loss.backward()
            self.adam.step()


def numpyro_epoch(guide: str, x: Tensor, y: Tensor) -> Callable[[], None]:
    """Return what trains a mean-field or low-rank Gaussian for an epoch; inputs (n, 13), targets (n,)."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoDiagonalNormal, AutoLowRankMultivariateNormal

    inputs, targets = jnp.asarray(x.numpy()), jnp.asarray(y.numpy())
    n, dim = len(targets), 15 * 50 + 1

    def model(x, y):  # type: ignore[no-untyped-def]
        theta = numpyro.sample("theta", dist.Normal(0, 1).expand([dim]).to_event(1))
        hidden = jax.nn.relu(x @ theta[: D_IN * 50].reshape(D_IN, 50) + theta[D_IN * 50 : (D_IN + 1) * 50])
        mean = hidden @ theta[(D_IN + 1) * 50 : -1] + theta[-1]
        with numpyro.plate("rows", n, subsample_size=len(y)):
            numpyro.sample("y", dist.Normal(mean, 0.3), obs=y)

    q = AutoDiagonalNormal(model) if guide == "diagonal" else AutoLowRankMultivariateNormal(model, rank=1)
    svi = SVI(model, q, numpyro.optim.Adam(0.01), Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(0), inputs[:BATCH], targets[:BATCH])

    @jax.jit
    def train(state, key):  # type: ignore[no-untyped-def]
        order = jax.random.permutation(key, n)[: UPDATES * BATCH].reshape(-1, BATCH)
        return jax.lax.scan(lambda now, rows: svi.update(now, inputs[rows], targets[rows]), state, order)[0]

    epochs = count()

    def epoch() -> None:
        nonlocal state
        state = jax.block_until_ready(train(state, jax.random.PRNGKey(next(epochs))))  # type: ignore[no-untyped-call]

    return epoch


def _table(costs: Mapping[str, Cost]) -> Table:
    table = Table(title="One network 13-50-1, an update")
    for heading in ("Contender", "µs", "relative to torch Adam", "set-up, s"):
        table.add_column(heading, justify="left" if heading == "Contender" else "right")
    for name, cost in costs.items():
        table.add_row(name, number(cost.us, 0), number(cost.ratio, 2), number(cost.setup_s, 1))
    return table


def _write(options: argparse.Namespace, costs: Mapping[str, Cost]) -> None:
    report = {
        "system": machine.system(options.threads),
        "date": datetime.now(UTC).date().isoformat(),
        "settings": {"repeats": options.repeats, "epochs": options.epochs},
        "contenders": {name: asdict(cost) for name, cost in costs.items()},
    }
    options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
