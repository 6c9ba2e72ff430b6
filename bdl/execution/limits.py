"""Limits of a group: time, by an alarm; memory, by what the process may still ask for."""

import errno
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from bdl.spec.training import Limits

_GRACE = 60.0
"""Seconds after the alarm in which a group may end by itself, before its process is ended."""


class OverLimit(TimeoutError):
    """The time of a group is over."""


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error is that of a full disk, which safetensors tell of in words only."""
    return getattr(error, "errno", None) == errno.ENOSPC or f"(os error {errno.ENOSPC})" in str(error)


def hard(limits: Limits) -> float | None:
    """Return the seconds after which the process of a group is ended; None for never."""
    return None if limits.minutes is None else 60 * limits.minutes + _GRACE


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Hold a block to its limits.

    Raises
    ------
    OverLimit
        When its time is over, between two steps of Python; only in the main thread, where alarms are heard.
    MemoryError or RuntimeError
        Whichever the library raises that asks for more memory than the process may have.
    """
    with _in_time(limits.minutes), _in_memory(limits.gigabytes):
        yield


@contextmanager
def _in_time(minutes: float | None) -> Iterator[None]:
    if minutes is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> NoReturn:
        raise OverLimit(f"over the limit of {minutes:g} minutes (limits.minutes)")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _in_memory(gigabytes: float | None) -> Iterator[None]:
    if gigabytes is None:
        yield
        return
    import resource

    soft, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(gigabytes * 2**30), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, most))
