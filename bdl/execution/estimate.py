"""What a run is going to take: fits that are left, time, memory and disk.

Time comes from what earlier fits of a cell took, or from a few updates of it.
`bdl.plan.programs.rough_seconds` carries it over to other numbers of updates and to groups of
other sizes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from bdl import runtime
from bdl.plan import Cell
from bdl.plan.initial_check import ROW_BYTES, memory, posterior_size
from bdl.plan.programs import (
    compiles,
    fits,
    rough_seconds,
    scoring_seconds,
    side_by_side,
    updates_of,
    width,
)
from bdl.store import STAGES, CellKey, Stage
from bdl.store.store import Store
from bdl.training.programs import COMPILATION

Basis = Literal[
    "the same cells", "the same cells in other or published runs", "timed updates", "nothing"
]
"""What the time of a stage of a cell rests on; it is unknown if that is nothing."""


class Measured(NamedTuple):
    """What a fit took."""

    cell: CellKey
    stage: Stage
    seconds: float
    updates: float
    """0 where it was not counted."""
    width: int
    """Fits of its group."""
    device: str
    compiled: bool
    basis: Basis
    """What an estimate rests on that rests on it."""


class Left(NamedTuple):
    """What a cell still needs."""

    cell: Cell
    splits: int
    search: int
    """Fits of the search that are left."""
    search_done: int
    final_done: int

    def fits(self, stage: Stage) -> int:
        """Count the fits of a stage that are left; a split has one final fit."""
        return self.splits if stage == "final" else self.search

    def slot_batches(self, stage: Stage) -> int:
        """Count the slot batches that the splits take, side by side as far as they can be."""
        return -(-self.splits // side_by_side(self.cell, stage))

    def trained(self, stage: Stage) -> float:
        """Count the fits of a stage that train, those that fill up slot batches among them."""
        if self.cell.settings.training is None:
            return self.fits(stage)
        return (
            self.fits(stage)
            * self.slot_batches(stage)
            * side_by_side(self.cell, stage)
            / self.splits
        )


@dataclass(frozen=True)
class Estimate:
    """What a run is going to take."""

    left: tuple[Left, ...]
    """Fits, cell by cell."""
    seconds: float
    """Wall time, without that of fits that rest on nothing."""
    memory: int
    """Bytes, at the peak."""
    disk: int
    """Bytes, in the end."""
    basis: Counter[Basis]
    """How many fits rest on what."""
    jobs: int
    """Processes."""

    def count(self, stage: Stage) -> int:
        """Count the fits of a stage that are left."""
        return sum(left.fits(stage) for left in self.left)

    def done(self, stage: Stage) -> int:
        """Count the fits of a stage that are there already."""
        return sum(left.final_done if stage == "final" else left.search_done for left in self.left)


def left_of(cell: Cell, store: Store, elsewhere: Collection[int] = ()) -> Left:
    """Count what a cell still needs, but for what the store has and splits that the run copies from `elsewhere`."""
    done = {row.split for row in store.rows("final", cell.key)} | set(elsewhere)
    todo = {split for split in cell.splits if split not in done}
    searched = Counter(row.split for row in store.rows("search", cell.key))
    per_split = fits(cell, "search")
    search = sum(per_split - searched[split] for split in todo)
    return Left(
        cell,
        len(todo),
        search,
        per_split * len(cell.splits) - search,
        len(cell.splits) - len(todo),
    )


def estimate(left: Sequence[Left], jobs: int, measured: Iterable[Measured]) -> Estimate:
    """Estimate what is left of a run by so many processes.

    What was measured of earlier fits and of timed updates counts, but for that on other devices.
    """
    cells = {own.cell.key: own.cell for own in left}
    rates = _rates(cells, measured)
    basis: Counter[Basis] = Counter()
    total = longest = 0.0
    compiled = set()
    for own in left:
        chain = 0.0
        for stage in STAGES:
            if count := own.fits(stage):
                seconds, why = _stage_seconds(own, stage, rates)
                basis[why] += count
                if compiles(own.cell, stage) and why != "the same cells":
                    compiled.add((own.cell.settings.method.build(), own.cell.problem, stage))
                total += seconds
                chain += seconds / own.slot_batches(stage)
        longest = max(longest, chain)
    total += COMPILATION * len(compiled)
    at_once = 1 if jobs == 1 else min(jobs, runtime.available_cores())
    plan = [(own.cell, own.splits) for own in left if own.splits]
    disk = sum(
        own.splits * posterior_size(own.cell) + (own.splits + own.search) * ROW_BYTES
        for own in left
    )
    return Estimate(
        tuple(left), max(total / at_once, longest), memory(plan, jobs), disk, basis, jobs
    )


def _rates(
    cells: Mapping[CellKey, Cell], measured: Iterable[Measured]
) -> dict[tuple[Basis, CellKey, Stage], float]:
    """Compute how far rough seconds are off, for a stage of a cell by what was measured."""
    alike: Counter[Measured] = Counter()
    lasted: dict[Measured, float] = {}
    for one in measured:  # thousands of fits, of a few kinds
        kind = one._replace(seconds=0.0)
        alike[kind] += 1
        lasted[kind] = lasted.get(kind, 0.0) + one.seconds
    sums: dict[tuple[Basis, CellKey, Stage], list[float]] = {}
    for kind, count in alike.items():
        cell = cells.get(kind.cell)
        if cell and cell.device == kind.device:
            rough = rough_seconds(
                cell, kind.updates or updates_of(cell, kind.stage), kind.width, kind.compiled
            )
            pair = sums.setdefault((kind.basis, kind.cell, kind.stage), [0.0, 0.0])
            pair[0] += lasted[kind]
            pair[1] += count * rough
    return {key: seconds / rough for key, (seconds, rough) in sums.items()}


def _stage_seconds(
    own: Left, stage: Stage, rates: Mapping[tuple[Basis, CellKey, Stage], float]
) -> tuple[float, Basis]:
    """Estimate the time of what is left of a stage, in one process, and say what that rests on."""
    cell = own.cell
    per_fit = rough_seconds(
        cell, updates_of(cell, stage), width(cell, stage), compiles(cell, stage)
    )
    for basis in get_args(Basis):
        rate = rates.get((basis, cell.key, "final" if basis == "timed updates" else stage))
        if rate is not None:
            # rows of the search have their scores in their seconds
            untimed = stage == "final" or basis == "timed updates"
            scores = own.fits(stage) * scoring_seconds(cell, stage) if untimed else 0.0
            return own.trained(stage) * per_fit * rate + scores, basis
    return 0.0, "nothing"
