"""What published rows were made with, and how that differs from the protocol."""

import re

import pandas as pd

from bdl.plan.planning import cells_of
from bdl.spec import Benchmark, Variant, differences, load_benchmark
from bdl.spec.splits import listed
from bdl.spec.variant import GONE, plain

SHOWN = ("title", "papers", "notes", "claims", "elsewhere", "baseline")
"""Fields that decide no number: tables show what the file says now."""

_LONG = 100
"""Characters of a value that are written out."""

_NAMED = 4
"""Cells that are listed by name, rather than counted."""


def remark(made: Variant, now: Benchmark, rows: pd.DataFrame | None) -> str:
    """Describe how rows differ from the protocol: profile, part, overrides, a file that has changed since.

    Parameters
    ----------
    made
        What they were made with.
    now
        The benchmark as its file is now, under the same overrides.
    rows
        All final rows; None for those of earlier versions, which do not say what they were made with: what is published
        may be a part of them.

    Returns
    -------
    str
        A sentence; empty if there is nothing to say.
    """
    parts = [_profile(made)] if made.benchmark.profile != "paper" else []
    parts += [] if rows is None or rows.empty else _gaps(made.benchmark, rows)
    parts += departures(made, now)
    return f"Not the protocol: {'; '.join(parts)}." if parts else ""


def departures(made: Variant, now: Benchmark) -> list[str]:
    """List the overrides, and the fields that the file has changed since."""
    parts = [f"{path}={brief(value)}" for path, value in made.changes.items() if _concerns(path, made)]
    since = {path: old for path, (_, old) in differences(now, made.benchmark).items() if path not in SHOWN}
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
        if path not in (*SHOWN, "profile") and _concerns(path, made):
            inner = re.sub(r"^(entries|by_dataset)\.[^.]+\.", "", path)
            values.setdefault(inner, {})[brief(own)] = None
    changed = ", ".join(f"{inner} {' or '.join(own)}" for inner, own in values.items())
    return f"profile {name} ({changed})" if changed else f"profile {name}"


def _changed(path: str, old: object) -> str:
    return f"{path} has come into the file since" if old == GONE else f"the file had {path}={brief(old)} then"


def brief(value: object) -> str:
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
        names = f" ({', '.join(named)})" if len(named) <= _NAMED else ""
        gaps.append(f"{len(named)} of {len(wanted)} cells{names}")
    if any(set(cell.splits) - have[key] for key, cell in present.items()):
        first, *others = ({*have[key]} for key in present)
        alike, n = all(own == first for own in others), benchmark.splits
        gaps.append(f"{len(first)} of {n} splits ({listed(first)})" if alike else f"not all of {n} splits")
    return gaps
