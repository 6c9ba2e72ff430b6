"""Executors speak `concurrent.futures.Executor`; this one works in the calling process."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


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
