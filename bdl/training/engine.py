"""The engine: trains R trials as one program, by `vmap` of a method's single-model step."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from torch.utils._pytree import tree_map

from bdl.errors import InputError
from bdl.methods.base import Method
from bdl.posteriors.base import Posterior
from bdl.training.checkpoint import Checkpoint
from bdl.training.fitting import EvaluationSchedule, Progress, Snapshot, silent
from bdl.training.memory import keep_freed_memory
from bdl.training.schedule import Schedule
from bdl.training.slots import SlotBatch
from bdl.training.together import Together
from bdl.training.trials import Trials

if TYPE_CHECKING:
    from bdl.training.program import Program


@dataclass(frozen=True, eq=False)
class MinibatchFitting:
    """Train every trial; to the last bit, a trial's result depends on its slot batch, and not on its companions.

    Parameters
    ----------
    program
        What is trained, and on what.
    trials
        Rows, scalings, hyper-parameters and identities.
    compile
        Use `torch.compile`; `bdl.training.compiling.worthwhile` says when it pays.
    slot batch
        Where the trials stand among those that may train beside them; None for these trials alone, in their order.

    Notes
    -----
    A diverged trial has non-finite numbers in its state and leaves the others alone.
    """

    program: "Program"
    trials: Trials
    compile: bool = False
    slot_batch: SlotBatch | None = None

    def run(
        self,
        evaluations: EvaluationSchedule | None = None,
        progress: Progress = silent,
        checkpoint: Checkpoint | None = None,
    ) -> Iterator[Snapshot]:
        """Train trials of as many minibatches together, and those of each other number after them.

        See `bdl.training.fitting.Fitting.run`. A look after an epoch finds the updates that are complete by then.

        Raises
        ------
        InputError
            If evaluations count observations, or the schedule does not suit the method.
        """
        if evaluations is not None and evaluations.unit == "observations":
            raise InputError("evaluations: observations are those of streams; count updates or epochs")
        schedule, method = cast(Schedule, self.program.schedule), cast(Method, self.program.method)
        schedule.check(method)
        if self.program.pool.device.type == "cpu":
            keep_freed_memory()
        slot_batch = self.slot_batch or SlotBatch([len(rows) for rows in self.trials.rows], range(len(self.trials)))
        for part in slot_batch.parts(schedule):
            together = Together(self.program, self.trials.take(part.standing), self.compile, part)
            yield from together.run(evaluations, progress, checkpoint)

    def posterior(self, snapshot: Snapshot, position: int) -> Posterior:
        """Return the posterior of the trial at a position of the snapshot's `index`."""
        return self.program.posterior(tree_map(lambda leaf: leaf[position], snapshot.state))
