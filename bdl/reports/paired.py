"""Differences split by split, also as tables: of each entry from the baseline, and of two runs."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.metrics import info
from bdl.reports.layout import Section, heading, metric_name, quantity
from bdl.reports.statistics import Array, by_split, grouped, mean_se, short
from bdl.reports.verdicts import FEWEST, reach
from bdl.store import HYPER

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark


class PairedDifference(NamedTuple):
    """Mean over splits of entry minus baseline, for one metric on one dataset at one point of a sweep."""

    dataset: str
    entry: str
    metric: str
    n: int
    """Pairs: splits on which both have a finite value."""
    mean: float | None = None
    """In the metric's unit; None without a pair."""
    low: float | None = None
    """Lower end of the 95 % interval; None with fewer than two pairs."""
    high: float | None = None
    """Upper end."""
    failed: int = 0
    """Splits on which the entry failed and the baseline did not."""
    baseline_failed: int = 0
    """Splits on which the baseline failed and the entry did not."""
    point: Mapping[str, str] = {}
    """Path of each axis of a sweep to the JSON of its value; empty without a sweep."""

    @property
    def half(self) -> float | None:
        """Half the length of the interval."""
        return None if self.mean is None or self.high is None else self.high - self.mean

    @property
    def verdict(self) -> str:
        """``"better"`` or ``"worse"`` than the baseline if the interval excludes 0, else ``"undecided"``.

        Also undecided are fewer than three pairs, and what speaks for the one of the two that
        failed where the other did not.
        """
        if self.low is None or self.high is None or self.n < FEWEST or self.low <= 0 <= self.high:
            return "undecided"
        if (self.high < 0) == (info(self.metric).direction == "lower"):
            return "undecided" if self.failed else "better"
        return "undecided" if self.baseline_failed else "worse"


def paired_differences(
    benchmark: "Benchmark", rows: "pd.DataFrame", overlap: Mapping[str, float]
) -> list[PairedDifference]:
    """Hold every entry against the baseline, on the splits that both finished.

    Nothing without a baseline.

    `rows` are as for `bdl.reports.compare`; in a sweep the baseline is the one of the same point.
    `overlap` maps a data set whose splits share training rows to its test rows per training row.
    The order is metric, then cell of the benchmark, for predictive metrics with a better and a
    worse and for the data sets on which the baseline runs.

    Notes
    -----
    The interval is mean ± t s sqrt(1/n + r), with s the standard deviation of the n differences, t
    the quantile of Student's t with n - 1 degrees of freedom, and r = n_test / n_train the
    overlap. Splits that share training rows give differences that are not independent; s^2 / n
    would be too small a variance of their mean, and r s^2 is what Nadeau and Bengio add
    ("Inference for the generalization error", Machine Learning 52, 2003).
    """
    metrics = [
        name
        for name in benchmark.metrics
        if info(name).kind == "predictive" and info(name).direction != "none"
    ]
    against = {dataset for dataset, entry, _ in benchmark.cells if entry == benchmark.baseline}
    cells = [
        cell for cell in benchmark.cells if cell[0] in against and cell[1] != benchmark.baseline
    ]
    rows = rows.reindex(columns=["dataset", "entry", *benchmark.axes, "split", "status", *metrics])
    groups = by_split(rows, benchmark.axes)
    found, none = [], rows[:0].set_index("split")
    for metric, (dataset, entry, point) in product(metrics, cells):
        texts = point.texts.values()
        ours, theirs = (
            scores(groups.get((dataset, str(name), *texts), none), metric)
            for name in (entry, benchmark.baseline)
        )
        place = PairedDifference(dataset, entry, metric, 0, point=dict(point.texts))
        found.append(paired(place, ours, theirs, overlap.get(dataset, 0.0)))
    return found


def scores(rows: "pd.DataFrame", metric: str) -> "pd.Series[float]":
    """Return a metric of rows whose index is the split.

    NaN where a fit failed or has no finite value.
    """
    values = rows[metric].astype(float)
    return values.where(np.isfinite(values) & (rows["status"] == "ok"))


def paired(
    place: PairedDifference, ours: "pd.Series[float]", theirs: "pd.Series[float]", overlap: float
) -> PairedDifference:
    """Hold scores by split against others: `place` with what `paired_differences` says of them."""
    values = np.asarray(
        ours - theirs, dtype=np.float64
    )  # a split that only one of them has gives NaN
    values = values[np.isfinite(values)]
    mean, low, high = _interval(values, overlap)
    failed, other = _lost(ours, theirs), _lost(theirs, ours)
    return place._replace(
        n=values.size, mean=mean, low=low, high=high, failed=failed, baseline_failed=other
    )


def _lost(own: "pd.Series[float]", other: "pd.Series[float]") -> int:
    """Count the splits on which a fit failed while that of the other did not.

    NaN is a failed fit.
    """
    return len(own.index[own.isna()].intersection(other.index[other.notna()]))


def _interval(values: Array, overlap: float) -> tuple[float | None, float | None, float | None]:
    """Return the mean and the ends of its interval; None for what too few values leave open."""
    if values.size < 2:
        return (float(values[0]) if values.size else None), None, None
    mean, se = float(values.mean()), mean_se(values) * math.sqrt(1 + values.size * overlap)
    half = reach(se, values.size - 1)
    return mean, mean - half, mean + half


def difference_sections(
    title: Callable[[str], str], rows: Iterable[tuple[PairedDifference, str]]
) -> list[Section]:
    """Lay out differences, each with its verdict, a table a metric."""
    found = []
    for metric, own in grouped(rows, lambda row: row[0].metric).items():
        columns = [
            "Dataset",
            *own[0][0].point,
            "Method",
            "Difference",
            "95 % interval",
            "Verdict",
            "n",
        ]
        lines = []
        for each, verdict in own:
            lost = f" (failed: {each.failed}, of the baseline {each.baseline_failed})"
            count = f"{each.n}{lost if each.failed or each.baseline_failed else ''}"
            lines.append(
                (
                    each.dataset,
                    *map(short, each.point.values()),
                    each.entry,
                    *numbers(each),
                    verdict,
                    count,
                )
            )
        found.append(Section.of(title(metric), columns, lines))
    return found


def paired_sections(
    benchmark: "Benchmark", differences: Sequence[PairedDifference]
) -> list[Section]:
    """Lay out the differences from the baseline, a table a metric."""
    return difference_sections(
        lambda metric: (
            f"{benchmark.name}: {heading(metric)}, mean difference from {benchmark.baseline}"
        ),
        ((each, each.verdict if each.n else "no pair") for each in differences),
    )


def tally(benchmark: "Benchmark", differences: Sequence[PairedDifference]) -> Section:
    """Count on how many data sets (and points of a sweep) each entry is better, undecided and worse."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for difference in differences:
        if difference.n:
            counts.setdefault((difference.metric, difference.entry), Counter())[
                difference.verdict
            ] += 1
    lines = [
        (
            metric_name(metric),
            entry,
            *(str(found[word]) for word in ("better", "undecided", "worse")),
        )
        for (metric, entry), found in counts.items()
    ]
    columns = ["Metric", "Method", "Wins", "Ties", "Losses"]
    return Section.of(
        f"{benchmark.name}: data sets on which {benchmark.baseline} is beaten", columns, lines
    )


def numbers(difference: PairedDifference) -> tuple[str, str]:
    """Write the mean and the ends of its interval; empty where there is none."""
    if difference.mean is None:
        return "", ""
    if difference.low is None or difference.high is None:
        return quantity(difference.mean), ""
    return quantity(difference.mean), f"{quantity(difference.low)} to {quantity(difference.high)}"


ROUNDING = 1e-6
"""Scores that differ by less, relative to their size, are the same: machines round differently."""


class Change(NamedTuple):
    """A score of a cell in two runs."""

    difference: PairedDifference
    """Mean of the second minus the first, over the splits that both finished; its baseline is the
    first.
    """
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
        values = {
            names.get(name, name): value for name, value in self.difference._asdict().items()
        }
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

    Rows and overlap are as `paired_differences` takes them; the intervals are those.
    """
    found = []
    for metric in (name for name in metrics if info(name).direction != "ratio"):
        for place, one, other in _cells(first, second, axes):
            only = "second" if one is None else "first" if other is None else ""
            if one is None or other is None:
                found.append(Change(place._replace(metric=metric), False, only))
                continue
            before, after = scores(one, metric), scores(other, metric)
            difference = paired(
                place._replace(metric=metric), after, before, overlap.get(place.dataset, 0.0)
            )
            same = (
                set(before.index) == set(after.index)
                and _near(before, after.loc[before.index]).all()
            )
            found.append(Change(difference, bool(same), only))
    return found


def moved(first: "pd.DataFrame", second: "pd.DataFrame", axes: Sequence[str]) -> list[Moved]:
    """List the hyper-parameters that differ on a split of both; arguments as in `changes`."""
    found = []
    for place, one, other in _cells(first, second, axes):
        if one is not None and other is not None:
            names = dict.fromkeys(
                name for name in (*one.columns, *other.columns) if name.startswith(HYPER)
            )
            values = {name: _differing(one, other, name) for name in names}
            cell = place.dataset, place.entry, place.point
            found += [
                Moved(*cell, name.removeprefix(HYPER), *own)
                for name, own in values.items()
                if own[-1]
            ]
    return found


def change_sections(found: Sequence[Change], title: str) -> list[Section]:
    """Lay out changes, a table a metric."""
    rows = ((change.difference, change.verdict) for change in found)
    return difference_sections(lambda metric: f"{title}: {heading(metric)}", rows)


def moved_section(found: Sequence[Moved]) -> Section:
    """Lay out hyper-parameters that differ."""
    columns = ["Dataset", "Method", "Hyper-parameter", "First", "Second", "Splits"]
    rows = []
    for each in found:
        place = " ".join(
            f"{path.rpartition('.')[2]}={json.loads(value)}" for path, value in each.point.items()
        )
        values = f"{each.first:.3g}", f"{each.second:.3g}", f"{each.splits}"
        rows.append((each.dataset, f"{each.entry} {place}".rstrip(), each.name, *values))
    return Section.of("Hyper-parameters that differ, medians over splits", columns, rows)


def _cells(
    first: "pd.DataFrame", second: "pd.DataFrame", axes: Sequence[str]
) -> Iterator[tuple[PairedDifference, "pd.DataFrame | None", "pd.DataFrame | None"]]:
    one, other = (by_split(rows, axes) for rows in (first, second))
    for key in dict.fromkeys((*one, *other)):
        dataset, entry, *point = map(str, key)
        place = PairedDifference(dataset, entry, "", 0, point=dict(zip(axes, point, strict=True)))
        yield place, one.get(key), other.get(key)


def _near(one: "pd.Series[float]", other: "pd.Series[float]") -> NDArray[np.bool_]:
    return np.isclose(one, other, rtol=ROUNDING, atol=0, equal_nan=True)


def _differing(one: "pd.DataFrame", other: "pd.DataFrame", name: str) -> tuple[float, float, int]:
    """Return both medians of a hyper-parameter over the splits of both, and on how many of these it differs."""
    shared = one.index.intersection(other.index)
    a, b = (rows.reindex(columns=[name]).loc[shared, name].astype(float) for rows in (one, other))
    return float(a.median()), float(b.median()), int((~_near(a, b)).sum())
