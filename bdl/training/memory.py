"""Keep freed memory for the next step instead of handing it back to the system."""

import ctypes
from functools import lru_cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGEST_MMAP_THRESHOLD, _NEVER_TRIM = 32 << 20, (1 << 31) - 1


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Ask the C library's allocator to keep what is freed, for the rest of the process.

    An update frees and takes the same few megabytes every millisecond; by default glibc gives them back to
    the system each time, and half of an update's time goes into page faults.

    Returns
    -------
    bool
        False where the C library is not glibc; nothing is changed then.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM))
