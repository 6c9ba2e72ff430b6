"""What goes with a group of fits: how they are made and kept, records, seconds of training, and limits."""

import errno
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch.utils._pytree import tree_leaves

from bdl.methods.guest import Guest
from bdl.plan import Cell, outside_files
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import Answer, is_predictive
from bdl.runtime import OverLimit, in_time
from bdl.spec.sections import Limits
from bdl.store import CERTIFICATE, KEPT, Reading


def details_of(cell: Cell, at_once: int, compile: bool) -> dict[str, Any]:
    """Describe how fits are made: how many side by side, on what, with which outside files and guests' packages."""
    details: dict[str, Any] = {"width": at_once, "device": cell.device, "compiled": compile}
    method = cell.settings.method.build()
    if isinstance(method, Guest) and (packages := method.packages):
        details["packages"] = packages
    return details | ({"files": files} if (files := outside_files(cell)) else {})


def kept(posterior: Posterior) -> dict[str, str]:
    """Return what is kept of a fit, where that is no distribution of parameters, and its certificate if it has one."""
    if not is_predictive(posterior):
        return {}
    certificate: str | None = getattr(posterior, "certificate", None)
    what = {
        KEPT: "predictions at the test rows" if isinstance(posterior, Answer) else "a predictive"
    }
    return what | ({CERTIFICATE: certificate} if certificate else {})


def is_finite(posterior: Posterior) -> bool:
    """Return whether all numbers of a posterior are."""
    return all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(posterior))


class Log:
    """Scores at recorded counts, by member, and the seconds of training they took.

    Of a `text` if that is not empty.
    """

    def __init__(self, text: str = "") -> None:
        self.seconds, members = json.loads(text) if text else (0.0, {})
        self._found: dict[int, dict[tuple[str, int, str], float]] = {}
        for member, readings in members.items():
            self.add(int(member), [Reading(*reading) for reading in readings])

    @property
    def text(self) -> str:
        """JSON of all there is."""
        return json.dumps(
            [self.seconds, {member: self.readings(member) for member in self._found}]
        )

    def add(self, member: int, readings: Iterable[Reading]) -> None:
        """Take scores of a member.

        One that is there already, from before an interruption, is replaced.
        """
        self._found.setdefault(member, {}).update(
            {reading[:3]: reading.value for reading in readings}
        )

    def readings(self, member: int) -> tuple[Reading, ...]:
        """List the scores of a member, in the order in which they came."""
        return tuple(Reading(*key, value) for key, value in self._found.get(member, {}).items())


class Stopwatch:
    """Tells seconds as a context manager; within it, compilations pause the clock.

    A program is compiled once in a process, for whichever fits come first, and is no part of what
    these take.
    """

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


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error is that of a full disk, which safetensors tell of in words only."""
    return getattr(error, "errno", None) == errno.ENOSPC or f"(os error {errno.ENOSPC})" in str(
        error
    )


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Hold a block to its limits.

    `OverLimit` when its time is over, between two steps of Python; only in the main thread, where
    alarms are heard. What asks for more memory than the process may have raises what its library
    does.
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
