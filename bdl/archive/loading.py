"""Load the results of an earlier run, and what a run asks of earlier results before it starts."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from bdl.archive.folder import STORE, ResultsFolder, stored_cells
from bdl.archive.frames import TRIALS, cell_keys
from bdl.archive.protocol import departures, remark
from bdl.errors import InputError
from bdl.execution.estimate import Measured
from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of
from bdl.spec import Benchmark, Variant, list_benchmarks, load_variant
from bdl.store.folder import folder, siblings

NO_VERDICTS = "The printed values are of the protocol: verdicts are withheld."

_BELOW = ("", "*/", "variants/*/", "*/variants/*/")
"""Where a benchmark's folder has results: the protocol, its profiles, and the variants of both."""


class LoadedResults(NamedTuple):
    """Rows of a run, and what they are."""

    place: Path
    """Folder that they are in."""
    made: Variant
    """What they were made with."""
    rows: pd.DataFrame
    """Final rows."""
    points: pd.DataFrame
    """Scores at recorded counts."""
    remark: str
    """How they differ from the protocol; empty if they do not."""
    protocol: bool
    """Whether each of them was made as the protocol says, though some may be missing."""

    @classmethod
    def of(
        cls, place: Path, made: Variant, now: Benchmark, rows: pd.DataFrame, points: pd.DataFrame, known: bool = True
    ) -> "LoadedResults":
        """Compare rows with the protocol.

        Parameters
        ----------
        place
            Folder of the rows.
        made, now
            As `remark` takes them.
        rows, points
            Final rows, and scores at recorded counts.
        known
            Whether the rows say what they were made with.
        """
        protocol = made.benchmark.profile == "paper" and not departures(made, now)
        return cls(place, made, rows, points, remark(made, now, rows if known else None), protocol)

    @property
    def banner(self) -> str:
        """Text above a table: the remark, and why there are no verdicts."""
        return self.remark if self.protocol or not self.benchmark.papers else f"{self.remark} {NO_VERDICTS}"

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark that they were made with."""
        return self.made.benchmark


def load_results(asked: Variant, results: Path) -> LoadedResults:
    """Load the results of an earlier run: the published rows, otherwise those of the store.

    Parameters
    ----------
    asked
        The benchmark as its file is now, with the overrides and the part of the run. If no run was narrowed to these
        data sets and entries, they are selected from the rows of the whole.
    results
        Folder of results.

    Raises
    ------
    InputError
        If there are none, or a file is damaged.
    """
    with open_results(asked, results) as here:
        return load(here)


def load(here: ResultsFolder) -> LoadedResults:
    """Load the results of a folder that has rows; errors as in `load_results`."""
    known = here.spec is not None
    return LoadedResults.of(here.place, here.made, here.asked.benchmark, here.finals, here.points, known)


def open_results(asked: Variant, results: Path, *, latest: bool = False) -> ResultsFolder:
    """Open the folder of what is asked for, or that of the whole if no run was narrowed to it; as `load_results`.

    Splits are not selected from the whole: means and standard errors of some of them are those of another run.
    """
    place, whole = folder(results, asked), folder(results, asked.whole)
    for path in (place, whole) if asked.narrowed and not asked.splits else (place,):
        here = ResultsFolder(path, asked, latest=latest)
        if here.has_rows:
            return here
        here.close()
    start = asked.command("run", results)
    raise InputError(f"no results in {place}; start with: {start}{_others(place, asked.source, results)}")


def timings(asked: Variant, results: Path) -> list[Measured]:
    """Return what earlier fits of a benchmark took, whatever profile, part or overrides they had.

    Parameters
    ----------
    asked
        What is to be run; the fits of its own folder are told apart from those of others.
    results
        Folder of results. What cannot be read is left out.
    """
    own, base = folder(results, asked), results / asked.benchmark.name
    found: list[Measured] = []
    places = {path.parent for below in _BELOW for name in (STORE, TRIALS) for path in base.glob(below + name)}
    for place in sorted(places):
        with suppress(InputError), ResultsFolder(place, asked.whole, latest=True) as here:
            found += here.timings(place == own)
    return found


def check_overwrite(asked: Variant, cells: Sequence[Cell], results: Path) -> None:
    """Refuse a run after which published rows would be lost that no store holds, or would be those of another spec.

    Parameters
    ----------
    asked
        What is to be run.
    cells
        Its plan.
    results
        Folder of results.

    Raises
    ------
    InputError
        If they would, or the published rows cannot be read.
    """
    place, name = folder(results, asked), asked.benchmark.name
    with ResultsFolder(place, asked) as here:
        if not here.published:
            return
        kept = set(zip(cell_keys(here.finals), here.finals.split.astype(int), strict=True))
        stored = stored_cells(asked.benchmark, here.store) if here.store else []
        kept -= {(cell.key, split) for cell in stored for split in cell.splits}
        known = here.spec is not None or name not in dict(list_benchmarks())
        made = here.made if known else load_variant(name, asked.benchmark.profile)
    ours = {cell.key: cell for cell in cells}
    elsewhere = "give the benchmark a name of its own, or choose another --results"
    for cell in cells_of(made.benchmark):
        own = ours.get(cell.key)
        if own and any(key == cell.key for key, _ in kept) and _fit_part(own) != _fit_part(cell):
            raise InputError(f"{place} has published rows of {cell.label} of another spec, and no store; {elsewhere}")
    lost = kept - {(cell.key, split) for cell in cells for split in cell.splits}
    if lost:
        raise InputError(
            f"{place} has {len(lost)} published final fits that this benchmark lacks, and no store of them; {elsewhere}"
        )


def _fit_part(cell: Cell) -> object:
    return cell.benchmark.fit_part(cell.dataset, cell.entry)


def _others(place: Path, source: str, results: Path) -> str:
    """Name other published results of the same benchmark, if there are any."""
    for path in siblings(place):
        with ResultsFolder(path) as other:
            if other.published and other.spec:
                return f" (there is: {replace(other.spec, source=source).command('table', results)})"
    return ""
