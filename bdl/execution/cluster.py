"""Groups on the workers of a Dask cluster, named by its address or started by SLURM.

Workers have the package and the data files of their own; versions and hashes of both are compared
with those here before the run and with every group.
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
from bdl.execution.groups import Group
from bdl.execution.worker_pool import (
    LostWorker,
    Report,
    WorkerFunction,
    WorkerPool,
    open_local_pool,
)
from bdl.plan.task import Task

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_SECONDS = 30.0
"""Seconds to wait for a scheduler to answer."""
_POLL_SECONDS = 2.0
"""Seconds between two counts of the workers."""
_NO_WORKER_SECONDS = 60.0
"""Seconds without any worker after which a run ends, as without its scheduler."""
_RESUME_HINT = "what is done is kept, and the same command goes on from here"
_SCHEDULER_GONE = InputError(f"the Dask scheduler is gone; {_RESUME_HINT}")
_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio")
"""Loggers with levels of their own, which report lost connections with tracebacks."""
_PACKAGES = ("bdl-bench", "torch", "numpy")


def check_executor(executor: str) -> None:
    """Raise `InputError` unless an executor is written as `open_worker_pool` takes it."""
    scheme, _, address = executor.partition(":")
    if scheme not in ("dask", "slurm") or not address:
        raise InputError(f"--executor {executor}: give dask:ADDRESS or slurm:FILE")


@contextmanager
def open_worker_pool(tasks: Sequence[Task], jobs: int, executor: str) -> Iterator[WorkerPool]:
    """Open a worker pool for tasks: processes of this machine, or the workers of a cluster.

    Several processes have a GPU each where there are several. The executor is ``dask:ADDRESS`` of
    a scheduler; ``slurm:FILE``, settings of ``dask_jobqueue.SLURMCluster`` and the number of
    ``jobs`` as YAML; empty for this machine. `InputError` if there is no such executor, its
    packages are missing, nobody answers, or workers have other versions.
    """
    if not executor:
        on_gpus = jobs > 1 and any(task.device == "cuda" for task in tasks)
        devices = [str(index) for index in range(torch.cuda.device_count())] if on_gpus else []
        limited = any(task.settings.limited for task in tasks)
        with open_local_pool(jobs, devices, limited) as workers:
            yield workers
        return
    check_executor(executor)
    scheme, _, address = executor.partition(":")
    connections = {"dask": _dask_client, "slurm": _slurm_client}
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise InputError(
            f"--executor {executor} needs more packages: pip install 'bdl-bench[dask]'"
        ) from None
    # not restored: they also report what is cleared away when the program ends
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    with connections[scheme](address) as client:
        _check_versions(client, address)
        yield DaskWorkers(client)


class DaskWorkers(WorkerPool):
    """Workers of a Dask cluster.

    The scheduler gives a group to another worker where one is lost.
    """

    def __init__(self, client: "Client") -> None:
        self._client, self._done = client, SimpleQueue[int]()
        self._threads, self._polled_at = 0, -_POLL_SECONDS
        self._had_worker_at = time.monotonic()

    @property
    def size(self) -> int:
        """One group for each thread of the workers, and one that waits so that none is idle.

        `InputError` if the scheduler is gone, or there was no worker for a minute; stored results
        stay.
        """
        if time.monotonic() - self._polled_at > _POLL_SECONDS:
            with _scheduler_errors():
                self._threads = sum(self._client.nthreads().values())
            self._polled_at = time.monotonic()
            if self._threads:
                self._had_worker_at = self._polled_at
            elif self._polled_at - self._had_worker_at > _NO_WORKER_SECONDS:
                raise InputError(
                    "the Dask scheduler has had no worker for "
                    f"{_NO_WORKER_SECONDS:.0f} seconds; {_RESUME_HINT}"
                )
        # at least one group is submitted while no worker is there, so that the run waits for one
        return 2 * max(1, self._threads)

    def submit(
        self,
        function: WorkerFunction,
        argument: Group,
        report: Report,
        seconds: float | None = None,
    ) -> "Future[Any]":
        """Start a call on a worker; its work is reported when it has ended."""
        hashes = list_fit_hashes(argument)
        with _scheduler_errors():
            # not pure: Dask would take an equal call that is submitted again for the first one,
            # and return its result
            dask_future = self._client.submit(
                _run_verified, function, argument, hashes, pure=False
            )
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()

        # runs on a thread of the client: the work goes through a queue, and only `collect`, in
        # the caller's thread, reports it

        def hand_over(finished: Any) -> None:
            if finished.status == "finished":
                results, work = finished.result()
                self._done.put(work)
                future.set_result(results)
            elif finished.cancelled():
                future.set_exception(ConnectionError())
            else:
                future.set_exception(finished.exception())

        dask_future.add_done_callback(hand_over)
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Return the result of a call, or raise its error, or `LostWorker`.

        `InputError` if the scheduler is gone.
        """
        from distributed import KilledWorker

        try:
            with _scheduler_errors():
                return future.result()
        except KilledWorker:
            raise LostWorker("its workers died, perhaps for want of memory") from None

    def collect(self, report: Report) -> None:
        """Report the work of groups that have ended since the last time."""
        while not self._done.empty():
            report(self._done.get())


@contextmanager
def _scheduler_errors() -> Iterator[None]:
    """Replace errors of a lost connection by one line."""
    try:
        yield
    except ConnectionError:
        raise _SCHEDULER_GONE from None
    except OSError as error:
        # `distributed` raises errors of its own that derive from OSError; others, such as that of
        # a full disk, are not about the connection
        if type(error).__module__.startswith("distributed."):
            raise _SCHEDULER_GONE from None
        raise


def list_fit_hashes(group: Group) -> list[str]:
    """List the hash of the fits of each member of a group."""
    return [task.fit_hash for task, _ in group.members]


def _run_verified(
    function: WorkerFunction, group: Group, hashes: Sequence[str]
) -> tuple[Any, int]:
    """Run a group on a worker whose code and data are those of the caller.

    Return its results and its work.
    """
    for (task, _), expected in zip(group.members, hashes, strict=True):
        if task.fit_hash != expected:
            raise InputError(
                f"a worker has other code or other data for {task.label}: give it the same "
                "version of bdl-bench and the same BDL_DATA_DIR"
            )
    work: list[int] = []
    return function(group, work.append), sum(work)


@contextmanager
def _dask_client(address: str) -> "Iterator[Client]":
    from distributed import Client

    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"no Dask scheduler answers at {address} ({reason})") from None
    with client:
        yield client


@contextmanager
def _slurm_client(file: str) -> "Iterator[Client]":
    if shutil.which("sbatch") is None:
        raise InputError(
            f"--executor slurm:{file}: there is no sbatch here; start the run where jobs are "
            "submitted"
        )
    try:
        from dask_jobqueue import SLURMCluster
    except ImportError:
        raise InputError(
            f"--executor slurm:{file} needs more packages: pip install 'bdl-bench[dask]'"
        ) from None
    settings = _load_settings(Path(file))
    jobs = settings.pop("jobs", 1)
    with SLURMCluster(**settings) as cluster:
        cluster.scale(jobs=jobs)
        with cluster.get_client() as client:
            client.wait_for_workers(1)
            yield client


def _load_settings(path: Path) -> dict[str, Any]:
    import yaml

    try:
        settings = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"cannot read {path}: {reason}") from None
    if not isinstance(settings, dict):
        raise InputError(
            f"{path}: give settings of dask_jobqueue.SLURMCluster by name, such as queue, cores "
            "and memory"
        )
    return settings


def _check_versions(client: "Client", address: str) -> None:
    """Raise `InputError` if there are no workers, or one has other versions than this process."""
    local_versions = package_versions()
    with _scheduler_errors():
        worker_versions: Mapping[str, Mapping[str, str]] = client.run(package_versions)
    if not worker_versions:
        raise InputError(
            f"the scheduler at {address} has no workers: start some with dask worker {address}"
        )
    for worker, versions in worker_versions.items():
        differences = []
        for name, expected in local_versions.items():
            if versions.get(name) != expected:
                differences.append(f"{name} {versions.get(name)} (here {expected})")
        if differences:
            raise InputError(
                f"the worker {worker} has {', '.join(differences)}: give it the same versions"
            )


def package_versions() -> dict[str, str]:
    """Return the versions that numbers depend on, of the process that calls."""
    return {name: version(name) for name in _PACKAGES}
