"""A local Dask cluster, of a scheduler and two workers in processes of their own."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import bdl
from bdl.errors import InputError
from bdl.execution import cluster, scheduler
from bdl.execution.cluster import DaskWorkers, open_worker_pool
from bdl.records.run_folder import RunFolder

from .listeners import Ear, outcomes, run_here

pytest.importorskip("distributed")

ENVIRONMENT = os.environ | {
    **{"PYTHONPATH": str(Path(bdl.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
}


@contextmanager
def process(module, *words):
    with subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


@contextmanager
def scheduling():
    """Start a scheduler, and give its process and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with process(
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--no-dashboard",
    ) as own:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield own, f"tcp://127.0.0.1:{port}"


@contextmanager
def workers(address, count):
    """Start workers of one thread each, and wait until they are known."""
    from distributed import Client

    words = (address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    with ExitStack() as stack:
        started = [
            stack.enter_context(process("distributed.cli.dask_worker", *words))
            for _ in range(count)
        ]
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=60)
        yield started


class Killing(Ear):
    """A listener that kills processes, once, when so many rows have come.

    Others are on their way.
    """

    def __init__(self, after: int, *processes: subprocess.Popen) -> None:
        super().__init__()
        self.after, self.processes = after, processes

    def note_stored(self, cell, rows):
        super().note_stored(cell, rows)
        if len(self.stored_rows) == self.after:
            for one in self.processes:
                one.kill()


@pytest.mark.slow  # a scheduler and three workers, each of which imports everything
def test_a_cluster_gives_the_rows_of_one_process_and_is_refused_or_lost_in_one_line(
    tiny, store, tmp_path, monkeypatch, capfd
):
    """What does not fit is refused.

    Where a worker is killed the run goes on, where all are it ends, and goes on.
    """
    cells = tiny()
    with RunFolder(tmp_path / "calm/store") as calm:
        run_here(cells, calm)
        expected = outcomes(calm, cells)
    with scheduling() as (own, address):
        with pytest.raises(
            InputError, match=r"has no workers: start some with dask worker tcp://"
        ):
            run(cells, store, address)
        with workers(address, 2) as (first, second):
            with monkeypatch.context() as patch:
                patch.setattr(cluster, "version", lambda name: "0.0.1")
                with pytest.raises(
                    InputError, match=r"the worker tcp://\S+ has bdl-bench \S+ \(here 0.0.1\)"
                ):
                    run(cells, store, address)
            with monkeypatch.context() as patch:
                patch.setattr(
                    cluster, "list_fit_hashes", lambda group: ["0" * 64] * len(group.members)
                )
                with pytest.raises(
                    InputError, match=r"a worker has other code or other data for \w+/\w+: give it"
                ):
                    run(cells, store, address)
            killing = Killing(2, first)
            run(cells, store, address, killing)
            assert first.poll() is not None
            assert outcomes(store, cells) == expected
            assert killing.done >= killing.total > 0

            store.forget([cell.key for cell in cells])
            monkeypatch.setattr(cluster, "_NO_WORKER_SECONDS", 3.0)
            check_lost(cells, store, address, "has had no worker for 3 seconds", second)
        with workers(address, 1):
            check_lost(cells, store, address, "is gone", own)
    assert capfd.readouterr().err == ""
    kept = outcomes(store, cells)
    assert len(kept) < len(expected)
    assert all(row in expected for row in kept)
    run_here(cells, store)
    assert outcomes(store, cells) == expected


def run(cells, store, address, ear=None):
    with open_worker_pool(cells, 1, f"dask:{address}") as worker_pool:
        assert worker_pool.size in (2, 4)
        scheduler.prepare_run_folder(cells, store)
        scheduler.run_tasks(cells, store, worker_pool, ear or Ear())


def check_lost(cells, store, address, reason, process):
    before = len(outcomes(store, cells))
    with pytest.raises(
        InputError,
        match=f"^the Dask scheduler {reason}; what is done is kept, and the same command",
    ):
        run(cells, store, address, Killing(1, process))
    assert len(outcomes(store, cells)) > before


def test_workers_may_be_away_for_a_minute_and_come_back(monkeypatch):
    now, threads = [1000.0], {"one": 2}
    monkeypatch.setattr(cluster.time, "monotonic", lambda: now[0])

    class Client:
        def nthreads(self):
            return threads

    worker_pool = DaskWorkers(Client())
    assert worker_pool.size == 4
    for seconds, there in ((30, {}), (29, {}), (10, {"two": 1}), (60, {})):
        threads = there
        now[0] += seconds
        assert worker_pool.size == 2
    now[0] += 2.5
    with pytest.raises(InputError, match="no worker for 60 seconds"):
        assert worker_pool.size


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        ("dask", "--executor dask: give dask:ADDRESS or slurm:FILE"),
        ("ray:here", "--executor ray:here: give dask:ADDRESS or slurm:FILE"),
        ("dask:tcp://127.0.0.1:9", "no Dask scheduler answers at tcp://127.0.0.1:9 ("),
        ("dask:nonsense://x", "no Dask scheduler answers at nonsense://x ("),
        ("slurm:cluster.yaml", "--executor slurm:cluster.yaml: there is no sbatch here"),
    ],
)
def test_executors_that_are_not_there_are_told(executor, message, monkeypatch):
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1.0)
    with (
        pytest.raises(InputError, match=re.escape(message)) as caught,
        open_worker_pool([], 1, executor),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_told_with_the_extra_that_has_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(InputError, match=r"pip install 'bdl-bench\[dask\]'"),
        open_worker_pool([], 1, "dask:tcp://x:9"),
    ):
        pass


def test_settings_of_slurm_are_read_from_yaml(tmp_path):
    path = tmp_path / "cluster.yaml"
    with pytest.raises(InputError, match=r"cannot read .*cluster.yaml: No such file"):
        cluster._load_settings(path)
    path.write_text("[1]", "utf-8")
    with pytest.raises(InputError, match=r"give settings of dask_jobqueue.SLURMCluster"):
        cluster._load_settings(path)
    path.write_text("queue: long\nmemory: 4GB\njobs: 8\n", "utf-8")
    assert cluster._load_settings(path) == {"queue": "long", "memory": "4GB", "jobs": 8}
