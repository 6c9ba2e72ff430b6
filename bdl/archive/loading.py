"""Results of an earlier run: how they differ from the protocol, and what a run asks of them before it starts."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from bdl.archive import SHOWN, ResultsFolder, stored_cells
from bdl.archive.frames import STORE, TRIALS, cell_keys, folder, siblings
from bdl.errors import InputError
from bdl.execution.estimate import Measured
from bdl.plan import Cell
from bdl.plan.planning import cells_of
from bdl.spec import Benchmark, Variant, differences, list_benchmarks, load_benchmark, load_variant
from bdl.spec.variant import GONE, listed, plain

NO_VERDICTS = "The printed values are of the protocol: verdicts are withheld."

_BELOW = ("", "*/", "variants/*/", "*/variants/*/")
"""Where a benchmark's folder has results: the protocol, its profiles, and the variants of both."""

_LONG = 100
"""Characters of a value that are written out."""

_NAMED = 4
"""Cells that are listed by name, rather than counted."""


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
        cls,
        place: Path,
        made: Variant,
        now: Benchmark,
        rows: pd.DataFrame,
        points: pd.DataFrame,
        known: bool = True,
    ) -> "LoadedResults":
        """Compare rows with the protocol: profile, part, overrides, a file that has changed since.

        `now` is the benchmark as its file is, under the same overrides. Rows of earlier versions,
        which are not `known` to be all, may be published in part.
        """
        changed = departures(made, now)
        parts = [_profile(made)] if made.benchmark.profile != "paper" else []
        parts += [*(_gaps(made.benchmark, rows) if known and not rows.empty else ()), *changed]
        remark = f"Not the protocol: {'; '.join(parts)}." if parts else ""
        return cls(
            place, made, rows, points, remark, made.benchmark.profile == "paper" and not changed
        )

    @property
    def banner(self) -> str:
        """Text above a table: the remark, and why there are no verdicts."""
        return (
            self.remark
            if self.protocol or not self.benchmark.papers
            else f"{self.remark} {NO_VERDICTS}"
        )

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark that they were made with."""
        return self.made.benchmark


def load_results(asked: Variant, results: Path) -> LoadedResults:
    """Load the published rows of an earlier run, otherwise those of the store.

    `InputError` if none, or if damaged.

    The benchmark is as its file is now, with the overrides and the part of the run. If no run was
    narrowed to these data sets and entries, they are selected from the rows of the whole.
    """
    with open_results(asked, results) as here:
        return load(here)


def load(here: ResultsFolder) -> LoadedResults:
    """Load the results of a folder that has rows; errors as in `load_results`."""
    known = here.spec is not None
    return LoadedResults.of(
        here.place, here.made, here.asked.benchmark, here.finals, here.points, known
    )


def open_results(asked: Variant, results: Path, *, latest: bool = False) -> ResultsFolder:
    """Open the folder of what is asked for, or that of the whole if no run was narrowed to it.

    As `load_results`.

    Splits are not selected from the whole: means and standard errors of some of them are those of
    another run.
    """
    place, whole = folder(results, asked), folder(results, asked.whole)
    for path in (place, whole) if asked.narrowed and not asked.splits else (place,):
        here = ResultsFolder(path, asked, latest=latest)
        if here.has_rows:
            return here
        here.close()
    start = asked.command("run", results)
    raise InputError(
        f"no results in {place}; start with: {start}{_others(place, asked.source, results)}"
    )


def timings(asked: Variant, results: Path) -> list[Measured]:
    """Return what earlier fits of a benchmark took, whatever profile, part or overrides they had.

    Those of the folder of what is asked for are told apart from others. What cannot be read is
    left out.
    """
    own, base = folder(results, asked), results / asked.benchmark.name
    found: list[Measured] = []
    places = {
        path.parent
        for below in _BELOW
        for name in (STORE, TRIALS)
        for path in base.glob(below + name)
    }
    for place in sorted(places):
        with suppress(InputError), ResultsFolder(place, asked.whole, latest=True) as here:
            found += here.timings(place == own)
    return found


def check_overwrite(asked: Variant, cells: Sequence[Cell], results: Path) -> None:
    """Refuse a run after which published rows would be lost that no store holds, or would be those of another spec."""
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
        if own and any(key == cell.key for key, _ in kept):
            today, then = (one.benchmark.fit_part(one.dataset, one.entry) for one in (own, cell))
            if today != then:
                what = f"{place} has published rows of {cell.label} of another spec, and no store"
                raise InputError(f"{what}; {elsewhere}")
    lost = kept - {(cell.key, split) for cell in cells for split in cell.splits}
    if lost:
        raise InputError(
            f"{place} has {len(lost)} published final fits that this benchmark lacks, and no store of them; {elsewhere}"
        )


def _others(place: Path, source: str, results: Path) -> str:
    for path in siblings(place):
        with ResultsFolder(path) as other:
            if other.published and other.spec:
                return (
                    f" (there is: {replace(other.spec, source=source).command('table', results)})"
                )
    return ""


def departures(made: Variant, now: Benchmark) -> list[str]:
    """List the overrides, and the fields that the file has changed since."""
    parts = [
        f"{path}={brief(value)}" for path, value in made.changes.items() if _concerns(path, made)
    ]
    both = (
        now.select(),
        made.benchmark.select(),
    )  # without entries that a profile runs on no data set
    since = {path: old for path, (_, old) in differences(*both).items() if path not in SHOWN}
    for path, old in since.items():
        if _concerns(path, made):
            parts.append(
                f"{path} has come into the file since"
                if old == GONE
                else f"the file had {path}={brief(old)} then"
            )
    return parts


def _concerns(path: str, made: Variant) -> bool:
    """Return whether a field is one of the part that was run, rather than of an entry or a data set that was not."""
    field, _, rest = path.partition(".")
    kept = {"entries": made.entries, "by_dataset": made.datasets}.get(field, ())
    return not kept or rest.partition(".")[0] in kept


def _profile(made: Variant) -> str:
    """Name a profile, and the fields that it changes with their values there, one time for all entries."""
    name = made.benchmark.profile
    file = load_benchmark(made.source or made.benchmark.name, name)
    values = dict[str, dict[str, None]]()
    for path, (own, _) in differences(
        file, load_benchmark(made.source or made.benchmark.name)
    ).items():
        if path not in (*SHOWN, "profile") and _concerns(path, made):
            inner = re.sub(r"^(entries|by_dataset)\.[^.]+\.", "", path)
            values.setdefault(inner, {})[brief(own)] = None
    changed = ", ".join(f"{inner} {' or '.join(own)}" for inner, own in values.items())
    return f"profile {name} ({changed})" if changed else f"profile {name}"


def brief(value: object) -> str:
    """Write a value for people; components of a list by their labels or names."""
    text = plain(value)
    if isinstance(value, list):
        names = [
            own.get("label") or own.get("name", own) if isinstance(own, dict) else own
            for own in value
        ]
        text = f"[{', '.join(map(plain, names))}]"
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _gaps(benchmark: Benchmark, rows: pd.DataFrame) -> list[str]:
    """Describe which cells and splits there are, if some are missing."""
    columns = ["dataset", "entry", *benchmark.axes]
    have = {key: set(own.split) for key, own in rows.groupby(columns, sort=False)}
    wanted = {
        (str(cell.dataset), cell.entry, *cell.point.texts.values()): cell
        for cell in cells_of(benchmark)
    }
    present = {key: cell for key, cell in wanted.items() if key in have}
    named = [cell.label for cell in present.values()]
    gaps = []
    if len(present) < len(wanted):
        names = f" ({', '.join(named)})" if len(named) <= _NAMED else ""
        gaps.append(f"{len(named)} of {len(wanted)} cells{names}")
    if any(set(cell.splits) - have[key] for key, cell in present.items()):
        first, *others = ({*have[key]} for key in present)
        alike, n = all(own == first for own in others), benchmark.splits
        gaps.append(
            f"{len(first)} of {n} splits ({listed(first)})" if alike else f"not all of {n} splits"
        )
    return gaps
