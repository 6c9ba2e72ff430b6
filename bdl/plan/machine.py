"""What this machine has left: memory, cores, package on a disk."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says what a container may use, in its newer and its older way."""


def memory() -> int:
    """Count the bytes of memory that are available; all of the machine's where the system does not say."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, StopIteration):
        line = next(line for line in _MEMINFO.read_text().splitlines() if line.startswith("MemAvailable"))
        found = 1024 * int(line.split()[1])
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # the word "max" stands for no limit
            found = min(found, int(path.read_text()))
    return found


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def disk(folder: Path) -> int:
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
