"""Settings of the whole process (memory, threads, time limits), and the resources it has.

Bits of results may depend on the number of threads.
"""

import ctypes
import gc
import getpass
import os
import shutil
import signal
import sys
import tempfile
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

_KEEP_ALL = 2**31 - 1
_MMAP_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD = -4, -3, -1  # malloc.h of glibc
_LARGEST_MMAP_THRESHOLD = 32 << 20
_VARIABLES = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(_KEEP_ALL),
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""The same for processes to come; the last makes torch ask for pages of 2 MB."""


def keep_pages() -> None:
    """Let large tensors take the memory that others left, where glibc allocates.

    For before torch is imported.

    By itself glibc gets the memory of each tensor above 32 MB from the system and hands it back,
    and the system clears it page by page: half of an update of a network with ten million
    parameters. The process keeps as much as it needed at once, and more for the gaps: mostly up to
    a fifth, but up to three times as much in the worst case measured. An environment that
    configures the allocator is left alone.
    """
    configured = any(
        name.startswith("MALLOC_") for name in os.environ
    ) or "glibc.malloc" in os.getenv("GLIBC_TUNABLES", "")
    if configured or not sys.platform.startswith("linux"):
        return
    os.environ.update({name: os.environ.get(name, value) for name, value in _VARIABLES.items()})
    _mallopt({_MMAP_MAX: 0, _TRIM_THRESHOLD: _KEEP_ALL})


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Let the C library's allocator keep what is freed, for the rest of the process.

    An update frees and takes the same few megabytes every millisecond. By default glibc gives them
    back to the system each time, and half of the time of an update goes into page faults. Return
    False where the C library is not glibc; nothing is changed then.
    """
    return _mallopt({_MMAP_THRESHOLD: _LARGEST_MMAP_THRESHOLD, _TRIM_THRESHOLD: _KEEP_ALL})


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


def ensure_account() -> None:
    """Set a name and a home for a process without an account, as in a container under any number.

    Libraries ask for them when they are imported or look for their caches, and fail without. The
    home is a folder below that of temporary files.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):  # the latter from Python 3.13 on
        os.environ["LOGNAME"] = f"user{os.getuid()}"
    try:
        home = Path.home()
    except RuntimeError:
        home = None
    if home is None or not os.access(home, os.W_OK):
        folder = Path(tempfile.gettempdir()) / f"bdl-bench-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.environ["HOME"] = str(folder)


@contextmanager
def frozen_imports() -> Iterator[None]:
    """Import large packages in a block, and exempt their objects from garbage collection.

    They live as long as the process: to search them for garbage would only take time.
    """
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

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


class OverLimit(TimeoutError):
    """The time of a group of fits is over."""


@contextmanager
def time_limit(seconds: float | None, error: TimeoutError) -> Iterator[None]:
    """Limit the time of a block; None for as long as it takes. Blocks may be nested.

    The error is raised when the time is over, between two steps of Python; only in the main
    thread, where alarms are heard.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_error(number: int, frame: FrameType | None) -> NoReturn:
        raise error

    outer_seconds, outer_interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < outer_seconds <= seconds:  # the block outside ends first
        yield
        return
    outer_handler = signal.signal(signal.SIGALRM, raise_error)
    start = time.monotonic()
    # raised once more each second, in case a library swallows the error and goes on
    signal.setitimer(signal.ITIMER_REAL, seconds, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer_handler)
        if outer_seconds:
            # at least a millisecond, since 0 would switch the outer alarm off
            remaining = max(outer_seconds - (time.monotonic() - start), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, remaining, outer_interval)


_MEMINFO = Path("/proc/meminfo")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files in which Linux has the memory that a container may use, of its cgroups v2 and v1."""


def available_memory() -> int:
    """Count the bytes of memory that are available.

    Where the system does not report them, it is all memory of the machine.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, StopIteration):
        line = next(
            line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable")
        )
        available = 1024 * int(line.split()[1])
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # the word "max" stands for no limit
            available = min(available, int(path.read_text()))
    return available


def available_cores() -> int:
    """Count the cores that this process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def free_disk(folder: Path) -> int:
    """Count the free bytes of the disk on which a folder is, or will be."""
    absolute = folder.absolute()
    existing = next(path for path in (absolute, *absolute.parents) if path.exists())
    return shutil.disk_usage(existing).free


def format_bytes(size: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.{0 if unit in ('B', 'kB') or size >= 10 else 1}f} {unit}"
        size /= 1000
    return f"{size:.1f} TB" if size < 1000 else f"{size:.2g} TB"
