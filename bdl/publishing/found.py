"""What an earlier run left: its rows, what they were made with, and in what that differs from the protocol."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from bdl.errors import InputError
from bdl.plan.cell import Cell
from bdl.plan.planning import cells_of
from bdl.publishing.frames import final_frame, points_frame, read_frames
from bdl.spec import Benchmark, Variant, differences, load_benchmark, load_variant
from bdl.spec.tables import Note
from bdl.spec.variant import GONE, plain
from bdl.store.folder import folder, siblings
from bdl.store.store import Store

_SHOWN = ("title", "papers", "notes", "baseline")
"""Fields that decide no number: what a file says there now is what is shown."""

_LONG = 100
"""Characters of a value that are written out."""

_NAMED = 4
"""Cells that are listed by name, rather than counted."""


LEGACY = "Legacy code: made by an earlier version; today's code has not been seen to give the same numbers."
"""Note of published cells without an identity."""
NO_VERDICTS = "The printed values are of the protocol: verdicts are withheld."


class Found(NamedTuple):
    """Rows and what they are."""

    made: Variant
    """What they were made with."""
    rows: pd.DataFrame
    """Final rows."""
    points: pd.DataFrame
    """Scores at recorded counts."""
    remark: str
    """In what they are not the protocol; empty if they are."""
    protocol: bool
    """Whether each of them was made as the protocol says, though some may be missing."""

    @classmethod
    def of(cls, made: Variant, now: Benchmark, rows: pd.DataFrame, points: pd.DataFrame, known: bool = True) -> "Found":
        """Gather what rows are.

        Parameters
        ----------
        made, now
            As `remark` takes them.
        rows, points
            Final rows, and scores at recorded counts.
        known
            Whether the rows say what they were made with.
        """
        protocol = made.benchmark.profile == "paper" and not _departures(made, now)
        return cls(made, rows, points, remark(made, now, rows if known else None), protocol)

    @property
    def head(self) -> str:
        """What is said above a table: the remark, and why there are no verdicts."""
        return self.remark if self.protocol or not self.benchmark.papers else f"{self.remark} {NO_VERDICTS}"

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark that they were made with."""
        return self.made.benchmark


def find(asked: Variant, results: Path, *, within: bool = False) -> Found:
    """Read the rows of an earlier run: the published ones, else what its store has.

    Parameters
    ----------
    asked
        The benchmark as its file is now, and the same overrides and parts as the run had.
    results
        Folder of results.
    within
        Whether to take data sets and entries out of the rows of the whole, if no run was narrowed to them.

    Raises
    ------
    InputError
        If there is none, or a file is damaged.
    """
    place = whereabouts(asked, results, within=within)
    found = look(place, asked)
    if place == folder(results, asked):
        return found
    return found._replace(rows=part(found.rows, asked), points=part(found.points, asked))


def whereabouts(asked: Variant, results: Path, *, within: bool = False) -> Path:
    """Return the folder that has what is asked for, or the whole that it is a part of; arguments, errors as in `find`.

    Splits are not taken out of the whole: means and standard errors of some of them are another run's.
    """
    place, whole = folder(results, asked), folder(results, asked.whole)
    if holds(place):
        return place
    if within and asked.narrowed and not asked.splits and holds(whole):
        return whole
    start = asked.command("run", results)
    raise InputError(f"no results in {place}; start with: {start}{_others(place, asked.source, results)}")


def look(place: Path, asked: Variant) -> Found:
    """Read the rows of a folder that holds some; `asked` and errors as in `find`."""
    if (place / "trials.parquet").exists():
        rows, points, text = read_frames(place)
        made = _with_legacy(presented(text, asked, place / "trials.parquet"), place)
        rows = rows[rows.stage == "final"]
    else:
        with Store(place / "store.sqlite") as store:
            text = store.made
            made = presented(text, asked, store.path)
            cells = stored_cells(made.benchmark, store)
            rows, points = final_frame(cells, store), points_frame(cells, store)
    if asked.narrowed and not made.narrowed:  # to a part of the whole
        made = replace(made, datasets=asked.datasets, entries=asked.entries)
    return Found.of(made, asked.benchmark, rows, points, known=text is not None)


def made_with(place: Path) -> Variant:
    """Return what the rows of a folder that holds some were made with.

    Raises
    ------
    InputError
        If a file is damaged, or the rows do not say it and the folder has no benchmark's name.
    """
    if (place / "trials.parquet").exists():
        text = read_frames(place)[2]
    else:
        with Store(place / "store.sqlite") as store:
            text = store.made
    if text is None:
        return load_variant(place.name)
    made = Variant.parse(text, str(place))
    return replace(made, source=made.benchmark.name)


def holds(place: Path) -> bool:
    """Return whether a folder holds any row: a run that was stopped at once leaves an empty store."""
    if (place / "trials.parquet").exists():
        return True
    path = place / "store.sqlite"
    if not path.exists():
        return False
    with Store(path) as store:
        return store.begun


def presented(text: str | None, asked: Variant, source: Path) -> Variant:
    """Read what rows were made with; of what decides no number, take what the file says now.

    Rows that do not say what they were made with, as those of earlier versions, are taken for what was asked for.
    """
    if text is None:
        return asked
    made, now = Variant.parse(text, str(source)), asked.benchmark
    shown = {name: getattr(now, name) for name in _SHOWN}
    benchmark = made.benchmark.model_copy(update=shown).select()  # which leaves out a baseline that it lacks
    return replace(made, benchmark=benchmark, source=asked.source)


def _with_legacy(made: Variant, place: Path) -> Variant:
    """Add a note to the published cells that today's code has not been seen to make again: those without identity."""
    try:
        known = json.loads((place / "provenance.json").read_text("utf-8"))["fit_hashes"]
    except (OSError, ValueError, KeyError):
        return made
    cells = [cell for cell in cells_of(made.benchmark) if known.get(cell.label, "") is None]
    pairs = dict.fromkeys((str(cell.dataset), cell.entry) for cell in cells)
    notes = tuple(Note(dataset=dataset, entry=entry, text=LEGACY) for dataset, entry in pairs)
    return replace(made, benchmark=made.benchmark.model_copy(update={"notes": (*made.benchmark.notes, *notes)}))


def stored_cells(benchmark: Benchmark, store: Store) -> list[Cell]:
    """List the cells of a benchmark that have final rows in a store, with the splits that have them."""
    found = ((cell, tuple(row.split for row in store.rows("final", cell.key))) for cell in cells_of(benchmark))
    return [cell.with_splits(splits) for cell, splits in found if splits]


def remark(made: Variant, now: Benchmark, rows: pd.DataFrame | None) -> str:
    """Describe in what rows are not the protocol: profile, part, overrides, a file that has changed since.

    Parameters
    ----------
    made
        What they were made with.
    now
        The benchmark as its file is now, under the same overrides.
    rows
        All final rows; None for those of earlier versions, which do not say what they were made with, and of which what
        is published may be a part.

    Returns
    -------
    str
        A sentence; empty if there is nothing to say.
    """
    parts = [_profile(made)] if made.benchmark.profile != "paper" else []
    parts += [] if rows is None or rows.empty else _gaps(made.benchmark, rows)
    parts += _departures(made, now)
    return f"Not the protocol: {'; '.join(parts)}." if parts else ""


def _departures(made: Variant, now: Benchmark) -> list[str]:
    """List the overrides, and the fields that the file has changed since."""
    parts = [f"{path}={_short(value)}" for path, value in made.changes.items() if _concerns(path, made)]
    since = {path: old for path, (_, old) in differences(now, made.benchmark).items() if path not in _SHOWN}
    return parts + [_changed(path, old) for path, old in since.items() if _concerns(path, made)]


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
    for path, (own, _) in differences(file, load_benchmark(made.source or made.benchmark.name)).items():
        if path not in (*_SHOWN, "profile") and _concerns(path, made):
            inner = re.sub(r"^(entries|by_dataset)\.[^.]+\.", "", path)
            values.setdefault(inner, {})[_short(own)] = None
    changed = ", ".join(f"{inner} {' or '.join(own)}" for inner, own in values.items())
    return f"profile {name} ({changed})" if changed else f"profile {name}"


def _changed(path: str, old: object) -> str:
    return f"{path} has come into the file since" if old == GONE else f"the file had {path}={_short(old)} then"


def _short(value: object) -> str:
    """Write a value for people; components of a list by their labels or names."""
    text = plain(value)
    if isinstance(value, list):
        names = [own.get("label") or own.get("name", own) if isinstance(own, dict) else own for own in value]
        text = f"[{', '.join(map(plain, names))}]"
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _gaps(benchmark: Benchmark, rows: pd.DataFrame) -> list[str]:
    """Describe which cells and splits there are, if some are missing."""
    columns = ["dataset", "entry", *benchmark.axes]
    have = {key: set(own.split) for key, own in rows.groupby(columns, sort=False)}
    wanted = {(str(cell.dataset), cell.entry, *cell.point.texts.values()): cell for cell in cells_of(benchmark)}
    present = {key: cell for key, cell in wanted.items() if key in have}
    named = [cell.label for cell in present.values()]
    gaps = []
    if len(present) < len(wanted):
        listed = f" ({', '.join(named)})" if len(named) <= _NAMED else ""
        gaps.append(f"{len(named)} of {len(wanted)} cells{listed}")
    if any(set(cell.splits) - have[key] for key, cell in present.items()):
        kept = {tuple(sorted(have[key])) for key in present}
        some = ", ".join(map(str, kept.pop())) if len(kept) == 1 else "not all"
        gaps.append(f"split {some} of {benchmark.splits}")
    return gaps


def part(table: pd.DataFrame, asked: Variant) -> pd.DataFrame:
    """Take the rows of the data sets and entries that are asked for."""
    for column, names in (("dataset", asked.datasets), ("entry", asked.entries)):
        table = table[table[column].isin(names)] if names else table
    return table


def is_part(cell: Cell, asked: Variant) -> bool:
    """Return whether a cell is of the data sets and entries that are asked for."""
    pairs = (str(cell.dataset), asked.datasets), (cell.entry, asked.entries)
    return all(not names or name in names for name, names in pairs)


def _others(place: Path, source: str, results: Path) -> str:
    """Name other results of the same benchmark, if there are any."""
    texts = (read_frames(path)[2] for path in siblings(place) if (path / "trials.parquet").exists())
    found = next((Variant.parse(text, str(place)) for text in texts if text), None)
    return f" (there is: {replace(found, source=source).command('table', results)})" if found else ""
