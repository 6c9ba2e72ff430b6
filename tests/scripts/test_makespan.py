"""The queue on a clock that jumps: makespans by hand, no idle workers, and groups put together from rows."""

import json
import random
from dataclasses import dataclass, field

import makespan
import pandas as pd
import pytest
from makespan import Simulated, recorded, simulate
from run_folders import write_frame


@pytest.mark.parametrize(
    ("cells", "workers", "expected"),
    [
        ([[[3.0], [2.0]], [[4.0, 1.0]]], 1, 10.0),
        (
            [[[4.0, 1.0]], [[3.0], [2.0]]],
            2,
            5.0,
        ),  # the chain of 3 and 2 begins at once, though it comes second
        ([[[3.0, 1.0], [2.0]]], 2, 5.0),  # the second stage waits for the whole of the first
        ([[[1.0], [1.0], [1.0]]], 9, 3.0),
    ],
)
def test_makespans_by_hand(cells, workers, expected):
    found = simulate(cells, Simulated(workers))
    total = sum(seconds for stages in cells for stage in stages for seconds in stage)
    assert (found.makespan, found.total) == (expected, total)
    assert found.chain_ratio >= 1


@dataclass
class Watched(Simulated):
    """Notices when the clock moves on while a worker is free and a group could run.

    Groups differ in their times.
    """

    cells: list[list[list[float]]] = field(default_factory=list)
    begun: set[float] = field(default_factory=set)
    over: set[float] = field(default_factory=set)
    idled: bool = False

    def submit(self, task, group, report, seconds=None):
        self.begun.add(group.seconds)
        future = super().submit(task, group, report, seconds)
        future.add_done_callback(lambda _: self.over.add(group.seconds))
        return future

    def collect(self, report):
        stages = [
            next((own for own in map(set, cell) if own - self.over), set()) for cell in self.cells
        ]
        ready = (
            set().union(*stages) - self.begun
        )  # of the first stage of each cell that is not over
        self.idled |= self._handed and len(self._running) < self.size and bool(ready)
        super().collect(report)


def test_no_worker_is_idle_while_a_group_is_ready():
    moments = random.Random(0)
    for _ in range(60):
        cells = [
            [
                [moments.random() for _ in range(moments.randint(1, 4))]
                for _ in range(moments.randint(1, 4))
            ]
            for _ in range(moments.randint(1, 6))
        ]
        worker_pool = Watched(moments.randint(2, 5), cells=cells)
        found = simulate(cells, worker_pool)
        assert not worker_pool.idled
        assert worker_pool.over == {
            seconds for stages in cells for stage in stages for seconds in stage
        }
        # no order is better than the one, and none that never idles is worse than the other
        # (Graham 1966)
        least = max(found.total / worker_pool.size, found.chain)
        assert (
            least - 1e-9 <= found.makespan <= found.total / worker_pool.size + found.chain + 1e-9
        )


def test_the_watch_sees_an_idle_worker():
    worker_pool = Watched(2, cells=[[[1.0, 2.0]]])
    worker_pool.submit(None, makespan._Timed(1.0), None)
    worker_pool.collect(None)
    assert worker_pool.idled


def rows() -> pd.DataFrame:
    """Two trials of three folds and a final fit of each of 20 splits, of the shape of slang-nn on yacht."""
    each = {"dataset": "yacht", "entry": "slang-nn", "status": "ok", "reason": None, "fold": 0}
    search = [
        each
        | {"stage": "search", "split": split, "trial": trial, "fold": fold, "seconds": 1.0 + trial}
        for split in range(20)
        for trial in range(2)
        for fold in range(3)
    ]
    final = [
        each | {"stage": "final", "split": split, "trial": 0, "fold": 0, "seconds": 0.5}
        for split in range(20)
    ]
    columns = ["dataset", "entry", "stage", "split", "trial", "fold"]
    return pd.DataFrame(search + final)[[*columns, "status", "reason", "seconds"]]


def test_groups_from_rows():
    """The rounds of a Bayesian search have a setting each, whose 20 splits and three folds are one group here."""
    assert recorded("uci-regression", "paper", rows()) == [[[60.0], [120.0], [10.0]]]


def test_table_and_file(tmp_path, capsys):
    write_frame(tmp_path, rows())
    command = ["uci-regression", "--rows", str(tmp_path), "--workers", "1", "4"]
    assert makespan.main([*command, "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert [(one["workers"], one["makespan"], one["ratio"]) for one in found] == [
        (1, 190, 1),
        (4, 190, 190 / 120),
    ]
    assert "makespan" in capsys.readouterr().out
