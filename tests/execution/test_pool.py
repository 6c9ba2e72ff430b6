"""A pool of spawned processes: the same rows, the same progress, and no process is left behind."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bdl.execution import limits, scheduler
from bdl.execution.groups import run_group
from bdl.execution.worker_pool import open_local_pool
from bdl.records.run_folder import RunFolder
from bdl.spec.sections import Limits

from .listeners import Ear, outcomes, run_here

BROKEN = """
from dataclasses import dataclass
from bdl.methods.base import Direct

@dataclass(frozen=True)
class Broken(Direct):
    def fit(self, problem, x, y, hyper, seed):
        raise RuntimeError("no luck")
"""


@pytest.mark.slow  # two processes import everything
def test_two_processes_give_the_rows_of_one(tiny, store, tmp_path):
    """Bit for bit, posteriors too; one entry dies in its process and is failed rows."""
    (tmp_path / "broken.py").write_text(BROKEN)
    broken = f"{{line: {{method: {{name: '{tmp_path}/broken.py:Broken'}}}}}}"
    cells = tiny(
        f"entries.exact.by_dataset={broken}", "entries.random.record={unit: epochs, every: 2}"
    )
    with RunFolder(tmp_path / "calm/store") as calm:
        run_here(cells, calm)
        expected = outcomes(calm, cells)
        curves = [calm.load_curve_points(cell.key) for cell in cells]
    ear = Ear()
    with open_local_pool(2) as workers:
        assert workers.size == 2
        scheduler.prepare_run_folder(cells, store)
        scheduler.run_tasks(cells, store, workers, ear)
    assert outcomes(store, cells) == expected
    assert [store.load_curve_points(cell.key) for cell in cells] == curves
    assert sum(map(len, curves)) > 0
    assert ear.done == ear.total > 0
    failed = [
        row
        for cell in cells
        for row in store.load_rows("final", cell.key)
        if row.status == "failed"
    ]
    assert [row.cell for row in failed] == [("line", "exact", "{}")] * 2
    assert {row.reason for row in failed} == {"RuntimeError: no luck"}
    assert all('raise RuntimeError("no luck")' in row.details["traceback"] for row in failed)


def about(argument, report):
    """What a worker says of itself; it reports three times, and waits for another to begin."""
    for work in (1, 10, 100):
        report(work)
    (argument / str(os.getpid())).touch()
    while len(list(argument.iterdir())) < 2:
        time.sleep(0.01)
    return (
        os.getpid(),
        torch.get_num_threads(),
        os.sched_getaffinity(0),
        os.environ["CUDA_VISIBLE_DEVICES"],
    )


@pytest.mark.slow  # processes, each of which imports everything
def test_workers_share_cores_and_devices_and_their_reports_arrive(tmp_path):
    told = []
    with open_local_pool(2, ["3", "7"]) as workers:
        found = [
            workers.result(future)
            for future in [workers.submit(about, tmp_path, told.append) for _ in "ab"]
        ]
        workers.collect(told.append)
        workers.collect(told.append)
    pids, threads, cores, devices = zip(*found, strict=True)
    here = os.sched_getaffinity(0)
    assert len({*pids, os.getpid()}) == 3
    assert set(threads) == {max(1, len(here) // 2)}
    if len(here) > 1:
        assert cores[0].isdisjoint(cores[1])
        assert cores[0] | cores[1] <= here
    assert sorted(devices) == ["3", "7"]
    assert told == [2 * 111, 0]


@pytest.mark.slow  # processes
def test_a_script_without_a_main_guard_is_told_of_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "from bdl.execution.worker_pool import open_local_pool\n"
        "with open_local_pool(2) as workers:\n"
        "    workers.result(workers.submit(os.getpid, None, print))\n"
    )
    end = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    # Python's own tracker of resources may print a warning after the error.
    told = [line for line in end.stderr.splitlines() if line.startswith("bdl.errors.InputError:")]
    assert len(told) == 1
    assert "the worker processes ended at their start;" in told[0]
    assert '__name__ == "__main__"' in told[0]


def die_once(group, report):
    """End the process as the kernel would, for want of memory, unless that was done before."""
    cell = group.members[0][0]
    mark = Path(cell.data.name + ".died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return run_group(group, report)


def die(group, report):
    os.kill(os.getpid(), signal.SIGKILL)


def hang(group, report):
    time.sleep(600)


@pytest.mark.slow  # processes, each of which imports everything
def test_a_group_that_takes_its_worker_with_it_is_done_again_or_failed_rows_and_the_rest_goes_on(
    tiny, store, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scheduler, "_GRACE", 0.1)

    def ran(workers, task, *changes):
        cells = tiny("datasets=[diabetes]", *changes, entries=["exact"])
        store.forget([cells[0].key])
        with monkeypatch.context() as patch:
            patch.setattr(scheduler, "run_group", task)
            scheduler.prepare_run_folder(cells, store)
            scheduler.run_tasks(cells, store, workers, Ear())
        return [row.reason or row.status for row in store.load_rows("final", cells[0].key)]

    with open_local_pool(1, separate_process=True) as workers:
        assert ran(workers, die_once) == ["ok", "ok"]
        assert Path("diabetes.died").exists()
        assert {*ran(workers, die)} == {
            "its worker process died (signal 9, perhaps for want of memory), twice"
        }
        late = ran(workers, hang, "limits.minutes=0.01")
        assert {*late} == {"over the limit of 0.01 minutes (limits.minutes), and hung"}
        assert ran(workers, run_group) == ["ok", "ok"]


def test_a_group_beyond_its_limits_is_failed_rows_with_the_reason(tiny, store):
    slow = tiny(
        "datasets=[diabetes]",
        "limits.minutes=0.0005",
        "entries.random.training.epochs=4000",
        entries=["random"],
    )
    run_here(slow, store)
    assert {row.reason for row in store.load_rows("final", slow[0].key)} == {
        "OverLimit: over the limit of 0.0005 minutes (limits.minutes)"
    }


def test_memory_beyond_the_limit_is_refused_to_the_group_and_given_back():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(RuntimeError, match="alloc"), limits.enforce_limits(Limits(gigabytes=7)):
        torch.zeros(2**31)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
