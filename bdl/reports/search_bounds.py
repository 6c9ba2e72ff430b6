"""Notes on searches that ended on a bound of their space."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bdl.records.row import HYPER_PREFIX
from bdl.reports.statistics import group_by_cell
from bdl.spec.sections import Note

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark, Search


BOUND_TOLERANCE = 1e-6
"""Relative distance from a bound that is rounding: proposals go to the unit cube and back."""


def bound_notes(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Note]:
    """Write a note for each entry on each data set of which searches ended on a bound.

    `rows` are final ones, which have the hyper-parameters that were chosen.
    """
    hyper = [name for name in rows.columns if str(name).startswith(HYPER_PREFIX)]
    groups = group_by_cell(rows[["dataset", "entry", *benchmark.axes, *hyper]], benchmark.axes)
    bounds: dict[tuple[str, str], list[str]] = {}
    for dataset, entry, point in benchmark.cells:
        search = benchmark.at(point).entries[entry].on(dataset).search
        trials = groups.get((dataset, entry, *point.texts.values()))
        if search is not None and trials is not None:
            bounds.setdefault((dataset, entry), []).extend(_bounds(search, trials))
    notes = []
    for (dataset_name, entry_name), texts in bounds.items():
        if texts:
            text = f"The search ended on a bound of its space: {', '.join(texts)}."
            notes.append(Note(dataset=dataset_name, entry=entry_name, text=text))
    return notes


def _bounds(search: "Search", rows: "pd.DataFrame") -> Iterator[str]:
    """Yield the bounds at which the chosen hyper-parameters are, and how many of them."""
    bounds = {name: (space.low, space.high) for name, space in search.space.items()}
    for name, values in search.grid.items():
        if len(values) > 1:
            bounds[name] = min(values), max(values)
    for name, name_bounds in bounds.items():
        if HYPER_PREFIX + name not in rows:  # no search has ended yet
            continue
        chosen = rows[HYPER_PREFIX + name].to_numpy(dtype=float)
        for bound in name_bounds:
            count = int(np.isclose(chosen, bound, rtol=BOUND_TOLERANCE, atol=0).sum())
            if count:
                yield f"{name} {bound:g} ({count} of {len(rows)})"
