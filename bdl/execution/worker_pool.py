"""Worker pools: the calling process, or spawned processes in a pool that outlives its workers.

Nothing heavy is imported here, since a worker limits its threads before it imports anything that
has threads.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from bdl.errors import InputError

if TYPE_CHECKING:
    from pebble import ProcessPool

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_REPORT_EVERY = 0.2
"""Seconds between two reports of a worker."""
_LOCK_SECONDS = 10.0
"""Seconds to wait for a lock that a worker which was killed may have held."""

Report = Callable[[int], None]
"""Called with work that is done, in the units of `bdl.execution.scheduler.Listener.advance`."""
WorkerFunction = Callable[[Any, Report], Any]
"""A function of an argument and a report, such as `bdl.execution.groups.run_group`."""


class LostWorker(Exception):
    """A worker is gone, and the result of its call with it; the message says what is known."""


class OverTime(Exception):
    """A call was ended because it had not ended by itself."""


class WorkerPool:
    """Workers that call functions; here the calling process, whose cores serve one program.

    Ctrl-C passes through.
    """

    @property
    def size(self) -> int:
        """Number of calls that the workers take at a time."""
        return 1

    def submit(
        self, function: WorkerFunction, argument: Any, report: Report, seconds: float | None = None
    ) -> "Future[Any]":
        """Start ``function(argument, report)``.

        A call that takes longer than so many seconds is ended, if it runs in another process.
        """
        future: Future[Any] = Future()
        try:
            future.set_result(function(argument, report))
        except Exception as error:
            future.set_exception(error)
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Return the result of a call, or raise its error, or `LostWorker`, or `OverTime`."""
        return future.result()

    def collect(self, report: Report) -> None:
        """Pass on the reports of workers since the last time, unless they report directly."""


class ProcessWorkers(WorkerPool):
    """Spawned processes, which began with `_start_worker`; one that dies is replaced.

    Each slot of the pool has a count of its work, written by the process in it.
    """

    def __init__(self, pool: "ProcessPool", counts: Sequence[int]) -> None:
        self._pool, self._counts, self._reported = pool, counts, 0

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self._counts)

    def submit(
        self, function: WorkerFunction, argument: Any, report: Report, seconds: float | None = None
    ) -> "Future[Any]":
        """Start a call in a process; reports come with `collect`."""
        future: Future[Any] = self._pool.schedule(
            _run_in_worker, (function, argument), timeout=seconds
        )
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Return the result of a call, or raise its error, or `LostWorker`, or `OverTime`."""
        from pebble import ProcessExpired

        try:
            return future.result()
        except ProcessExpired as error:
            code = error.exitcode if error.exitcode is not None else 0
            cause = f"exit code {code}"
            if code < 0:
                cause = f"signal {-code}, perhaps for want of memory"
            raise LostWorker(f"its worker process died ({cause})") from None
        except TimeoutError:
            raise OverTime from None

    def collect(self, report: Report) -> None:
        """Report the work of the processes since the last time."""
        total = sum(self._counts)
        report(total - self._reported)
        self._reported = total


@contextmanager
def open_local_pool(
    jobs: int, devices: Sequence[str] = (), separate_process: bool = False
) -> Iterator[WorkerPool]:
    """Open a worker pool: the calling process for one job, else so many spawned processes.

    The processes share the cores; the numbers are the same. Workers end with the block, at once if
    it raises. They share the GPUs that are given as ``CUDA_VISIBLE_DEVICES`` names them.
    `separate_process` spawns a process for one job as well, which can be ended.
    """
    if jobs == 1 and not separate_process:
        yield WorkerPool()
        return
    from concurrent.futures.process import BrokenProcessPool

    from pebble import ProcessPool

    # spawned, not forked: a fork copies the locks of PyTorch's and OpenMP's threads without the
    # threads that would release them, and a CUDA context does not survive it
    context = multiprocessing.get_context("spawn")
    # two workers may start at once and take the same slot: `pids` has a lock; a count has one
    # writer, so that `counts` needs none
    pids, counts = context.Array("l", jobs), context.RawArray("q", jobs)
    pool = ProcessPool(
        jobs, context=context, initializer=_start_worker, initargs=(pids, counts, tuple(devices))
    )
    try:
        yield ProcessWorkers(pool, counts)
    except BrokenProcessPool:
        pool.stop()
        raise InputError(
            "the worker processes ended at their start; a script that runs with several jobs does "
            'its work below: if __name__ == "__main__":'
        ) from None
    except BaseException:
        # not `close` alone, which would wait for fits that nobody will store
        pool.stop()
        raise
    finally:
        pool.close()
        pool.join()


_worker_slot: tuple[Any, int] | None = None
"""Counts of the work of all workers, and the index of this one among them."""


def _start_worker(pids: Any, counts: Any, devices: Sequence[str]) -> None:
    """Prepare a worker: its share of the cores, and a GPU if there are any.

    Ctrl-C is left to the parent, which ends its workers.
    """
    global _worker_slot
    # the terminal sends Ctrl-C to every process of its group; a worker that died of it would look
    # like a lost one, whose group is begun again
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    slot = _claim_slot(pids)
    _worker_slot = counts, slot
    # the cores that this process may use, which a container or the caller may have limited
    all_cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(all_cores) // len(counts)  # 0 where there are more workers than cores
    cores = all_cores[slot * share : (slot + 1) * share]
    # before PyTorch is imported: its libraries read these once, when they are loaded
    os.environ.update(dict.fromkeys(_THREADS, str(len(cores) or 1)))
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
    import torch

    torch.set_num_threads(len(cores) or 1)


def _claim_slot(pids: Any) -> int:
    """Take the first slot whose process is gone, or that never had one."""
    # without the lock after a while: a worker that was killed may have held it
    locked = pids.get_lock().acquire(timeout=_LOCK_SECONDS)
    try:
        slot = 0
        for index, pid in enumerate(pids.get_obj()):
            if not pid or not _is_alive(pid):
                slot = index
                break
        pids.get_obj()[slot] = os.getpid()
        return slot
    finally:
        if locked:
            pids.get_lock().release()


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        # signal 0 is not delivered; it only checks that the process exists
        os.kill(pid, 0)
        return True
    return False


def _run_in_worker(function: WorkerFunction, argument: Any) -> Any:
    """Call a function in a worker, counting its reports a few times a second."""
    assert _worker_slot is not None, "workers begin with `_start_worker`"
    counts, slot = _worker_slot
    uncounted, counted_at = 0, time.monotonic()

    def report(work: int) -> None:
        nonlocal uncounted, counted_at
        uncounted += work
        # a small network reports thousands of updates a second; the shared count lies on a cache
        # line that the parent reads
        if time.monotonic() - counted_at > _REPORT_EVERY:
            counts[slot] += uncounted
            uncounted, counted_at = 0, time.monotonic()

    try:
        return function(argument, report)
    finally:
        # also after an error: the work was done, and the bar would never reach its end
        counts[slot] += uncounted
