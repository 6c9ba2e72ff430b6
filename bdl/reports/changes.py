"""Two runs held against each other: which numbers changed, split by split."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.metrics import info
from bdl.reports.layout import Section, heading
from bdl.reports.paired import PairedDifference, difference_section, paired, scores
from bdl.reports.statistics import by_split, grouped
from bdl.store import HYPER

if TYPE_CHECKING:
    import pandas as pd

ROUNDING = 1e-6
"""Scores that differ by less, relative to their size, are the same: machines round differently."""


class Change(NamedTuple):
    """A score of a cell in two runs."""

    difference: PairedDifference
    """Mean of the second minus the first, over the splits that both finished; its baseline is the first."""
    same: bool
    """Whether both finished the same splits, with the same scores."""
    only: str
    """``"first"`` or ``"second"`` if that run alone has the cell; empty if both have."""

    @property
    def verdict(self) -> str:
        """What became of the second run: ``"same"``, ``"better"``, ``"worse"``, ``"differs"``, ``"undecided"``, ..."""
        if self.only:
            return f"only in the {self.only}"
        if self.same:
            return "same"
        if not self.difference.n:
            return "no pair"
        if info(self.difference.metric).direction != "none":
            return self.difference.verdict
        low, high = self.difference.low, self.difference.high
        return "undecided" if low is None or high is None or low <= 0 <= high else "differs"

    @property
    def record(self) -> dict[str, Any]:
        """All of it as JSON values."""
        names = {"failed": "failed_in_second_alone", "baseline_failed": "failed_in_first_alone"}
        values = {names.get(name, name): value for name, value in self.difference._asdict().items()}
        return values | {"point": dict(self.difference.point), "verdict": self.verdict}


class Moved(NamedTuple):
    """A hyper-parameter whose values differ."""

    dataset: str
    entry: str
    point: Mapping[str, str]
    name: str
    first: float
    """Median over the splits that both have."""
    second: float
    splits: int
    """On how many it differs."""


def changes(
    first: "pd.DataFrame",
    second: "pd.DataFrame",
    metrics: Sequence[str],
    axes: Sequence[str],
    overlap: Mapping[str, float],
) -> list[Change]:
    """Hold the final rows of two runs against each other, for all metrics but durations, which are of machines.

    Rows and overlap are as `bdl.reports.paired.paired_differences` takes them; the intervals are those.
    """
    found = []
    for metric in (name for name in metrics if info(name).direction != "ratio"):
        for place, one, other in _cells(first, second, axes):
            only = "second" if one is None else "first" if other is None else ""
            if one is None or other is None:
                found.append(Change(place._replace(metric=metric), False, only))
                continue
            before, after = scores(one, metric), scores(other, metric)
            difference = paired(place._replace(metric=metric), after, before, overlap.get(place.dataset, 0.0))
            found.append(Change(difference, _same(before, after), only))
    return found


def moved(first: "pd.DataFrame", second: "pd.DataFrame", axes: Sequence[str]) -> list[Moved]:
    """List the hyper-parameters that differ on a split of both; arguments as in `changes`."""
    found = []
    for place, one, other in _cells(first, second, axes):
        if one is not None and other is not None:
            names = dict.fromkeys(name for name in (*one.columns, *other.columns) if name.startswith(HYPER))
            values = {name: _differing(one, other, name) for name in names}
            cell = place.dataset, place.entry, place.point
            found += [Moved(*cell, name.removeprefix(HYPER), *own) for name, own in values.items() if own[-1]]
    return found


def change_sections(found: Sequence[Change], title: str) -> list[Section]:
    """Lay out changes, a table a metric."""
    return [
        difference_section(f"{title}: {heading(metric)}", [(change.difference, change.verdict) for change in own])
        for metric, own in grouped(found, lambda change: change.difference.metric).items()
    ]


def moved_section(found: Sequence[Moved]) -> Section:
    """Lay out hyper-parameters that differ."""
    columns = ["Dataset", "Method", "Hyper-parameter", "First", "Second", "Splits"]
    rows = [
        (each.dataset, _at(each), each.name, f"{each.first:.3g}", f"{each.second:.3g}", f"{each.splits}")
        for each in found
    ]
    return Section.of("Hyper-parameters that differ, medians over splits", columns, rows)


def _at(each: Moved) -> str:
    return " ".join([each.entry, *(f"{path.rpartition('.')[2]}={json.loads(v)}" for path, v in each.point.items())])


def _cells(
    first: "pd.DataFrame", second: "pd.DataFrame", axes: Sequence[str]
) -> Iterator[tuple[PairedDifference, "pd.DataFrame | None", "pd.DataFrame | None"]]:
    """Go through the cells of either run, with their rows by split."""
    one, other = (by_split(rows, axes) for rows in (first, second))
    for key in dict.fromkeys((*one, *other)):
        dataset, entry, *point = map(str, key)
        place = PairedDifference(dataset, entry, "", 0, point=dict(zip(axes, point, strict=True)))
        yield place, one.get(key), other.get(key)


def _same(before: "pd.Series[float]", after: "pd.Series[float]") -> bool:
    if set(before.index) != set(after.index):
        return False
    return bool(np.allclose(before, after.loc[before.index], rtol=ROUNDING, atol=0, equal_nan=True))


def _differing(one: "pd.DataFrame", other: "pd.DataFrame", name: str) -> tuple[float, float, int]:
    """Return both medians of a hyper-parameter over the splits of both, and on how many of these it differs."""
    shared = one.index.intersection(other.index)
    a, b = (rows.reindex(columns=[name]).loc[shared, name].astype(float) for rows in (one, other))
    same = np.isclose(a, b, rtol=ROUNDING, atol=0, equal_nan=True)
    return float(a.median()), float(b.median()), int((~same).sum())
