"""The machine: its cores, its description, a compiler without a past, and the memory of a process."""

import os
import platform
import re
import resource
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def cores() -> int:
    """Count the cores that the process may use."""
    return (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def confine(threads: int) -> None:
    """Return every contender the same cores; JAX counts those that the process may use."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.set_num_threads(threads)


def alone(
    threads: int,
    function: Callable[Arguments, Result],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> Result:
    """Call a function in a new process, confined to so many cores, whose peak memory is its own."""
    with ProcessPoolExecutor(
        1, get_context("spawn"), initializer=confine, initargs=(threads,)
    ) as own:
        return own.submit(function, *args, **kwargs).result()


@contextmanager
def cold_compiler() -> Iterator[None]:
    """Keep what is compiled in a folder of its own, empty at first."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        yield


def system(threads: int) -> Mapping[str, object]:
    """Describe what the numbers were measured on."""
    packages = ["torch", "numpy", "scikit-learn", *(["jax"] if find_spec("jax") else [])]
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "date": datetime.now(UTC).date().isoformat(),
        **{name: version(name) for name in packages},
    }


def peak_memory() -> float:
    """Resident memory that this process has had at most, GB."""
    status = Path("/proc/self/status")
    if (
        status.exists()
    ):  # on Linux `ru_maxrss` starts at the peak of the process that started this one
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        assert found is not None
        return int(found[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e9
