"""Records of a group of fits: how they are made, their curves and their seconds of training."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from bdl.methods.guest import Guest
from bdl.plan.task import Task
from bdl.posteriors.base import Posterior
from bdl.posteriors.predictive import Answer, is_predictive
from bdl.records.row import CERTIFICATE_DETAIL, KEPT_DETAIL, CurvePoint
from bdl.training.compiler import CompilationListener


def describe_fits(task: Task, width: int, compile: bool) -> dict[str, Any]:
    """Describe how fits are made.

    That is how many side by side, on which device, and with which outside files and guests'
    packages.
    """
    details: dict[str, Any] = {"width": width, "device": task.device, "compiled": compile}
    method = task.settings.method.build()
    if isinstance(method, Guest) and (packages := method.packages):
        details["packages"] = packages
    if files := task.recorded_files:
        details["files"] = files
    return details


def posterior_details(posterior: Posterior) -> dict[str, str]:
    """Describe a fit that is no distribution of parameters, with its certificate if it has one."""
    if not is_predictive(posterior):
        return {}
    # an answer is kept for the test rows alone; a predictive can be asked about other ones
    is_answer = isinstance(posterior, Answer)
    details = {KEPT_DETAIL: "predictions at the test rows" if is_answer else "a predictive"}
    certificate: str | None = getattr(posterior, "certificate", None)
    if certificate:
        details[CERTIFICATE_DETAIL] = certificate
    return details


class CurveLog:
    """Scores at recorded counts, by member.

    `text` is that of an earlier log, or empty.
    """

    def __init__(self, text: str = "") -> None:
        self.seconds, members = json.loads(text) if text else (0.0, {})
        """Seconds of training that the fits had taken when the earlier log was written."""
        self._scores: dict[int, dict[tuple[str, int, str], float]] = {}
        for member, readings in members.items():
            self.add(int(member), [CurvePoint(*reading) for reading in readings])

    def write(self, seconds: float) -> str:
        """Write the log, and the seconds of training so far, as JSON."""
        return json.dumps([seconds, {member: self.readings(member) for member in self._scores}])

    def add(self, member: int, readings: Iterable[CurvePoint]) -> None:
        """Add scores of a member.

        They replace those at the same counts, from before an interruption.
        """
        # by the count, not appended: after an interruption fits go on from a checkpoint, and
        # evaluate once more what came after it
        self._scores.setdefault(member, {}).update(
            {reading[:3]: reading.value for reading in readings}
        )

    def readings(self, member: int) -> tuple[CurvePoint, ...]:
        """List the scores of a member, in the order in which they came."""
        return tuple(
            CurvePoint(*key, value) for key, value in self._scores.get(member, {}).items()
        )


class Stopwatch:
    """A context manager that counts the seconds of its block, but for compilations and pauses.

    A program is compiled once in a process, for whichever fits come first, and is no part of the
    time of these. `seconds` are those of before an interruption.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._counted, self._since = seconds, 0.0
        # stopped until the block begins; a compilation may fall into a pause
        self._pauses = 1
        self._listener = CompilationListener(self.pause, self.resume)

    def __enter__(self) -> Self:
        """Begin to count, and to listen to the compiler."""
        self._listener.__enter__()
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop both."""
        self.pause()
        self._listener.__exit__()

    @property
    def seconds(self) -> float:
        """Seconds until now."""
        running = 0.0 if self._pauses else time.perf_counter() - self._since
        return self._counted + running

    def pause(self, *_: object) -> None:
        """Stop to count, until as many calls of `resume` follow as of this."""
        self._counted = self.seconds
        self._pauses += 1

    def resume(self, *_: object) -> None:
        """Go on."""
        self._pauses -= 1
        if not self._pauses:
            self._since = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the seconds of a block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()
