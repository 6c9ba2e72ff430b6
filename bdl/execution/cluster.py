"""Groups on the workers of a Dask cluster, which one names by its address or has SLURM start.

Workers have the package and the data files; what they have is held against what is here before and
with every group.
"""

import logging
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import torch

from bdl.errors import InputError
from bdl.execution import LostWorker, Report, Task, WorkerPool, worker_pool
from bdl.execution.groups import Group
from bdl.plan import Cell, fit_hash

if TYPE_CHECKING:
    from distributed import Client

_WAIT = 30.0
"""Seconds to wait for a scheduler to answer."""
_ASK_EVERY = 2.0
"""Seconds between two questions of how many workers there are."""
_PATIENCE = 60.0
"""Seconds without any worker after which a run ends, as without its scheduler."""
_KEPT = "what is done is kept, and the same command goes on from here"
_GONE = InputError(f"the Dask scheduler is gone; {_KEPT}")
_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio")
"""Those that have levels of their own; they tell of lost connections with tracebacks, where one
line is enough.
"""
_PACKAGES = ("bdl-bench", "torch", "numpy")


@contextmanager
def worker_pool_for(cells: Sequence[Cell], jobs: int, executor: str) -> Iterator[WorkerPool]:
    """Make a worker pool for cells: processes of this machine, or the workers of a cluster.

    Several processes have a GPU each where there are several. The executor is ``dask:ADDRESS`` of
    a scheduler; ``slurm:FILE``, settings of ``dask_jobqueue.SLURMCluster`` and the number of
    ``jobs`` as YAML; empty for this machine. `InputError` if there is no such executor, its
    packages are missing, nobody answers, or workers have other versions.
    """
    if not executor:
        on_gpus = jobs > 1 and any(cell.device == "cuda" for cell in cells)
        devices = [str(index) for index in range(torch.cuda.device_count())] if on_gpus else []
        with worker_pool(jobs, devices, any(cell.settings.limited for cell in cells)) as workers:
            yield workers
        return
    kind, _, where = executor.partition(":")
    connections = {"dask": _dask, "slurm": _slurm}
    if kind not in connections or not where:
        raise InputError(f"--executor {executor}: give dask:ADDRESS or slurm:FILE")
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise InputError(
            f"--executor {executor} needs more packages: pip install 'bdl-bench[dask]'"
        ) from None
    for (
        name
    ) in _LOGGERS:  # for good, since they also tell of what is cleared away when the program ends
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with connections[kind](where) as client:
        _check(client, where)
        yield DaskCrew(client)


class DaskCrew(WorkerPool):
    """Workers of a Dask cluster.

    The scheduler gives a group to another worker where one is lost.
    """

    def __init__(self, client: "Client") -> None:
        self._client, self._done = client, SimpleQueue[int]()
        self._threads, self._asked, self._seen = 0, -_ASK_EVERY, time.monotonic()

    @property
    def size(self) -> int:
        """One group for each thread of the workers, and one that waits so that none is idle.

        `InputError` if the scheduler is gone, or no worker has been there for a minute: what is
        done is kept.
        """
        if time.monotonic() - self._asked > _ASK_EVERY:
            with _gone():
                self._threads = sum(self._client.nthreads().values())
            self._asked = time.monotonic()
            if self._threads:
                self._seen = self._asked
            elif self._asked - self._seen > _PATIENCE:
                raise InputError(
                    f"the Dask scheduler has had no worker for {_PATIENCE:.0f} seconds; {_KEPT}"
                )
        return 2 * max(1, self._threads)

    def submit(
        self, task: Task, argument: Group, report: Report, seconds: float | None = None
    ) -> "Future[Any]":
        """Start the task on a worker; what it did is reported when it has ended."""
        hashes = [fit_hash(cell) for cell, _ in argument.members]
        with _gone():
            theirs = self._client.submit(_there, task, argument, hashes, pure=False)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        def hand_over(found: Any) -> None:
            if found.status == "finished":
                outcomes, work = found.result()
                self._done.put(work)
                future.set_result(outcomes)
            else:
                future.set_exception(ConnectionError() if found.cancelled() else found.exception())

        theirs.add_done_callback(hand_over)
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Return what the task returned, or raise what it raised, `LostWorker`, or `InputError` without a scheduler."""
        from distributed import KilledWorker

        try:
            with _gone():
                return future.result()
        except KilledWorker:
            raise LostWorker("its workers died, perhaps for want of memory") from None

    def collect(self, report: Report) -> None:
        """Pass on what groups have done that have ended since the last time."""
        while not self._done.empty():
            report(self._done.get())


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except ConnectionError:
        raise _GONE from None
    except OSError as error:
        if type(error).__module__.startswith("distributed."):
            raise _GONE from None
        raise


def _there(task: Task, group: Group, hashes: Sequence[str]) -> tuple[Any, int]:
    """Run a group on a worker whose code and data are those of the caller.

    Give what it made, and what that was.
    """
    for (cell, _), expected in zip(group.members, hashes, strict=True):
        if fit_hash(cell) != expected:
            raise InputError(
                f"a worker has other code or other data for {cell.label}: give it the same version of bdl-bench and "
                "the same BDL_DATA_DIR"
            )
    done: list[int] = []
    return task(group, done.append), sum(done)


@contextmanager
def _dask(address: str) -> "Iterator[Client]":
    from distributed import Client

    try:
        client = Client(address, timeout=_WAIT, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"no Dask scheduler answers at {address} ({reason})") from None
    with client:
        yield client


@contextmanager
def _slurm(file: str) -> "Iterator[Client]":
    if shutil.which("sbatch") is None:
        raise InputError(
            f"--executor slurm:{file}: there is no sbatch here; start the run where jobs are submitted"
        )
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise InputError(
            f"--executor slurm:{file} needs more packages: pip install 'bdl-bench[dask]'"
        ) from None
    settings = _settings(Path(file))
    jobs = settings.pop("jobs", 1)
    with SLURMCluster(**settings) as cluster:
        cluster.scale(jobs=jobs)
        with cluster.get_client() as client:
            client.wait_for_workers(1)
            yield client


def _settings(path: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"cannot read {path}: {reason}") from None
    if not isinstance(found, dict):
        raise InputError(
            f"{path}: give settings of dask_jobqueue.SLURMCluster by name, such as queue, cores and memory"
        )
    return found


def _check(client: "Client", where: str) -> None:
    here = versions()
    with _gone():
        found: Mapping[str, Mapping[str, str]] = client.run(versions)
    if not found:
        raise InputError(
            f"the scheduler at {where} has no workers: start some with dask worker {where}"
        )
    for worker, theirs in found.items():
        if other := [
            f"{name} {theirs.get(name)} (here {own})"
            for name, own in here.items()
            if theirs.get(name) != own
        ]:
            raise InputError(
                f"the worker {worker} has {', '.join(other)}: give it the same versions"
            )


def versions() -> dict[str, str]:
    """Return the versions that numbers depend on, of the process that asks."""
    return {name: version(name) for name in _PACKAGES}
