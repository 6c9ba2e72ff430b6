"""Searches whose best setting lies on a bound of their space: better settings may be beyond."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from bdl.reports.statistics import by_cell
from bdl.spec import Benchmark
from bdl.spec.sections import Search
from bdl.spec.tables import Note
from bdl.store.rows import HYPER

NEAR = 1e-6
"""Relative distance from a bound that counts as none: proposals are mapped to the unit cube and back."""


def bound_notes(benchmark: Benchmark, rows: pd.DataFrame) -> list[Note]:
    """Write a note for each entry on each data set whose searches ended on a bound.

    Parameters
    ----------
    benchmark
        Says what was searched, and where.
    rows
        Final rows, with the chosen settings as ``hyper_<name>``.
    """
    hyper = [name for name in rows.columns if str(name).startswith(HYPER)]
    groups = by_cell(rows[["dataset", "entry", *benchmark.axes, *hyper]], benchmark.axes)
    found: dict[tuple[str, str], list[str]] = {}
    for dataset, entry, point in benchmark.cells:
        search = benchmark.at(point).entries[entry].on(dataset).search
        own = groups.get((dataset, entry, *point.texts.values()))
        if search is not None and own is not None:
            found.setdefault((dataset, entry), []).extend(_bounds(search, own))
    return [
        Note(dataset=dataset, entry=entry, text=f"The search ended on a bound of its space: {', '.join(texts)}.")
        for (dataset, entry), texts in found.items()
        if texts
    ]


def _bounds(search: Search, rows: pd.DataFrame) -> Iterator[str]:
    """Yield each bound that was chosen, and how often."""
    ends = {name: (space.low, space.high) for name, space in search.space.items()}
    ends |= {name: (min(values), max(values)) for name, values in search.grid.items() if len(values) > 1}
    for name, both in ends.items():
        if HYPER + name not in rows:  # no fit has got that far
            continue
        chosen = rows[HYPER + name].to_numpy(dtype=float)
        for end in both:
            count = int(np.isclose(chosen, end, rtol=NEAR, atol=0).sum())
            if count:
                yield f"{name} {end:g} ({count} of {len(rows)})"
