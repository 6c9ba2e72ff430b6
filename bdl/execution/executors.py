"""Executors speak `concurrent.futures.Executor`: one in the calling process, and a pool of spawned processes.

Nothing heavy is imported here, since a worker limits its threads before it imports anything that has threads.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_SEND_EVERY = 0.2
"""Seconds between two messages of a worker."""

Report = Callable[[int], None]
"""Told of work that is done, in the units of `bdl.execution.queue.Listener.advance`."""


class InProcessExecutor(Executor):
    """Runs each task at once, in the calling thread: the machine's cores serve one batched program."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run `fn` and give its finished future; Ctrl-C passes through."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Crew:
    """An executor, how many tasks it takes at a time, and how its tasks report what they have done.

    Parameters
    ----------
    executor
        Where tasks run.
    size
        Tasks submitted at a time.
    messages
        Where workers in other processes put their reports; None if tasks report directly.
    """

    def __init__(self, executor: Executor, size: int = 1, messages: "SimpleQueue[int] | None" = None) -> None:
        self.executor, self.size, self._messages = executor, size, messages

    def submit(self, task: Callable[[Any, Report], Any], argument: Any, report: Report) -> "Future[Any]":
        """Start ``task(argument, report)``; in another process reports come with `collect`."""
        if self._messages is None:
            return self.executor.submit(task, argument, report)
        return self.executor.submit(_task, task, argument)

    def collect(self, report: Report) -> None:
        """Pass on what workers have reported since the last time."""
        while self._messages is not None and not self._messages.empty():
            report(self._messages.get())


@contextmanager
def crew(jobs: int) -> Iterator[Crew]:
    """Make a crew: the calling process for one job, else so many spawned processes of one thread each.

    The numbers are the same. Workers end with the block, at once if it raises.
    """
    if jobs == 1:
        yield Crew(InProcessExecutor())
        return
    context = multiprocessing.get_context("spawn")
    messages = context.SimpleQueue()
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(messages,))
    try:
        yield Crew(pool, jobs, messages)
    except BaseException:
        for process in (pool._processes or {}).values():  # a public way comes with Python 3.14
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


_messages: "SimpleQueue[int] | None" = None
"""Of this worker."""


def _begin(messages: "SimpleQueue[int]") -> None:
    """Prepare a worker: one thread, no answer to Ctrl-C, which its parent answers."""
    global _messages
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    import torch

    torch.set_num_threads(1)


def _task(task: Callable[[Any, Report], Any], argument: Any) -> Any:
    """Run a task in a worker, sending on what it reports, a few messages a second."""
    done, sent = 0, time.monotonic()

    def report(work: int) -> None:
        nonlocal done, sent
        done += work
        if time.monotonic() - sent > _SEND_EVERY:
            send()

    def send() -> None:
        nonlocal done, sent
        assert _messages is not None, "workers begin with `_begin`"
        if done:
            _messages.put(done)
        done, sent = 0, time.monotonic()

    try:
        return task(argument, report)
    finally:
        send()
