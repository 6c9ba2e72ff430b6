"""What is said before a run: how much it is, how long it takes on this machine, and how to narrow it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bdl import runtime
from bdl.archive.loading import timings
from bdl.data import status
from bdl.execution.estimate import Estimate, estimate, left_of
from bdl.execution.rehearsal import time_updates
from bdl.plan import Cell
from bdl.plan.initial_check import most_jobs
from bdl.plan.planning import first_of
from bdl.plan.truths import sampled
from bdl.references.base import state
from bdl.runtime import amount
from bdl.spec import Variant, list_profiles
from bdl.spec.variant import there
from bdl.store import CellKey
from bdl.store.store import Store

SHORT, LONG = 60.0, 30 * 60.0
"""Seconds; shorter runs need no word, longer ones one of how to narrow them."""
_TIMED = 2.0
"""Seconds that are spent on updates of cells of which nothing is known."""

_COLUMNS = 12
"""Columns of a data set that are told of."""


def forecast(
    asked: Variant,
    cells: Sequence[Cell],
    store: Store,
    results: Path,
    jobs: int,
    elsewhere: Mapping[CellKey, Collection[int]] | None = None,
) -> Estimate:
    """Estimate what a run of a plan is going to take.

    What the store has is left out, and so are the splits of a cell that are copied from
    `elsewhere`, or imported. Runs of the benchmark in the folder of results tell what fits take.
    Processes (`jobs`) are, for 0, as many as memory and cores allow, but one where that is done
    within a minute.
    """
    left = [left_of(cell, store, (elsewhere or {}).get(cell.key, ())) for cell in cells]
    known = timings(asked, results) if any(own.splits for own in left) else []
    known += time_updates([own for own in left if own.splits], known, _TIMED)
    if jobs:
        return estimate(left, jobs, known)
    alone = estimate(left, 1, known)
    many = most_jobs([(own.cell, own.splits) for own in left])
    return alone if alone.seconds < SHORT or many == 1 else estimate(left, many, known)


def not_here(asked: Variant) -> list[str]:
    """Name the data sets whose files are not on this machine, and how to get them.

    Nothing if all are here.
    """
    missing: dict[str, str] = {}
    gaps = any(asked.chosen.at(point).preparation.split == "gap" for point in asked.chosen.points)
    for label in asked.chosen.datasets:
        states = [state for _, state in status(label, gaps=gaps)]
        if count := states.count("missing"):
            missing[label.name] = f"{label} ({count} of {len(states)} files)"
    if not missing:
        return []
    counts = [count for _, count in first_of(asked.chosen, asked.numbers)]
    return [
        f"{counted(len(counts), 'cell')}, final fits: {sum(counts):,}",
        f"not on this machine, and needed to estimate how long it takes: {', '.join(missing.values())}",
        f"download {'them' if len(missing) > 1 else 'it'} with: bdl-bench data fetch {' '.join(missing)} "
        "(run without --dry-run does so by itself)",
    ]


def references(cells: Sequence[Cell]) -> list[str]:
    """Describe how many references the run samples first, if there are any."""
    count = sum(state(reference.recipe) == "missing" for reference in sampled(cells))
    return [f"references to sample first, which is not in the time: {count}"] if count else []


def read(cells: Sequence[Cell]) -> list[str]:
    """Return how the columns of files of one's own were read, a line a data set: what is no number comes first."""
    told = dict[str, None]()
    for cell in cells:
        if not cell.settings.streams and cell.data.read_as:
            target, *others = cell.data.read_as
            others.sort(key=lambda column: column.endswith(": numbers"))
            more = [f"and {len(others) - _COLUMNS} more"] if len(others) > _COLUMNS else []
            told[
                f"{cell.dataset}: {len(cell.data.y):,} rows; {'; '.join([target, *others[:_COLUMNS], *more])}"
            ] = None
    return list(told)


def lines(found: Estimate, asked: Variant, place: Path) -> list[str]:
    """Describe an estimate: fits, time and what it rests on, memory and disk, and how to narrow what is long.

    The disk is that of the folder of results.
    """
    searched, final = found.count("search"), found.count("final")
    there = found.done("search"), found.done("final")
    done = f"; done already and left out: {there[0]:,} and {there[1]:,}" if any(there) else ""
    told = [
        f"{counted(len(found.left), 'cell')}, fits: {searched:,} of the search and {final:,} final{done}"
    ]
    if not final:
        return [*told, "everything is done: there is nothing left to train"]
    told += [
        f"time: {_time(found)}",
        f"memory: about {amount(found.memory)} at the peak, of {amount(runtime.available_memory())} available; "
        f"disk: about {amount(found.disk)}, of {amount(runtime.free_disk(place))} free",
    ]
    return told + (
        [f"shorter: {way}"] if found.seconds > LONG and (way := narrower(asked, place)) else []
    )


def counted(number: int, what: str) -> str:
    """Write a number of things."""
    return f"{number} {what}{'s' if number > 1 else ''}"


def duration(seconds: float) -> str:
    """Write a rough time for people."""
    minutes = seconds / 60
    if minutes < 1:
        return "less than a minute"
    if minutes < 120:
        return f"about {minutes:.0f} minutes"
    hours = minutes / 60
    return f"about {hours:.0f} hours" if hours < 72 else f"about {hours / 24:.0f} days"


def narrower(asked: Variant, results: Path) -> str:
    """Name the commands that do a smaller part; empty if it is the smallest."""
    chosen, source = asked.chosen, asked.source or asked.benchmark.name
    ways = []
    if asked.benchmark.profile == "paper" and "quick" in list_profiles(source):
        ways.append(f"bdl-bench run {source} --profile quick{there(results)}")
    if len(chosen.datasets) > 1:
        ways.append(replace(asked, datasets=(str(chosen.datasets[0]),)).command("run", results))
    if len(asked.numbers) > 1:
        ways.append(replace(asked, splits=(asked.numbers[0],)).command("run", results))
    return ", or ".join(ways)


def _time(found: Estimate) -> str:
    """Describe the time and what it rests on: by the number of fits, most first."""
    total, unknown = sum(found.basis.values()), found.basis["nothing"]
    if unknown == total:
        return "unknown; there are no earlier fits of these cells, and their methods make no updates that can be timed"
    jobs = f"{counted(found.jobs, 'job')} on {runtime.available_cores()} cores"
    rests = [(basis, count) for basis, count in found.basis.most_common() if basis != "nothing"]
    ways = "; ".join(f"{basis} ({count / total:.0%} of the fits)" for basis, count in rests)
    beside = f"; that of the other {unknown / total:.0%} is unknown" if unknown else ""
    return f"{duration(found.seconds)} here, with {jobs}; this rests on what was measured of {ways}{beside}"
