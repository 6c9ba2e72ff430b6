"""A clock that stands still while the compiler works.

A program is compiled once in a process, for whichever fits come first, and is no part of what these take.
"""

import time
from typing import Self


class Stopwatch:
    """Tells seconds as a context manager; within it, compilations pause the clock."""

    def __init__(self) -> None:
        self._paused, self._since = 0.0, 0.0

    def __enter__(self) -> Self:
        """Begin to listen to the compiler, which reports the outermost compilation alone."""
        from torch._dynamo.callback import callback_handler  # imports the compiler

        callback_handler.register_start_callback(self.pause)
        callback_handler.register_end_callback(self.resume)
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        from torch._dynamo.callback import callback_handler

        callback_handler.remove_start_callback(self.pause)
        callback_handler.remove_end_callback(self.resume)

    def now(self) -> float:
        """Return the seconds since an arbitrary moment."""
        return time.perf_counter() - self._paused

    def pause(self, *_: object) -> None:
        """Stand still from now on."""
        self._since = time.perf_counter()

    def resume(self, *_: object) -> None:
        """Go on."""
        self._paused += time.perf_counter() - self._since
