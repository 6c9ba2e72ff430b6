"""Our numbers beside the printed ones, with a verdict."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from bdl.metrics import MetricInfo, info
from bdl.references.certificate import CERTIFIED
from bdl.reports.papers import Key, PaperValue, paper_values
from bdl.reports.statistics import STATISTICS, Array, by_cell, finite
from bdl.reports.verdicts import NO_PARAMETERS, SURVIVORS, Judgement, Ours, judge
from bdl.store import CERTIFICATE, KEPT, REFUSALS

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark
    from bdl.spec.sections import Note

SAMPLED_TRUTH = (
    "Draws stand for the truth. MC error: standard error of the distance from them. Floor: distance from them that "
    "the exact posterior is expected to have; of a distance d, sqrt(d^2 - floor^2) or more is due to the method."
)
ONE_SPLIT = "Split {} alone, as printed."

_SAMPLED = ("mcse", "floor")


@dataclass(frozen=True)
class Cell:
    """One statistic of one metric of one entry on one dataset, ours and the paper's.

    Attributes
    ----------
    benchmark, dataset, method, metric, statistic
        Where the cell belongs; `method` is the benchmark's entry, `statistic` ``"mean"``,
        ``"median"`` or, where the paper prints it, ``"max"``.
    ours, ours_se
        The statistic over the successful trials and its standard error, in the metric's unit; None
        without a successful trial, and without two of them for the standard error. Where the paper
        prints the value of one split, that of the same split.
    n_trials, n_failed
        All trials (of that split, if it is one alone), and those that failed or gave no finite
        value.
    paper, paper_se, paper_source
        The printed number, its printed standard error, and paper and table.
    z, df
        What rounding of the printed number does not explain of ours - paper, in standard errors of
        the difference, and the degrees of freedom of that; None where it has none, and for
        durations.
    p
        Of the two-sided test that the verdict comes from; None without a test.
    low, high
        Ends of the 95 % interval of ours - paper, rounding included; None as `z`.
    margin
        How far both may be from zero for a match; None without a printed number, and for
        durations.
    failed_as_worst
        The median of all trials, the failed ones counted as worst; None where none failed, or so
        many that it is one of them, and of metrics without a worst value.
    mc_se, floor
        Monte-Carlo standard error of a score that has one; and where the truth is sampled, the
        distance that the exact posterior is expected to have to the sample; None elsewhere.
    verdict
        ``"match"``, ``"no difference shown"``, ``"better"``, ``"worse"``, ``"differs"`` (of
        metrics without a better and a worse), ``"undecided"``, ``"print in error"``,
        ``"withheld"`` (of a run that is not the protocol), ``"no paper value"``, ``"failed"`` (no
        trial succeeded), ``"not run"`` (no trial), ``"no parameters"`` (a score of parameters, of
        which the method left none), or for durations a ratio such as ``"53x faster"``.
        ``docs/verdicts.md`` has the rules.
    note
        Remarks, one a line, or None.
    point
        Path of each axis of a sweep to the JSON of the cell's value there; empty without a sweep,
        and printed numbers are those of cells without one.
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
    df: float | None
    p: float | None
    low: float | None
    high: float | None
    margin: float | None
    failed_as_worst: float | None
    verdict: str
    note: str | None
    point: Mapping[str, str] = field(default_factory=dict)


def compare(benchmark: "Benchmark", rows: "pd.DataFrame", *, protocol: bool = True) -> list[Cell]:
    """Aggregate trials and set them against the printed numbers: by cell of the benchmark, metric and statistic.

    `rows` has one row a trial: `dataset`, `entry`, `split`, `status` (``"ok"`` or ``"failed"``), a
    column a metric, and one an axis of the sweep; `reason`, where there is one, says of an
    ``"ok"`` row which scores could not be computed. `protocol` says whether they were made as the
    benchmark's protocol says, all of it or a part; without it verdicts are withheld. Durations,
    and values of one split, are shown by their mean; their median is there only where the paper
    prints one, and so is any maximum. `InputError` if a metric or a paper table is unknown.

    Notes
    -----
    Failed trials are left out of the statistics. Where the truth is sampled, its Monte-Carlo error
    is part of the error of ours and of the printed number. The verdict is that of
    `bdl.reports.verdicts.judge`.

    A number printed for one split is held against our number of that split. Where all printed
    numbers of a metric on a dataset are of one split, entries without a printed number are shown
    on that split as well.
    """
    printed = paper_values(benchmark.papers)
    if benchmark.axes:  # papers print nothing at the points of a sweep
        printed = {}
    sampled = [f"{metric}_{suffix}" for metric in benchmark.metrics for suffix in _SAMPLED]
    rows = rows.reindex(
        columns=[
            *("dataset", "entry", *benchmark.axes, "split", "status", "reason", KEPT, CERTIFICATE),
            *(*benchmark.metrics, *sampled),
        ]
    )
    alone = _lone_splits(printed)
    cells, groups = [], by_cell(rows, benchmark.axes)
    for (dataset, entry, point), metric in product(benchmark.cells, benchmark.metrics):
        trials = groups.get((dataset, entry, *point.texts.values()), rows[:0])
        for statistic in STATISTICS:
            place = (dataset, entry, metric, statistic)
            paper = printed.get(place)
            split = paper.split if paper else alone.get((dataset, metric))
            usual = statistic == "median" and split is None and info(metric).direction != "ratio"
            if statistic == "mean" or paper is not None or usual:
                own = trials if split is None else trials[trials["split"] == split]
                cells.append(
                    _cell(benchmark, place, dict(point.texts), own, split, paper, protocol)
                )
    return cells


def _lone_splits(printed: Mapping[Key, PaperValue]) -> dict[tuple[str, str], int]:
    """Return the split that all printed numbers of a metric on a dataset are of, where it is one alone."""
    found: dict[tuple[str, str], set[int | None]] = {}
    for (dataset, _, metric, _), value in printed.items():
        found.setdefault((dataset, metric), set()).add(value.split)
    return {
        place: split
        for place, (split, *others) in found.items()
        if split is not None and not others
    }


def _cell(
    benchmark: "Benchmark",
    place: tuple[str, str, str, str],
    point: dict[str, str],
    trials: "pd.DataFrame",
    split: int | None,
    paper: PaperValue | None,
    protocol: bool,
) -> Cell:
    about = info(place[2])
    lacking = trials[KEPT].notna() & (about.kind in ("posterior", "distance"))
    trials = trials[~lacking]
    good = trials[trials["status"] == "ok"]
    values = finite(trials, place[2])
    failed = len(trials) - values.size
    mc_se, floor = (
        summary("mean", finite(trials, f"{place[2]}_{suffix}"))[0] for suffix in _SAMPLED
    )
    # An error that each trial has by itself shows in the spread of the trials; that of a sampled
    # truth does not.
    ours = Ours(*summary(place[3], values), values.size, failed, None if floor is None else mc_se)
    notes = [note for note in benchmark.notes if _concerns(note, place)]
    texts = [" ".join(note.text.split()) for note in notes]
    judged = judge(
        ours, paper, about, in_error=any(note.verdict for note in notes), protocol=protocol
    )
    found = judged.found
    return Cell(
        benchmark.name,
        *place,
        ours=ours.value,
        ours_se=ours.se,
        n_trials=len(trials),
        n_failed=failed,
        paper=paper.value if paper else None,
        paper_se=paper.stderr if paper else None,
        paper_source=paper.source if paper else None,
        mc_se=mc_se,
        floor=floor,
        z=found.z if found else None,
        df=found.df if found and math.isfinite(found.df) else None,
        p=found.p if found else None,
        low=found.value - found.half if found else None,
        high=found.value + found.half if found else None,
        margin=None
        if paper is None or about.direction == "ratio"
        else about.margin_of(paper.value),
        failed_as_worst=failed_as_worst(values, failed, about),
        verdict=NO_PARAMETERS if lacking.any() else "not run" if trials.empty else judged.verdict,
        note="\n".join(
            [
                *texts,
                *refusals(good, place[2]),
                *certified(good),
                *_remarks(ours, about, floor, split, judged),
            ]
        )
        or None,
        point=point,
    )


def refusals(rows: "pd.DataFrame", metric: str) -> list[str]:
    """List why a score of fits that did not fail could not be computed, each reason once.

    `rows` as for `compare`.
    """
    reasons = rows["reason"][rows["status"] == "ok"].dropna()
    told = (
        part
        for reason in reasons
        for part in reason.split(REFUSALS)
        if part.startswith(f"{metric}: ")
    )
    return list(dict.fromkeys(f"not computed: {part}" for part in told))


def certified(rows: "pd.DataFrame") -> list[str]:
    """Return how many fits keep the rules for their draws, and which ones others break.

    `rows` as for `compare`.
    """
    found = rows[CERTIFICATE].dropna()
    if found.empty:
        return []
    broken = sorted({int(number) for text in found for number in re.findall(r"\d+", text)})
    others = (
        f"; others break rules {', '.join(map(str, broken))} for chains of networks"
        if broken
        else ""
    )
    return [f"certified: {(found == CERTIFIED).sum()} of {len(found)} splits{others}"]


def _remarks(
    ours: Ours, about: MetricInfo, floor: float | None, split: int | None, judged: Judgement
) -> Iterator[str]:
    if floor is not None:
        yield SAMPLED_TRUTH
    if split is not None:
        yield ONE_SPLIT.format(split)
    if ours.failed and ours.value is not None and about.direction != "ratio":
        yield SURVIVORS
    if judged.note:
        yield judged.note


def failed_as_worst(values: Array, failed: int, about: MetricInfo) -> float | None:
    """Return the median of all trials, those that failed being worse than all others.

    None as `Cell` says.
    """
    if not failed or about.direction not in ("lower", "higher"):
        return None
    worst = math.inf if about.direction == "lower" else -math.inf
    median = float(np.median(np.append(values, [worst] * failed)))
    return median if math.isfinite(median) else None


def summary(statistic: str, values: Array) -> tuple[float | None, float | None]:
    """Return a statistic of finite values and its standard error.

    None where there are too few or they overflow.
    """
    location, standard_error = STATISTICS[statistic]
    # Diverged trials can be finite and still overflow when squared or summed.
    with np.errstate(over="ignore", invalid="ignore"):
        ours = location(values) if values.size else math.nan
        ours_se = standard_error(values) if values.size > 1 else math.nan
    return ours if math.isfinite(ours) else None, ours_se if math.isfinite(ours_se) else None


def _concerns(note: "Note", place: tuple[str, str, str, str]) -> bool:
    wanted = (note.dataset, note.entry, note.metric, note.statistic)
    return all(want in (None, have) for want, have in zip(wanted, place, strict=True))
