"""Slots: a trial trains at a fixed place in a batch of a fixed width, whoever trains beside it.

Kernels round differently in batches of another width, and at another place of a batch; what stands
at the other places does not matter. Places at which nothing is fitted are filled with copies,
which are thrown away. On a CPU there are two places at least, since the sums of a single trial are
split among threads, and rounded accordingly. There is one for fits so large that a copy would cost
more than that is worth, on a GPU, and for a trial that belongs to no batch: it trains on one
thread, or if it is large on all.
"""

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import NamedTuple, Self

from bdl.training.schedule import Schedule

# Measured on two cores (scripts/bench_training.py): up to here a wider slot batch is faster, and
# little is lost beyond.
NUMBERS = {"cpu": 400_000, "cuda": 50_000_000}
"""Numbers of an update of a slot batch, if there are enough splits: parameters, normals or
activations.
"""


class Part(NamedTuple):
    """Places with the same minibatches an epoch, which train as one program."""

    number: int  # Among the parts of the slot batch, whether or not they are fitted
    standing: list[int]  # The trial that stands at each place
    places: list[
        int
    ]  # Where those stand that are fitted; at the other places are copies of the first of them
    fitted: tuple[int, ...]  # The trials that are fitted, ascending


@dataclass(frozen=True)
class SlotBatch:
    """The places of trials that train side by side."""

    rows: Sequence[int]
    """For each place, the training rows of the trial that it is for, whether that one is fitted
    or not.
    """
    places: Sequence[int]  # The place of each trial that is fitted
    least: int = 2
    """Places of a part at the least; at a single one on a CPU rounding depends on the number of
    threads.
    """

    @classmethod
    def of(cls, rows: Sequence[Sized]) -> Self:
        """Assign trials of these training rows places in their order; a single one has no copy."""
        return cls([len(own) for own in rows], range(len(rows)), 1 if len(rows) == 1 else 2)

    def parts(self, schedule: Schedule) -> Iterator[Part]:
        """Part the places by their minibatches an epoch, and by their rows too where incomplete ones are kept.

        Parts in which nothing is fitted are left out.
        """
        parts: dict[int, list[int]] = {}
        for place, rows in enumerate(self.rows):
            parts.setdefault(
                rows if schedule.incomplete == "keep" else schedule.batches(rows), []
            ).append(place)
        trials = {place: trial for trial, place in enumerate(self.places)}
        for number, places in enumerate(parts.values()):
            taken = dict(
                sorted((trials[place], at) for at, place in enumerate(places) if place in trials)
            )
            if taken:
                standing = [min(taken)] * max(self.least, len(places))
                for trial, at in taken.items():
                    standing[at] = trial
                yield Part(number, standing, list(taken.values()), tuple(taken))
