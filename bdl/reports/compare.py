"""Our numbers beside the printed ones, with a verdict."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from bdl.metrics import MetricInfo, info
from bdl.reports.axes import at
from bdl.reports.inputs import Benchmark
from bdl.reports.papers import Key, PaperValue, Printed, paper_values
from bdl.reports.statistics import STATISTICS, Values

if TYPE_CHECKING:
    import pandas as pd

Z_LIMIT = 2.0
"""A difference of at most this many standard errors is a match."""

SAMPLED_TRUTH = (
    "Draws stand for the truth. MC error: standard error of the distance from them. Floor: distance from them that "
    "the exact posterior is expected to have; of a distance d, sqrt(d^2 - floor^2) or more is due to the method."
)
VALUES_ALONE = "No standard error (fewer than two different successful trials): the verdict compares the values alone."
ONE_SPLIT = "Split {} alone, as printed: the verdict compares the values alone."

_SAMPLED = ("mcse", "floor")


@dataclass(frozen=True)
class Cell:
    """One statistic of one metric of one entry on one dataset, ours and the paper's.

    Attributes
    ----------
    benchmark, dataset, method, metric, statistic
        Where the cell belongs; `method` is the benchmark's entry, `statistic` ``"mean"`` or ``"median"``.
    ours, ours_se
        The statistic over the successful trials and its standard error, in the metric's unit; None without
        a successful trial, and without two of them for the standard error. Where the paper prints the value of one
        split, that of the same split.
    n_trials, n_failed
        All trials (of that split, if it is one alone), and those that failed or gave no finite value.
    paper, paper_se, paper_source
        The printed number, its printed standard error, and paper and table.
    z
        (ours - paper) / standard error of the difference; None where it has none, and for durations.
    mc_se, floor
        Monte-Carlo standard error of a score that has one; and where the truth is sampled, the distance that the exact
        posterior is expected to have to the sample; None elsewhere.
    verdict
        ``"match"``, ``"better"``, ``"worse"``, ``"differs"`` (of metrics without a better and a worse),
        ``"no paper value"``, ``"failed"`` (no trial succeeded), ``"not run"`` (no trial), or for durations a ratio
        such as ``"53x faster"``.
    note
        Remarks, one a line, or None.
    point
        Path of each axis of a sweep to the JSON of the cell's value there; empty without a sweep, and printed numbers
        are those of cells without one.
    """

    benchmark: str
    dataset: str
    method: str
    metric: str
    statistic: str
    ours: float | None
    ours_se: float | None
    n_trials: int
    n_failed: int
    paper: float | None
    paper_se: float | None
    paper_source: str | None
    mc_se: float | None
    floor: float | None
    z: float | None
    verdict: str
    note: str | None
    point: Mapping[str, str] = field(default_factory=dict)


def compare(benchmark: Benchmark, rows: "pd.DataFrame") -> list[Cell]:
    """Aggregate trials and set them against the printed numbers.

    Parameters
    ----------
    benchmark
        Says which cells there are and which tables they reproduce.
    rows
        One row a trial: `dataset`, `entry`, `split`, `status` (``"ok"`` or ``"failed"``), a column a metric, and one an
        axis of the sweep.

    Returns
    -------
    list of Cell
        In the order of the benchmark's cells, then metric and statistic. Durations, and values of one split, are shown
        by their mean; their median is there only where the paper prints one.

    Raises
    ------
    InputError
        If a metric or a paper table is unknown.

    Notes
    -----
    Failed trials are counted and left out of the statistics. The standard error is sd / sqrt(n) for the mean
    and the exact bootstrap standard error for the median (`bdl.reports.statistics`). With s and t the
    standard errors of ours and the paper's, z = (ours - paper) / sqrt(s^2 + t^2). Where the paper prints no
    standard error, as for its medians, t = s is assumed: the same design with the same number of trials. The
    number of a single run is one draw from our spread over trials: t is their standard deviation. Where the truth is
    sampled, the Monte-Carlo error joins s, and t too, since the paper's truth had such an error as well.
    A match is |z| <= 2, or ours equal to the printed number at the printed digits.

    A number printed for one split is held against our number of that split. Where all printed numbers of a metric on a
    dataset are of one split, entries without a printed number are shown on that split as well.
    """
    printed = paper_values(benchmark.papers)
    if benchmark.axes:  # papers print nothing at the points of a sweep
        printed = {}
    sampled = [f"{metric}_{suffix}" for metric in benchmark.metrics for suffix in _SAMPLED]
    rows = rows.reindex(columns=["dataset", "entry", *benchmark.axes, "split", "status", *benchmark.metrics, *sampled])
    alone = _lone_splits(printed)
    cells = []
    for (dataset, entry, point), metric in product(benchmark.cells, benchmark.metrics):
        trials = at(rows[(rows["dataset"] == dataset) & (rows["entry"] == entry)], point.texts)
        for statistic in STATISTICS:
            place = (dataset, entry, metric, statistic)
            paper = printed.get(place)
            split = paper.split if paper else alone.get((dataset, metric))
            if statistic == "mean" or paper is not None or (split is None and info(metric).direction != "ratio"):
                own = trials if split is None else trials[trials["split"] == split]
                cell = _cell(benchmark, place, own, split, paper)
                cells.append(replace(cell, point=dict(point.texts)))
    return cells


def _lone_splits(printed: Mapping[Key, PaperValue]) -> dict[tuple[str, str], int]:
    """Give the split that all printed numbers of a metric on a dataset are of, where it is one alone."""
    found: dict[tuple[str, str], set[int | None]] = {}
    for (dataset, _, metric, _), value in printed.items():
        found.setdefault((dataset, metric), set()).add(value.split)
    return {place: split for place, (split, *others) in found.items() if split is not None and not others}


def _cell(
    benchmark: Benchmark,
    place: tuple[str, str, str, str],
    trials: "pd.DataFrame",
    split: int | None,
    paper: PaperValue | None,
) -> Cell:
    about, good = info(place[2]), trials[trials["status"] == "ok"]
    values = good[place[2]].to_numpy(dtype=float)
    values = values[np.isfinite(values)]
    ours, ours_se = summary(place[3], values)
    mc_se, floor = (_mean(good[f"{place[2]}_{suffix}"].to_numpy(dtype=float)) for suffix in _SAMPLED)
    # An error that each trial has by itself shows in the spread of the trials; that of a sampled truth does not.
    shared = 0.0 if mc_se is None or floor is None else mc_se
    z = None if about.direction == "ratio" else _z(ours, ours_se, values.size, shared, paper)
    notes = list(_notes(benchmark, place))
    if floor is not None:
        notes.append(SAMPLED_TRUTH)
    if split is not None:
        notes.append(ONE_SPLIT.format(split))
    elif ours is not None and paper is not None and z is None and about.direction != "ratio":
        notes.append(VALUES_ALONE)
    return Cell(
        benchmark.name,
        *place,
        ours=ours,
        ours_se=ours_se,
        n_trials=len(trials),
        n_failed=len(trials) - values.size,
        paper=paper.value if paper else None,
        paper_se=paper.stderr if paper else None,
        paper_source=paper.source if paper else None,
        mc_se=mc_se,
        floor=floor,
        z=z,
        verdict="not run" if trials.empty else verdict(ours, z, paper.value if paper else None, about),
        note="\n".join(notes) or None,
    )


def verdict(ours: float | None, z: float | None, paper: Printed | None, info: MetricInfo) -> str:
    """Judge one number.

    Parameters
    ----------
    ours
        Our number, or None if no trial succeeded.
    z
        Difference in standard errors, or None if unknown.
    paper
        The printed number, or None.
    info
        The metric, which says what is better.

    Returns
    -------
    str
        As listed for `Cell`.
    """
    if ours is None:
        return "failed"
    if paper is None:
        return "no paper value"
    if info.direction == "ratio":
        return _ratio(ours, paper)
    if paper.shows(ours) or (z is not None and abs(z) <= Z_LIMIT):
        return "match"
    if info.direction == "none":
        return "differs"
    return "better" if (ours < paper) == (info.direction == "lower") else "worse"


def _ratio(ours: float, paper: float) -> str:
    factor, word = (paper / ours, "faster") if ours <= paper else (ours / paper, "slower")
    return f"{factor:.0f}x {word}" if factor >= 9.95 else f"{factor:.1f}x {word}"


def summary(statistic: str, values: Values) -> tuple[float | None, float | None]:
    """Give a statistic of finite values and its standard error; None where there are too few or they overflow."""
    location, standard_error = STATISTICS[statistic]
    # Diverged trials can be finite and still overflow when squared or summed.
    with np.errstate(over="ignore", invalid="ignore"):
        ours = location(values) if values.size else math.nan
        ours_se = standard_error(values) if values.size > 1 else math.nan
    return ours if math.isfinite(ours) else None, ours_se if math.isfinite(ours_se) else None


def _mean(values: Values) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else None


def _z(ours: float | None, ours_se: float | None, n: int, mc_se: float, paper: PaperValue | None) -> float | None:
    if ours is None or ours_se is None or paper is None:
        return None
    spread = ours_se * math.sqrt(n) if paper.single else ours_se
    scale = math.hypot(ours_se, mc_se, mc_se, spread if paper.stderr is None else paper.stderr)
    return (ours - paper.value) / scale if 0 < scale < math.inf else None


def _notes(benchmark: Benchmark, place: tuple[str, str, str, str]) -> Iterator[str]:
    for note in benchmark.notes:
        wanted = (note.dataset, note.entry, note.metric, note.statistic)
        if all(want in (None, have) for want, have in zip(wanted, place, strict=True)):
            yield " ".join(note.text.split())
