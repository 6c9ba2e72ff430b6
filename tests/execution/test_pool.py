"""A pool of spawned processes: the same rows, the same progress, and no process is left behind."""

import os
import time

import pytest
import torch

from bdl.errors import InputError
from bdl.execution import queue
from bdl.execution.executors import crew
from bdl.store.store import Store

from .listeners import Ear, outcomes, run_here

BROKEN = """
from dataclasses import dataclass
from bdl.methods.base import Direct

@dataclass(frozen=True)
class Broken(Direct):
    def fit(self, problem, x, y, hyper, seed):
        raise RuntimeError("no luck")
"""


def test_two_processes_give_the_rows_of_one(tiny, line, store, tmp_path):
    """Bit for bit, posteriors too; one entry dies in its process and is failed rows."""
    (tmp_path / "broken.py").write_text(BROKEN)
    broken = f"{{'{line}': {{method: {{name: '{tmp_path}/broken.py:Broken'}}}}}}"
    cells = tiny(f"entries.exact.by_dataset={broken}", "entries.random.record={unit: epochs, every: 2}")
    with Store(tmp_path / "calm/store.sqlite") as calm:
        run_here(cells, calm)
        expected = outcomes(calm, cells)
        curves = [calm.readings(cell.key) for cell in cells]
    ear = Ear()
    with crew(2) as workers:
        assert workers.size == 2
        queue.run(cells, store, workers, ear)
    assert outcomes(store, cells) == expected
    assert [store.readings(cell.key) for cell in cells] == curves
    assert sum(map(len, curves)) > 0
    assert ear.done == ear.total > 0
    failed = [row for cell in cells for row in store.rows("final", cell.key) if row.status == "failed"]
    assert [row.cell for row in failed] == [(line, "exact", "{}")] * 2
    assert {row.reason for row in failed} == {"RuntimeError: no luck"}
    assert all('raise RuntimeError("no luck")' in row.details["traceback"] for row in failed)


def about(argument, report):
    """What a worker says of itself; it reports three times."""
    for work in (1, 10, 100):
        report(work)
    return argument, os.getpid(), torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def test_a_worker_has_one_thread_and_its_reports_arrive():
    told = []
    with crew(2) as workers:
        found = [future.result() for future in [workers.submit(about, name, told.append) for name in "ab"]]
        workers.collect(told.append)
        assert [(name, threads, limit) for name, _, threads, limit in found] == [("a", 1, "1"), ("b", 1, "1")]
        assert os.getpid() not in {pid for _, pid, _, _ in found}
        assert sum(told) == 2 * 111
        assert len(told) <= 6


def sleep(path, report):
    """Leave the number of this process in a folder, and sleep."""
    (path / str(os.getpid())).touch()
    time.sleep(120)


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_workers_end_at_once_where_the_run_is_interrupted(tmp_path, error):
    (tmp_path / "pids").mkdir()

    def interrupted():
        with crew(2) as workers:
            for _ in range(3):  # one more than there are processes
                workers.submit(sleep, tmp_path / "pids", print)
            while len(list((tmp_path / "pids").iterdir())) < 2:
                time.sleep(0.05)
            raise error

    start = time.monotonic()
    with pytest.raises(error):
        interrupted()
    assert time.monotonic() - start < 60
    assert all(gone(int(path.name)) for path in (tmp_path / "pids").iterdir())


def die(group, report):
    """End the process as the kernel would, for want of memory."""
    os._exit(9)


def test_a_worker_that_is_killed_stops_the_run_and_nothing_is_lost(tiny, store, monkeypatch):
    cells = tiny("datasets=[diabetes]", entries=["exact"])
    with monkeypatch.context() as patch:
        patch.setattr(queue, "attempt", die)
        with (
            pytest.raises(InputError, match=r"a worker process died, .* the same command goes on from here"),
            crew(2) as workers,
        ):
            queue.run(cells, store, workers, Ear())
    assert store.rows("final", cells[0].key) == []
    run_here(cells, store)
    assert [row.status for row in store.rows("final", cells[0].key)] == ["ok", "ok"]
