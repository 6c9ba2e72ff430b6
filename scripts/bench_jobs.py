"""What handing groups to workers costs, and what two workers gain over one.

    python scripts/bench_jobs.py --json results/bench_jobs.json

The same Bayesian searches, whose rounds are groups that follow one another, run in this process, in one and two spawned
processes, and on a Dask scheduler of this machine with one worker. Workers are warm: they have run one search before.
The overhead is the time of a chain of tiny groups, less that in this process, for each of them. The gain of two is the
time of four searches of some weight in this process, one thread, over that in two processes, one thread each.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console

from bdl.execution import WorkerPool
from bdl.execution.cluster import worker_pool_for
from bdl.execution.queue import run
from bdl.plan import Cell
from bdl.plan.planning import plan
from bdl.spec import load_benchmark
from bdl.store import Row
from bdl.store.store import Store

OVERHEAD, GAIN = 0.050, 1.8
"""Targets: seconds of a group on Dask at the most; two processes over one at the least."""


class Silence:
    """Nobody listens."""

    def begin(self, work: int) -> None:
        """Begin."""

    def advance(self, work: int) -> None:
        """Go on."""

    def stored(self, cell: Cell, rows: Sequence[Row]) -> None:
        """Take note."""


def cells(entries: int, trials: int, epochs: int) -> list[Cell]:
    """Plan so many equal searches of `vifa-lr` on diabetes; each has a group a trial, and one of the final fit."""
    changes = ["splits=2", "evaluation.samples=5", "datasets=[diabetes]"]
    search = f"{{sampler: bayesian, trials: {trials}, startup: 1, folds: 2}}"
    changes += [f"entries.vifa-lr.search={search}", f"entries.vifa-lr.training.epochs={epochs}"]
    names = [f"datasets=[{', '.join(f'{{name: diabetes, label: diabetes_{i}}}' for i in range(entries))}]"]
    benchmark = load_benchmark("uci-regression", "quick", [*changes, *names]).select(entries=["vifa-lr"])
    return plan(benchmark, splits=range(2), compile=False)


def seconds(worker_pool: WorkerPool, planned: Sequence[Cell]) -> float:
    """Run in a store of its own, and give the wall time."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as store:
        begun = perf_counter()
        run(planned, store, worker_pool, Silence())
        return perf_counter() - begun


@contextmanager
def local_dask() -> Iterator[str]:
    """Start a scheduler and a worker of one thread in processes of their own; give the executor's name."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as own:
        yield f"dask:{own.scheduler_address}"


def measure(trials: int, epochs: int, repeats: int) -> dict[str, float]:
    """Time everything `repeats` times after a warm-up; the fastest counts, since others only disturb."""
    chain, searches = cells(1, trials, 1), cells(4, trials, epochs)
    groups = trials + 1
    found: dict[str, float] = {}
    with local_dask() as dask, worker_pool_for(chain, 1, "") as here, worker_pool_for(chain, 2, "") as two:
        with worker_pool_for(chain, 1, dask) as there:
            crews = {"here": here, "processes": two, "dask": there}
            found |= {name: _fastest(worker_pool, chain, repeats) for name, worker_pool in crews.items()}
        one, both = (_fastest(worker_pool, searches, repeats) for worker_pool in (here, two))
    overhead = {f"{name}_ms_a_group": 1e3 * (found[name] - found["here"]) / groups for name in ("processes", "dask")}
    return {"group_ms": 1e3 * found["here"] / groups, **overhead, "one": one, "two": both, "gain": one / both}


def _fastest(worker_pool: WorkerPool, planned: Sequence[Cell], repeats: int) -> float:
    return min([seconds(worker_pool, planned) for _ in range(repeats + 1)][1:])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and tell whether the targets hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few and short groups, once: a check that it works")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    found = measure(*((2, 1, 1) if options.quick else (20, 15, 2)))
    tell = Console().print
    tell(f"a group by itself {found['group_ms']:.1f} ms")
    tell(f"handed to a process {found['processes_ms_a_group']:+.1f} ms")
    holds = "holds" if found["dask_ms_a_group"] < 1e3 * OVERHEAD else "does not hold"
    tell(f"handed to a worker of Dask {found['dask_ms_a_group']:+.1f} ms; at most {1e3 * OVERHEAD:.0f} ms: {holds}")
    holds = "holds" if found["gain"] >= GAIN else "does not hold"
    tell(f"four searches: {found['one']:.1f} s, with two processes {found['two']:.1f} s; gain {found['gain']:.2f}")
    tell(f"at least {GAIN} times: {holds}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
