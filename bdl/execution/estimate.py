"""What a run is going to take: fits that are left, time, memory and disk.

Time comes from what earlier fits took. The planner's model of an update carries it over to other numbers of updates
and to groups of other sizes; alone, where nothing was measured, it is the estimate.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bdl.plan import machine
from bdl.plan.cell import Cell
from bdl.plan.cost import compiles, fits, scoring_seconds, updates_of, width
from bdl.plan.effort import COMPILATION, effort
from bdl.plan.sizes import ROW_BYTES, memory, posterior_size
from bdl.plan.slot_batches import side_by_side
from bdl.store.rows import CellKey, Stage
from bdl.store.store import Store

_STAGES: tuple[Stage, ...] = ("search", "final")

Basis = Literal[
    "the same cells",
    "the same cells in other or published runs",
    "other cells",
    "the planner's model of an update",
]
"""What the time of a stage of a cell rests on."""
_PLANNER: Basis = "the planner's model of an update"


class Measured(NamedTuple):
    """What a fit of an earlier run took."""

    cell: CellKey
    stage: Stage
    seconds: float
    updates: float
    """0 where it was not counted."""
    width: int
    """Fits of its group."""
    own: bool = True
    """Whether it is of the run that goes on, rather than of another one of the benchmark."""


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
        return self.fits(stage) * self.slot_batches(stage) * side_by_side(self.cell, stage) / self.splits


@dataclass(frozen=True)
class Estimate:
    """What a run is going to take.

    Parameters
    ----------
    left
        Fits, cell by cell.
    seconds
        Wall time.
    memory, disk
        Bytes, at the peak and in the end.
    basis
        How many fits rest on what.
    jobs
        Processes.
    """

    left: tuple[Left, ...]
    seconds: float
    memory: int
    disk: int
    basis: Counter[Basis]
    jobs: int

    def count(self, stage: Stage) -> int:
        """Count the fits of a stage that are left."""
        return sum(left.fits(stage) for left in self.left)

    def done(self, stage: Stage) -> int:
        """Count the fits of a stage that are there already."""
        return sum(left.final_done if stage == "final" else left.search_done for left in self.left)


def left_of(cell: Cell, store: Store, elsewhere: Collection[int] = ()) -> Left:
    """Count what a cell still needs.

    Parameters
    ----------
    cell
        Of the plan.
    store
        What it has is left out.
    elsewhere
        Splits that the run copies from others, or imports.
    """
    done = {row.split for row in store.rows("final", cell.key)} | set(elsewhere)
    todo = {split for split in cell.splits if split not in done}
    searched = Counter(row.split for row in store.rows("search", cell.key))
    per_split = fits(cell, "search")
    search = sum(per_split - searched[split] for split in todo)
    return Left(cell, len(todo), search, per_split * len(cell.splits) - search, len(cell.splits) - len(todo))


def estimate(left: Sequence[Left], jobs: int, measured: Iterable[Measured]) -> Estimate:
    """Estimate what is left of a run.

    Parameters
    ----------
    left
        What each cell still needs.
    jobs
        Processes that will work.
    measured
        What earlier fits of the benchmark took; those of cells that are not in the plan are not heeded.
    """
    cells = {own.cell.key: own.cell for own in left}
    rates = _rates(cells, measured)
    basis: Counter[Basis] = Counter()
    total = longest = 0.0
    compiled = set()
    for own in left:
        chain = 0.0
        for stage in _STAGES:
            if count := own.fits(stage):
                seconds, why = _stage_seconds(own, stage, rates)
                basis[why] += count
                if why == _PLANNER and compiles(own.cell, stage):
                    compiled.add((own.cell.settings.method.build(), own.cell.problem, stage))
                total += seconds
                chain += seconds / own.slot_batches(stage)
        longest = max(longest, chain)
    total += COMPILATION * len(compiled)
    at_once = 1 if jobs == 1 else min(jobs, machine.cores())
    plan = [(own.cell, own.splits) for own in left if own.splits]
    disk = sum(own.splits * posterior_size(own.cell) + (own.splits + own.search) * ROW_BYTES for own in left)
    return Estimate(tuple(left), max(total / at_once, longest), memory(plan, jobs), disk, basis, jobs)


def _rates(cells: Mapping[CellKey, Cell], measured: Iterable[Measured]) -> dict[tuple[object, ...], float]:
    """Find how far the model is off: for a stage of a cell in this and in other runs, for an entry, and over all."""
    entries = {cell.entry: cell for cell in cells.values()}
    alike: Counter[Measured] = Counter()
    lasted: dict[Measured, float] = {}
    for one in measured:  # thousands of fits, of a few kinds
        kind = one._replace(seconds=0.0)
        alike[kind] += 1
        lasted[kind] = lasted.get(kind, 0.0) + one.seconds
    sums: dict[tuple[object, ...], list[float]] = {}
    for kind, count in alike.items():
        cell = cells.get(kind.cell)
        updates = kind.updates or (updates_of(cell, kind.stage) if cell else 0)
        like = cell or entries.get(kind.cell[1])
        if like is None or not (updates or cell):
            continue
        model = count * effort(like).seconds(updates, kind.width, compiles(like, kind.stage))
        for key in ((kind.own, kind.cell, kind.stage), (like.entry,), ()):
            pair = sums.setdefault(key, [0.0, 0.0])
            pair[0] += lasted[kind]
            pair[1] += model
    return {key: seconds / model for key, (seconds, model) in sums.items()}


def _stage_seconds(own: Left, stage: Stage, rates: Mapping[tuple[object, ...], float]) -> tuple[float, Basis]:
    """Estimate the time of what is left of a stage, in one process, and say what that rests on."""
    cell = own.cell
    per_fit = effort(cell).seconds(updates_of(cell, stage), width(cell, stage), compiles(cell, stage))
    model = own.trained(stage) * per_fit
    scores = own.fits(stage) * scoring_seconds(cell, stage)
    untimed = scores if stage == "final" else 0.0  # rows of the search have their scores in their seconds
    ways: tuple[tuple[tuple[object, ...], Basis], ...] = (
        ((True, cell.key, stage), "the same cells"),
        ((False, cell.key, stage), "the same cells in other or published runs"),
        ((cell.entry,), "other cells"),
        ((), "other cells"),
    )
    for key, basis in ways:
        if key in rates:
            return model * rates[key] + untimed, basis
    return scores + model, _PLANNER
