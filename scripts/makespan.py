"""How long a run takes on many workers: its recorded groups, in the order of the real queue, on a clock that jumps.

    python scripts/makespan.py uci-regression --rows results/uci-regression
    --workers 1 2 4 16 64

A group's time is the sum of what its fits were recorded with. Two bounds stand beside the
makespan: no order ends before the total over the workers, nor before the longest group; and none
before the longest chain of groups that wait for one another, the rounds of a search. Workers are
as fast together as alone, and hand over for nothing.
"""

import argparse
import heapq
import itertools
import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
from rich.console import Console
from rich.table import Table

from bdl.execution.groups import Group
from bdl.execution.scheduler import JobChain, run_chains
from bdl.execution.worker_pool import WorkerPool
from bdl.plan.planning import list_tasks
from bdl.plan.workload import find_slot_batch
from bdl.records.run_folder import RunFolder
from bdl.search.proposals import count_settings_per_round
from bdl.spec import load_benchmark
from bdl.spec.sections import Limits

Stages = list[list[float]]
"""Seconds of the groups of each stage of a cell."""


@dataclass
class Simulated(WorkerPool):
    """Workers on a clock of their own: the group that ends first is the next to be handed over."""

    workers: int
    now: float = 0.0
    busy: float = 0.0
    """Seconds of work that were handed out."""
    _running: list[tuple[float, int, Any]] = field(default_factory=list)
    _count: Any = field(default_factory=itertools.count)
    _handed: bool = True

    @property
    def size(self) -> int:
        """How many there are."""
        return self.workers

    def submit(
        self, task: Any, group: Any, report: Any, seconds: float | None = None
    ) -> "Future[Any]":
        """Begin a group at once."""
        future: Future[Any] = Future()
        heapq.heappush(self._running, (self.now + group.seconds, next(self._count), future))
        self.busy += group.seconds
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Hand over."""
        self._handed = True
        return future.result()

    def collect(self, report: Any) -> None:
        """Move the clock to the next end, once the last was handed over."""
        if self._handed and self._running:
            self.now, _, future = heapq.heappop(self._running)
            self._handed = False
            future.set_result([])


@dataclass(frozen=True)
class Makespan:
    """What a simulation found, in seconds."""

    workers: int
    makespan: float
    total: float
    group: float
    """The longest group."""
    chain: float
    """The longest chain."""

    @property
    def ratio(self) -> float:
        """Makespan over the bound that knows of no chains."""
        return self.makespan / max(self.total / self.workers, self.group)

    @property
    def chain_ratio(self) -> float:
        """Makespan over the bound that does."""
        return self.makespan / max(self.total / self.workers, self.chain)


_CELL = SimpleNamespace(
    benchmark=SimpleNamespace(limits=Limits()),
    settings=SimpleNamespace(search=None, method=SimpleNamespace(build=lambda: None)),
)


@dataclass(frozen=True, eq=False)
class _Timed:
    """Stands in for a group."""

    seconds: float
    members: Any = ((_CELL, 0),)

    def checkpoint(self) -> None:
        """None is kept."""


def simulate(cells: Sequence[Stages], worker_pool: Simulated) -> Makespan:
    """Let the queue hand the groups to the workers, the longest chain first."""
    chains = sorted(cells, key=lambda stages: -sum(map(max, stages)))
    jobs = [JobChain(map(_timed, stages), lambda outcomes: None) for stages in chains]
    run_chains(jobs, worker_pool, lambda work: None, poll=0)
    longest = max(seconds for stages in cells for stage in stages for seconds in stage)
    return Makespan(
        worker_pool.size,
        worker_pool.now,
        worker_pool.busy,
        longest,
        max(sum(map(max, stages)) for stages in cells),
    )


def _timed(stage: Sequence[float]) -> list[Group]:
    return cast(list[Group], [_Timed(seconds) for seconds in stage])


def recorded(benchmark: str, profile: str, rows: pd.DataFrame) -> list[Stages]:
    """Put the rows of a run together to groups: those of a round, or the final fits, of the splits of a slot batch."""
    found = []
    for cell in list_tasks(load_benchmark(benchmark, profile)):
        own = rows[(rows["dataset"] == cell.key[0]) & (rows["entry"] == cell.key[1])]
        if "point" in own:
            own = own[own["point"] == cell.key[2]]
        search = cell.settings.search
        stages: Stages = []
        for stage, each in (
            ("search", count_settings_per_round(search) if search else 1),
            ("final", 1),
        ):
            part = own[own["stage"] == stage]
            slot_batches = part["split"].map(
                lambda split, stage=stage, cell=cell: find_slot_batch(cell, stage, split).start
            )
            rounds = part["trial"] // each if stage == "search" else 0 * part["split"]
            for _, groups in part.assign(slot_batch=slot_batches, round=rounds).groupby("round"):
                stages.append(groups.groupby("slot_batch")["seconds"].sum().tolist())
        found.append(stages)
    return [stages for stages in found if stages]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, and write it as JSON where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("benchmark")
    parser.add_argument("--profile", default="paper")
    parser.add_argument("--rows", type=Path, required=True, help="folder of a run")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 16, 64])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    cells = recorded(options.benchmark, options.profile, RunFolder(options.rows).tabulate())
    found = [simulate(cells, Simulated(workers)) for workers in options.workers]
    headings = (
        "workers",
        "makespan (min)",
        "total / workers",
        "longest group",
        "longest chain",
        "ratio",
        "of chains",
    )
    table = Table(*headings)
    for one in found:
        minutes = (one.makespan, one.total / one.workers, one.group, one.chain)
        ratios = (one.ratio, one.chain_ratio)
        table.add_row(
            str(one.workers),
            *(f"{s / 60:.1f}" for s in minutes),
            *(f"{ratio:.2f}" for ratio in ratios),
        )
    Console().print(table)
    if options.json:
        kept = [
            asdict(one) | {"ratio": one.ratio, "chain_ratio": one.chain_ratio} for one in found
        ]
        options.json.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
