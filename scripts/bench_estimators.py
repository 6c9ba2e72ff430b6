"""Estimators with automatic settings on ten regressions, compared with four peers.

Rows are a random sample of each data set, of which a random fifth is predicted by a fit to the
other rows, once for each split. Nothing is set by hand: an estimator of this package chooses its
settings on the training rows (``linear`` is the default, the others are methods for the network
``mlp``). The peers are Bayesian ridge regression, a Gaussian process and gradient-boosted
quantiles of scikit-learn, and NGBoost, with the defaults of their libraries, but for the kernel of
the process: one length for each input, and noise. Inputs and targets are standardised by the
training rows: errors and densities are in standard deviations of the target.

Printed are the root mean squared error (RMSE), the negative log-density in nats per row (NLL),
the share of targets in central 90 % intervals, and the seconds of a core for a fit and its
predictions, each averaged over splits. Quantiles have no density. The last line has the seconds of
intervals of many rows. The exit code is 1 if an estimator of this package covers less than 0.80 or
more than 0.97 on some set.

The JSON file has the keys ``system``, ``settings`` and ``scores``, the latter a list with
``dataset``, ``method``, ``rmse``, ``nll`` (null for quantiles), ``coverage``, ``seconds`` and
``coverages``, those of the splits. Until it is written, each finished fit is a line of a file next
to it, ``.jsonl``, from which an interrupted run goes on.
"""

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from peers import command, machine
from peers.estimator_figure import LIMITS, draw
from peers.estimators import ESTIMATORS, OUR_METHODS
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits
from torch.distributions import Normal

import bdl
from bdl.data.catalogue import load_dataset
from bdl.metrics.targets import EqualMixture, central_interval

SETS = (
    *("boston", "concrete", "diabetes", "energy", "kin8nm"),
    *("naval", "power", "protein", "wine", "yacht"),
)
QUANTITIES = {"rmse": "RMSE", "nll": "NLL", "coverage": "Coverage of 90 %", "seconds": "Seconds"}


class Fit(NamedTuple):
    """One fit of the comparison."""

    dataset: str
    method: str
    split: int
    rows: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = command.plain(__doc__ or "")
    parser.add_argument("--rows", type=command.count, default=1000, help="of a set at most (1000)")
    parser.add_argument("--splits", type=command.count, default=5, help="of each set (5)")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="sets (all)")
    parser.add_argument(
        "--methods", nargs="+", choices=ESTIMATORS, default=[*ESTIMATORS], help="methods (all)"
    )
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the numbers (PNG)")
    options = parser.parse_args(arguments)
    fits = [
        Fit(dataset, method, split, options.rows)
        for split in range(options.splits)
        for dataset in options.sets
        for method in options.methods
    ]
    console = Console()
    log = options.json.with_suffix(".jsonl") if options.json else None
    finished = read_finished(log) if log else {}
    remaining = [fit for fit in fits if fit not in finished]
    with ProcessPoolExecutor(options.threads, get_context("spawn"), prepare_worker) as workers:
        for fit, scores in zip(remaining, workers.map(score, remaining), strict=True):
            console.print(*fit, json.dumps(scores), soft_wrap=True, highlight=False)
            finished[fit] = scores
            if log:
                with log.open("a") as lines:
                    lines.write(json.dumps([fit, scores]) + "\n")
    summary = summarise([(fit, finished[fit]) for fit in fits])
    print_tables(summary, console)
    linear, mixture = measure_intervals()
    console.print(
        f"Intervals of 100,000 rows: {linear:.2f} s of the linear default with 20 inputs, "
        f"{mixture:.2f} s of mixtures of 100 normals"
    )
    if log:
        settings = {"rows": options.rows, "splits": options.splits}
        report = {"system": machine.system(1), "settings": settings, "scores": summary}
        options.json.write_text(json.dumps(report, indent=1) + "\n")
        if finished.keys() <= {*fits}:  # no other fits remain to be reported
            log.unlink(missing_ok=True)
    if options.figure:
        draw(options.figure, summary)
    return 0 if not list_failures(summary) else 1


def read_finished(log: Path) -> dict[Fit, dict[str, float | None]]:
    """Read the scores of an interrupted run; empty without one."""
    if not log.exists():
        return {}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return {Fit(*fit): scores for fit, scores in lines}


def prepare_worker() -> None:
    """Use one core, and import what the seconds of a fit should not count."""
    torch.set_num_threads(1)
    threadpool_limits(1)
    for module in (
        "bdl.api.estimators",
        "ngboost",
        "sklearn.ensemble",
        "sklearn.gaussian_process",
    ):
        import_module(module)


def score(fit: Fit) -> dict[str, float | None]:
    """Fit, predict and score one split."""
    data = load_dataset(fit.dataset)
    numbers = np.random.default_rng(0).permutation(len(data.y))[: fit.rows]
    numbers = np.random.default_rng(fit.split + 1).permutation(numbers)
    tested, trained = np.split(numbers, [len(numbers) // 5])
    x, y = np.asarray(data.x, dtype=np.float64), np.asarray(data.y, dtype=np.float64)
    spread = x[trained].std(0)
    x = (x - x[trained].mean(0)) / np.where(spread > 0, spread, 1)
    y = (y - y[trained].mean()) / y[trained].std()
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length of a process at its bound
        predicted = ESTIMATORS[fit.method](x[trained], y[trained], x[tested], y[tested], fit.split)
    seconds = time.process_time() - start
    covered = (predicted.low <= y[tested]) & (y[tested] <= predicted.high)
    densities = predicted.log_density
    return {
        "rmse": float(np.sqrt(np.mean(np.square(predicted.mean - y[tested])))),
        "nll": None if densities is None else -float(np.mean(densities)),
        "coverage": float(covered.mean()),
        "seconds": seconds,
    }


def measure_intervals() -> tuple[float, float]:
    """Measure the seconds of central intervals: of the linear default, and of normal mixtures."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(100_000, 20))
    model = bdl.Regressor().fit(x, x[:, 0] + generator.normal(size=len(x)))
    start = time.process_time()
    model.predict_interval(x)
    linear_end = time.process_time()
    means = torch.from_numpy(generator.normal(size=(100_000, 100)))
    mixtures = EqualMixture.of(Normal(means, torch.tensor(0.5, dtype=torch.float64)))
    mixture_start = time.process_time()
    central_interval(mixtures, 0.9)
    return linear_end - start, time.process_time() - mixture_start


def summarise(scored: Sequence[tuple[Fit, Mapping[str, float | None]]]) -> list[dict[str, Any]]:
    """Average over the splits of each set and method, in their order."""
    groups: dict[tuple[str, str], list[Mapping[str, float | None]]] = {}
    for fit, scores in scored:
        groups.setdefault((fit.dataset, fit.method), []).append(scores)
    summary = []
    for (dataset, method), group in groups.items():
        entry: dict[str, Any] = {"dataset": dataset, "method": method}
        for name in QUANTITIES:
            numbers = np.array([scores[name] for scores in group], dtype=np.float64)
            entry[name] = None if np.isnan(numbers).any() else round(float(numbers.mean()), 4)
        entry["coverages"] = [scores["coverage"] for scores in group]
        summary.append(entry)
    return summary


def print_tables(scores: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print a table of each quantity, methods in columns, and the coverages out of bounds."""
    methods = list(dict.fromkeys(entry["method"] for entry in scores))
    for name, title in QUANTITIES.items():
        table = Table("", title=title, padding=(0, 1, 0, 0), box=None)
        for method in methods:
            table.add_column(method, justify="right")
        for dataset in dict.fromkeys(entry["dataset"] for entry in scores):
            values = [entry[name] for entry in scores if entry["dataset"] == dataset]
            table.add_row(dataset, *(command.number(value, 2) for value in values))
        console.print(table)
    for line in list_failures(scores):
        console.print(line)


def list_failures(scores: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the coverages of this package's estimators that are out of bounds."""
    low, high = LIMITS
    return [
        f"{entry['method']} covers {entry['coverage']:.2f} on {entry['dataset']}: "
        f"not in {low:.2f} to {high:.2f}"
        for entry in scores
        if entry["method"] in OUR_METHODS and not low <= entry["coverage"] <= high
    ]


if __name__ == "__main__":
    raise SystemExit(main())
