"""The engine: trains R trials as one program, by `vmap` of a method's single-model step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from torch.utils._pytree import tree_map

from bdl.errors import InputError
from bdl.methods.base import Method
from bdl.posteriors.base import Posterior
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import Looks, Progress, Snapshot, silent
from bdl.training.memory import keep_freed_memory
from bdl.training.schedule import Schedule
from bdl.training.together import Together
from bdl.training.trials import Trials

if TYPE_CHECKING:
    from bdl.training.program import Program


@dataclass(frozen=True, eq=False)
class MinibatchFitting:
    """Train every trial; a trial's result does not depend on its companions.

    Parameters
    ----------
    program
        What is trained, and on what.
    trials
        Rows, scalings, hyper-parameters and identities.
    compile
        Use `torch.compile`; `bdl.training.compiling.worthwhile` says when it pays.

    Notes
    -----
    A diverged trial has non-finite numbers in its state and leaves the others alone.
    """

    program: "Program"
    trials: Trials
    compile: bool = False

    def run(
        self, looks: Looks | None = None, progress: Progress = silent, checkpoint: Checkpoint | None = None
    ) -> Iterator[Snapshot]:
        """Train trials of as many minibatches together, and those of each other number after them.

        See `bdl.training.fitting.Fitting.run`. A look after an epoch finds the updates that are complete by then.

        Raises
        ------
        InputError
            If looks count observations, or the schedule does not suit the method.
        """
        if looks is not None and looks.unit == "observations":
            raise InputError("looks: observations are those of streams; count updates or epochs")
        schedule, method = cast(Schedule, self.program.schedule), cast(Method, self.program.method)
        schedule.check(method)
        if self.program.pool.device.type == "cpu":
            keep_freed_memory()
        for part, index in enumerate(self._alike(schedule)):
            together = Together(self.program, self.trials.take(index), self.compile, part, tuple(index))
            yield from together.run(looks, progress, checkpoint)

    def posterior(self, snapshot: Snapshot, position: int) -> Posterior:
        """Give the posterior of the trial at a position of the snapshot's `index`."""
        return self.program.posterior(tree_map(lambda leaf: leaf[position], snapshot.state))

    def _alike(self, schedule: Schedule) -> list[list[int]]:
        """Put together the trials that have the same number of minibatches an epoch, and those of the same size."""
        groups: dict[int, list[int]] = {}
        for index, rows in enumerate(self.trials.rows):
            alike = len(rows) if schedule.incomplete == "keep" else schedule.batches(len(rows))
            groups.setdefault(alike, []).append(index)
        return list(groups.values())
