"""Settings of the whole process: memory, threads, of which bits may depend, limits of time.

And what is available.
"""

import ctypes
import gc
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import NoReturn

SPINS = "2000"
"""Turns that a thread waits awake, some ten microseconds."""

_KEPT = 2**31 - 1
_MMAP_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -4, -3, -1  # malloc.h of glibc
_LARGEST_MMAP_THRESHOLD = 32 << 20
_VARIABLES = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT),
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""The same for processes to come; the last makes torch ask for pages of 2 MB."""


def keep_pages() -> None:
    """Let large tensors take the memory that others left, where glibc allocates.

    For before torch is imported.

    By itself glibc gets the memory of each tensor above 32 MB from the system and hands it back,
    and the system clears it page by page: half of an update of a network with ten million
    parameters. What is kept is what was needed at once, and more for the gaps: mostly up to a
    fifth, but up to three times as much in the worst case measured. An environment that says
    something of it is left alone.
    """
    told = any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.getenv(
        "GLIBC_TUNABLES", ""
    )
    if told or not sys.platform.startswith("linux"):
        return
    os.environ.update({name: os.environ.get(name, value) for name, value in _VARIABLES.items()})
    _mallopt({_MMAP_MAX: 0, _TRIM_THRESHOLD: _KEPT})


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Let the C library's allocator keep what is freed, for the rest of the process.

    An update frees and takes the same few megabytes every millisecond. By default glibc gives them
    back to the system each time, and half of the time of an update goes into page faults. Return
    False where the C library is not glibc; nothing is changed then.
    """
    return _mallopt({_MMAP_THRESHOLD: _LARGEST_MMAP_THRESHOLD, _TRIM_THRESHOLD: _KEPT})


def _mallopt(options: dict[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return False
    return all(bool(mallopt(option, value)) for option, value in options.items())


def wait_briefly() -> None:
    """Let threads fall asleep soon where the environment says nothing.

    For before torch is imported.

    By itself libgomp waits awake for milliseconds. Where something else needs a core, the thread
    that is waited for does not get it, and a run may take five times as long. On a quiet machine
    brief waits cost a tenth at most.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@contextmanager
def importing() -> Iterator[None]:
    """Import large packages in a block: what they make is not garbage, and is never searched for any."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block, or as a decorator a function, on one thread.

    Libraries split the sums of linear algebra among threads, and round accordingly: with one, bits
    are always the same.
    """
    import scipy.linalg  # noqa: F401  whose threads can be limited only once it is there
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


class OverLimit(TimeoutError):
    """The time of a group of fits is over."""


@contextmanager
def in_time(seconds: float | None, error: TimeoutError) -> Iterator[None]:
    """Hold a block to its time; None for as long as it takes. Blocks may stand in each other.

    The error is raised when the time is over, between two steps of Python; only in the main
    thread, where alarms are heard.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> NoReturn:
        raise error

    left, again = signal.getitimer(signal.ITIMER_REAL)
    if 0 < left <= seconds:  # the block outside ends first
        yield
        return
    before, began = signal.signal(signal.SIGALRM, over), time.monotonic()
    signal.setitimer(
        signal.ITIMER_REAL, seconds, 1
    )  # again each second, in case a library goes on all the same
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(
                signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3), again
            )


_MEMINFO = Path("/proc/meminfo")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says what a container may use, in its newer and its older way."""


def available_memory() -> int:
    """Count the bytes of memory that are available.

    All of the machine's where the system does not say.
    """
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, StopIteration):
        line = next(
            line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable")
        )
        found = 1024 * int(line.split()[1])
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # the word "max" stands for no limit
            found = min(found, int(path.read_text()))
    return found


def available_cores() -> int:
    """Count the cores that this process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def free_disk(folder: Path) -> int:
    """Count the free bytes of the disk on which a folder is, or will be."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def amount(size: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.{0 if unit in ('B', 'kB') or size >= 10 else 1}f} {unit}"
        size /= 1000
    return f"{size:.1f} TB" if size < 1000 else f"{size:.2g} TB"
