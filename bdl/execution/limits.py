"""Limits of a group: time, by an alarm; memory, by what the process may still ask for."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from bdl.runtime import OverLimit, in_time
from bdl.spec.sections import Limits

_GRACE = 60.0
"""Seconds after the alarm in which a group may end by itself, before its process is ended."""


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error is that of a full disk, which safetensors tell of in words only."""
    return getattr(error, "errno", None) == errno.ENOSPC or f"(os error {errno.ENOSPC})" in str(error)


def hard(limits: Limits, fits: float | None) -> float | None:
    """Return the seconds after which the process of a group is ended; None for never.

    Parameters
    ----------
    limits
        Of the benchmark.
    fits
        Seconds that the fits of the group may take by limits of their own, if they have any.
    """
    most = [seconds for seconds in (limits.minutes and 60 * limits.minutes, fits) if seconds is not None]
    return min(most) + _GRACE if most else None


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
    minutes = limits.minutes
    over = OverLimit(f"over the limit of {minutes:g} minutes (limits.minutes)" if minutes else "")
    with in_time(minutes and 60 * minutes, over), _in_memory(limits.gigabytes):
        yield


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
