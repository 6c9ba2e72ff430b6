"""Batch slots: a trial trains in a fixed slot of a batch of a fixed width.

Kernels round differently in batches of another width, and in another slot of a batch; what stands
in the other slots does not matter. Slots in which nothing is fitted are filled with copies, which
are thrown away. On a CPU there are two slots at least, since the sums of a single trial are split
among threads, and rounded accordingly. There is one for fits so large that a copy would cost more
than that is worth, on a GPU, and for a trial that belongs to no batch: it trains on one thread, or
if it is large on all.
"""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import NamedTuple, Self

from bdl.training.schedule import Schedule

# Measured on two cores (scripts/bench_training.py): up to here a wider slot batch is faster, and
# little is lost beyond.
NUMBERS_PER_UPDATE = {"cpu": 400_000, "cuda": 50_000_000}
"""Numbers of an update of a slot batch, if there are enough splits.

They are parameters, normals or activations.
"""


class SlotGroup(NamedTuple):
    """Slots with the same minibatches an epoch, which train as one program."""

    number: int
    """Among the groups of the slot batch, whether or not they are fitted."""
    slot_trials: list[int]
    """The trial in each slot."""
    fitted_slots: list[int]
    """Slots of the trials that are fitted; the others hold copies of the first of them."""
    fitted_trials: tuple[int, ...]
    """The trials that are fitted, ascending."""


@dataclass(frozen=True)
class SlotBatch:
    """The slots of trials that may train in one batch."""

    row_counts: Sequence[int]
    """For each slot, the training rows of its trial, whether or not that one is fitted."""
    trial_slots: Sequence[int]
    """The slot of each trial that is fitted."""
    min_slots: int = 2
    """Slots of a group at the least.

    At a single one on a CPU rounding depends on the number of threads.
    """

    @classmethod
    def of(cls, rows: Sequence[Sized]) -> Self:
        """Assign trials of these training rows slots in their order; a single one has no copy."""
        row_counts = [len(trial_rows) for trial_rows in rows]
        return cls(row_counts, range(len(rows)), 1 if len(rows) == 1 else 2)

    def groups(self, schedule: Schedule) -> Iterator[SlotGroup]:
        """Group the slots by their minibatches an epoch.

        Where incomplete minibatches are kept, slots of a group have the same number of rows.
        Groups in which nothing is fitted are left out.
        """
        slots_by_length: dict[int, list[int]] = {}
        for slot, rows in enumerate(self.row_counts):
            length = rows if schedule.incomplete == "keep" else schedule.batches(rows)
            slots_by_length.setdefault(length, []).append(slot)
        trial_of_slot = {slot: trial for trial, slot in enumerate(self.trial_slots)}
        for number, slots in enumerate(slots_by_length.values()):
            fitted = [
                (trial_of_slot[slot], position)
                for position, slot in enumerate(slots)
                if slot in trial_of_slot
            ]
            if not fitted:
                continue
            fitted.sort()
            first_trial, _ = fitted[0]
            slot_trials = [first_trial] * max(self.min_slots, len(slots))
            for trial, position in fitted:
                slot_trials[position] = trial
            fitted_slots = [position for _, position in fitted]
            yield SlotGroup(number, slot_trials, fitted_slots, tuple(trial for trial, _ in fitted))
