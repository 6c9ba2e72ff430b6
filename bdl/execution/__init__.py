"""Where groups run: in the calling process, or in a pool of spawned processes that outlives its workers.

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

if TYPE_CHECKING:
    from pebble import ProcessPool

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_TELL_EVERY = 0.2
"""Seconds between two reports of a worker."""
_PATIENCE = 10.0
"""Seconds to wait for a lock that a worker which was killed may have held."""

Report = Callable[[int], None]
"""Told of work that is done, in the units of `bdl.execution.queue.Listener.advance`."""
Task = Callable[[Any, Report], Any]


class LostWorker(Exception):
    """A worker is gone, and what it did with it; the message says what is known."""


class OverTime(Exception):
    """A task was ended because it had not ended by itself."""


class WorkerPool:
    """Workers for tasks; here the calling process, whose cores serve one batched program.

    Ctrl-C passes through.
    """

    @property
    def size(self) -> int:
        """Tasks that they take at a time."""
        return 1

    def submit(
        self, task: Task, argument: Any, report: Report, seconds: float | None = None
    ) -> "Future[Any]":
        """Start ``task(argument, report)``.

        What takes longer than so many seconds is ended, if anybody can do so.
        """
        future: Future[Any] = Future()
        try:
            future.set_result(task(argument, report))
        except Exception as error:
            future.set_exception(error)
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Return what a task returned, or raise what it raised, or `LostWorker`, or `OverTime`."""
        return future.result()

    def collect(self, report: Report) -> None:
        """Pass on what workers have reported since the last time, unless tasks report directly."""


class Processes(WorkerPool):
    """Spawned processes, which began with `_begin`; one that dies is replaced.

    Each place in the pool has its count of work that is done, written by whoever holds it.
    """

    def __init__(self, pool: "ProcessPool", counts: Sequence[int]) -> None:
        self._pool, self._counts, self._told = pool, counts, 0

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self._counts)

    def submit(
        self, task: Task, argument: Any, report: Report, seconds: float | None = None
    ) -> "Future[Any]":
        """Start the task in a process; reports come with `collect`."""
        future: Future[Any] = self._pool.schedule(_task, (task, argument), timeout=seconds)
        return future

    def result(self, future: "Future[Any]") -> Any:
        """Return what the task returned, or raise what it raised, or `LostWorker`, or `OverTime`."""
        from pebble import ProcessExpired

        try:
            return future.result()
        except ProcessExpired as error:
            code = error.exitcode if error.exitcode is not None else 0
            what = (
                f"signal {-code}, perhaps for want of memory" if code < 0 else f"exit code {code}"
            )
            raise LostWorker(f"its worker process died ({what})") from None
        except TimeoutError:
            raise OverTime from None

    def collect(self, report: Report) -> None:
        """Pass on what workers have done since the last time."""
        total = sum(self._counts)
        report(total - self._told)
        self._told = total


@contextmanager
def worker_pool(
    jobs: int, devices: Sequence[str] = (), apart: bool = False
) -> Iterator[WorkerPool]:
    """Make a worker pool: the calling process for one job, else so many spawned processes, which share the cores.

    The numbers are the same. Workers end with the block, at once if it raises. They share the GPUs
    that are given as ``CUDA_VISIBLE_DEVICES`` names them. `apart` gives one job a process of its
    own as well, which can be ended.
    """
    if jobs == 1 and not apart:
        yield WorkerPool()
        return
    from pebble import ProcessPool

    context = multiprocessing.get_context("spawn")
    pids, counts = context.Array("l", jobs), context.RawArray("q", jobs)
    pool = ProcessPool(
        jobs, context=context, initializer=_begin, initargs=(pids, counts, tuple(devices))
    )
    try:
        yield Processes(pool, counts)
    except BaseException:
        pool.stop()
        raise
    finally:
        pool.close()
        pool.join()


_place: tuple[Any, int] | None = None
"""Where this worker counts its work: the counts of all, and its own place among them."""


def _begin(pids: Any, counts: Any, devices: Sequence[str]) -> None:
    """Prepare a worker: its share of the cores, a GPU if there are any, and no answer to Ctrl-C but its parent's."""
    global _place
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    index = _claim(pids)
    _place = counts, index
    every = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    share = len(every) // len(counts)  # none of its own where there are more places than cores
    cores = every[index * share : (index + 1) * share]
    os.environ.update(dict.fromkeys(_THREADS, str(len(cores) or 1)))
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[index % len(devices)]
    import torch

    torch.set_num_threads(len(cores) or 1)


def _claim(pids: Any) -> int:
    held = pids.get_lock().acquire(timeout=_PATIENCE)
    try:
        place = next(
            (place for place, pid in enumerate(pids.get_obj()) if not pid or not _lives(pid)), 0
        )
        pids.get_obj()[place] = os.getpid()
        return place
    finally:
        if held:
            pids.get_lock().release()


def _lives(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _task(task: Task, argument: Any) -> Any:
    """Run a task in a worker, counting what it reports a few times a second."""
    assert _place is not None, "workers begin with `_begin`"
    counts, index = _place
    done, told = 0, time.monotonic()

    def report(work: int) -> None:
        nonlocal done, told
        done += work
        if time.monotonic() - told > _TELL_EVERY:
            counts[index] += done
            done, told = 0, time.monotonic()

    try:
        return task(argument, report)
    finally:
        counts[index] += done
