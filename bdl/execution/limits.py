"""Limits of time and memory on a block of code, and errors of a full disk."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from bdl.runtime import OverLimit, time_limit
from bdl.spec.sections import Limits


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error is that of a full disk.

    Errors of safetensors say so in words only.
    """
    return getattr(error, "errno", None) == errno.ENOSPC or f"(os error {errno.ENOSPC})" in str(
        error
    )


@contextmanager
def enforce_limits(limits: Limits) -> Iterator[None]:
    """Enforce time and memory limits on a block.

    `OverLimit` when its time is over, between two steps of Python; only in the main thread, where
    alarms are heard. Code that asks for more memory than the process may have raises the error of
    its library.
    """
    minutes = limits.minutes
    over = OverLimit(f"over the limit of {minutes:g} minutes (limits.minutes)" if minutes else "")
    with time_limit(minutes and 60 * minutes, over), _memory_limit(limits.gigabytes):
        yield


@contextmanager
def _memory_limit(gigabytes: float | None) -> Iterator[None]:
    if gigabytes is None:
        yield
        return
    import resource

    # RLIMIT_DATA, not RLIMIT_AS: address space that libraries reserve and never touch, as CUDA
    # does, does not count; the hard limit stays, to set the soft one back
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(gigabytes * 2**30), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
