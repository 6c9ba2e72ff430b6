"""Comparison of our numbers with the printed ones, each with a verdict."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from bdl.metrics import MetricInfo, get_metric_info
from bdl.records.row import CERTIFICATE_DETAIL, KEPT_DETAIL, split_refusals
from bdl.reports.certificates import certificate_notes, score_certificate_notes
from bdl.reports.papers import Key, PaperValue, paper_values
from bdl.reports.replicates import (
    SeedRows,
    average_over_seeds,
    measure_seed_noise,
    statistics_by_seed,
)
from bdl.reports.statistics import STATISTICS, group_by_cell
from bdl.reports.verdicts import (
    GIVEN_THE_SPLITS,
    SURVIVORS,
    Estimate,
    Judgement,
    is_tested_given_splits,
    judge,
)
from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark
    from bdl.spec.sections import Note

SAMPLED_TRUTH = (
    "Draws stand for the truth. MC error: standard error of the distance from them. "
    "Floor: distance from them that the exact posterior is expected to have; "
    "of a distance d, sqrt(d^2 - floor^2) or more is due to the method."
)
SAMPLED_FUNCTIONS = (
    "Draws stand for the truth. MC error: standard error of the distance from them. "
    "Floor: distance from them that exact draws are expected to have, as many as the posterior "
    "is scored by; of a larger distance d, sqrt(d^2 - floor^2) or more is due to the method."
)
ONE_SPLIT = "Split {} alone, as printed."

_SAMPLED = ("mcse", "floor")


@dataclass(frozen=True)
class TableEntry:
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
    replicates, seed_sd
        Seeds that `ours` is the mean over, and the standard deviation of the statistic between
        them; None with one seed.
    paper, paper_se, paper_sd, paper_source
        The printed number, its standard error, the standard deviation of repeats that a few tables
        print in its place, and paper and table.
    counted
        Whether this comparison counts as that of the printed number: each is counted once.
    z, df
        What rounding of the printed number does not explain of ours - paper, in standard errors of
        the difference, and the degrees of freedom of that; None where it has none or no noise, and
        for durations.
    p
        Of the two-sided test of the difference; None without a test.
    low, high
        Ends of the 95 % interval of ours - paper, rounding included; None where no spread is
        known.
    margin
        How far both may be from zero for a match; None without a printed number, and for
        durations.
    failed_as_worst
        The median of all trials, the failed ones counted as worst; None where none failed, or so
        many that it is one of them, and of metrics without a worst value.
    mc_se, floor
        Monte-Carlo standard error of a score that has one; and where the truth is sampled, the
        distance that the exact posterior is expected to have to the sample, where samples are
        compared by as many of them; None elsewhere.
    verdict
        ``"same digits"``, ``"equivalent"``, ``"consistent"``, ``"unsettled"``, ``"print in
        error"``, ``"given"``, ``"differs, cause known"`` (or ``"settings not printed"``, or
        ``"cause unknown"``),
        ``"withheld"`` (of a run that is not the protocol), ``"no paper value"``, ``"failed"`` (no
        trial succeeded), ``"not run"`` (no trial), ``"no parameters"`` (a score of parameters, of
        which some fit left none), or for durations a ratio such as ``"53x faster"``.
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
    replicates: int
    seed_sd: float | None
    paper: float | None
    paper_se: float | None
    paper_sd: float | None
    paper_source: str | None
    counted: bool
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


def compare_with_papers(
    benchmark: "Benchmark",
    rows: "pd.DataFrame",
    *,
    protocol: bool = True,
    replicates: "pd.DataFrame | None" = None,
) -> list[TableEntry]:
    """Aggregate trials and compare their statistics with the printed numbers.

    There is an entry for each cell of the benchmark, metric and statistic, in this order.

    `rows` has one row a trial: `dataset`, `entry`, `split`, `status` (``"ok"`` or ``"failed"``), a
    column a metric, and one an axis of the sweep; `reason`, where there is one, says of an
    ``"ok"`` row which scores could not be computed. `protocol` says whether they were made as the
    benchmark's protocol says, all of it or a part; without it verdicts are withheld. Durations,
    and values of one split, are shown by their mean; their median is there only where the paper
    prints one, and so is any maximum. `replicates` are rows of the same fits under other seeds,
    with a column `seed`: statistics are means over the seeds then. `InputError` if a metric or a
    paper table is unknown.

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
    columns = ["dataset", "entry", *benchmark.axes, "split", "status", "reason"]
    columns += [KEPT_DETAIL, CERTIFICATE_DETAIL, *benchmark.metrics, *sampled, "seed"]
    rows = rows.reindex(columns=columns)
    replicates = rows[:0] if replicates is None else replicates.reindex(columns=columns)
    lone_splits = _lone_splits(printed)
    cells, groups = [], group_by_cell(rows, benchmark.axes)
    replicate_groups = group_by_cell(replicates, benchmark.axes)
    for dataset, entry, point in benchmark.cells:
        cell_key = (dataset, entry, *point.texts.values())
        trials = groups.get(cell_key, rows[:0])
        other_seeds = replicate_groups.get(cell_key, rows[:0])
        cell_rows: dict[tuple[int | None, bool], CellRows] = {}
        for metric, statistic in product(benchmark.metrics, STATISTICS):
            key = (dataset, entry, metric, statistic)
            metric_info = get_metric_info(metric)
            paper = printed.get(key)
            split = paper.split if paper else lone_splits.get((dataset, metric))
            usual = statistic == "median" and split is None and metric_info.direction != "ratio"
            if not (statistic == "mean" or paper is not None or usual):
                continue
            of_parameters = metric_info.kind in ("posterior", "distance")
            if (split, of_parameters) not in cell_rows:
                cell_rows[split, of_parameters] = CellRows(
                    trials if split is None else trials[trials["split"] == split],
                    other_seeds,
                    of_parameters,
                )
            cells.append(
                _table_entry(
                    benchmark,
                    key,
                    dict(point.texts),
                    cell_rows[split, of_parameters],
                    split,
                    paper,
                    protocol,
                )
            )
    return cells


def _lone_splits(printed: Mapping[Key, PaperValue]) -> dict[tuple[str, str], int]:
    """Return the split of the printed numbers of a metric on a dataset, where all are of one."""
    splits: dict[tuple[str, str], set[int | None]] = {}
    for (dataset, _, metric, _), value in printed.items():
        splits.setdefault((dataset, metric), set()).add(value.split)
    lone: dict[tuple[str, str], int] = {}
    for dataset_metric, printed_splits in splits.items():
        if len(printed_splits) > 1:
            continue
        (split,) = printed_splits
        if split is not None:  # None: the number is of all splits
            lone[dataset_metric] = split
    return lone


class CellRows:
    """The rows of one cell, selected once for all its metrics of a kind.

    Parameters
    ----------
    trials
        Those of the protocol's seed.
    replicates
        Those of other seeds.
    of_parameters
        Whether the metrics are of parameters, so that fits without any are left out.
    """

    def __init__(
        self, trials: "pd.DataFrame", replicates: "pd.DataFrame", of_parameters: bool
    ) -> None:
        without_parameters = trials[KEPT_DETAIL].notna() & of_parameters
        self.any_without_parameters = bool(without_parameters.any())
        trials = trials[~without_parameters]
        self.n_trials = len(trials)
        self.good = trials[trials["status"] == "ok"]
        """The trials that did not fail."""
        self.refusals = _list_refusals(self.good)
        self.certificate_notes = certificate_notes(self.good)
        self._seed_rows = SeedRows(trials, replicates)
        self._scores: dict[str, Array] = {}
        self._sampling_errors: dict[str, list[Array]] = {}

    def scores(self, metric: str) -> Array:
        """Lay out the scores of a metric by seed and split (`SeedRows.scores`)."""
        if metric not in self._scores:
            self._scores[metric] = self._seed_rows.scores(metric)
        return self._scores[metric]

    def sampling_errors(self, metric: str) -> list[Array]:
        """List the Monte-Carlo errors and the floors of a metric, of trials that have them."""
        if metric not in self._sampling_errors:
            columns = [self.good[f"{metric}_{suffix}"] for suffix in _SAMPLED]
            arrays = [column.to_numpy(dtype=np.float64) for column in columns]
            self._sampling_errors[metric] = [values[np.isfinite(values)] for values in arrays]
        return self._sampling_errors[metric]


def _table_entry(
    benchmark: "Benchmark",
    key: Key,
    point: dict[str, str],
    rows: CellRows,
    split: int | None,
    paper: PaperValue | None,
    protocol: bool,
) -> TableEntry:
    metric, statistic = key[2:]
    metric_info, scores = get_metric_info(metric), rows.scores(metric)
    values = average_over_seeds(scores)
    mc_errors, floors = rows.sampling_errors(metric)
    floor = summarise_values("mean", floors)[0]
    mc_se = summarise_values("mean", mc_errors)[0]
    if mc_errors.size < values.size:  # the reference of some split supports no error
        mc_se = None
    # An error that each trial has by itself shows in the spread of the trials; that of a sampled
    # truth does not.
    shared = None if floor is None else mc_se
    estimate, seed_sd = _estimate(statistic, scores, shared)
    notes = [note for note in benchmark.notes if _concerns(note, key)]
    texts = [" ".join(note.text.split()) for note in notes]
    known_verdicts = [note.verdict for note in notes if note.verdict]
    causes = [note.cause for note in notes if note.cause]
    judgement = judge(
        estimate,
        paper,
        metric_info,
        known_verdict=known_verdicts[0] if known_verdicts else None,
        cause=causes[0] if causes else "unknown",
        protocol=protocol,
        lacks_parameters=rows.any_without_parameters,
    )
    difference = judgement.difference
    margin = None
    if paper is not None and metric_info.direction != "ratio":
        margin = metric_info.margin_of(paper.value)
    remarks = [
        *texts,
        *_refusal_notes(rows.refusals, metric),
        *rows.certificate_notes,
        *score_certificate_notes(rows.good, metric),
        *_remarks(estimate, metric_info, floor, split, judgement),
    ]
    if paper and difference and is_tested_given_splits(estimate, paper):
        evidence = paper.same_splits
        remarks.append(GIVEN_THE_SPLITS.format(evidence=evidence, replicates=len(scores)))
    is_tested = difference is not None and difference.se > 0  # without noise there is no test
    return TableEntry(
        benchmark.name,
        *key,
        ours=estimate.value,
        ours_se=estimate.se,
        n_trials=rows.n_trials,
        n_failed=estimate.failed,
        replicates=len(scores),
        seed_sd=seed_sd,
        paper=paper.value if paper else None,
        paper_se=paper.stderr if paper else None,
        paper_sd=paper.deviation if paper else None,
        paper_source=paper.source if paper else None,
        counted=paper is not None and paper.counted,
        mc_se=mc_se,
        floor=floor,
        z=difference.z if difference and math.isfinite(difference.z) else None,
        df=difference.df if difference and math.isfinite(difference.df) else None,
        p=difference.p if difference and is_tested else None,
        low=difference.value - difference.half_width if difference else None,
        high=difference.value + difference.half_width if difference else None,
        margin=margin,
        # a split on which some seed has a score is among the values
        failed_as_worst=median_failed_as_worst(values, scores.shape[1] - values.size, metric_info),
        verdict=judgement.verdict,
        note="\n".join(remarks) or None,
        point=point,
    )


def _estimate(
    statistic: str, scores: Array, shared: float | None
) -> tuple[Estimate, float | None]:
    """Estimate a statistic from the scores (R, n) of R seeds, and its deviation between them.

    With one seed the deviation is None. `shared` is the error that all trials share.
    """
    values = average_over_seeds(scores)
    value, se = summarise_values(statistic, values)
    seed_sd = None
    if len(scores) > 1 and value is not None:
        by_seed = statistics_by_seed(statistic, scores)
        value, seed_sd = _mean_and_deviation(by_seed[np.isfinite(by_seed)])
    # a split counts once, however many seeds failed on it
    failed = int((~np.isfinite(scores)).any(axis=0).sum())
    noise = measure_seed_noise(statistic, scores)
    return Estimate(value, se, values.size, failed, shared, noise), seed_sd


def _mean_and_deviation(values: Array) -> tuple[float | None, float | None]:
    """Compute the mean of the statistics of several seeds, and their standard deviation."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(values.mean())
        deviation = float(values.std(ddof=1)) if values.size > 1 else math.nan
    return mean if math.isfinite(mean) else None, deviation if math.isfinite(deviation) else None


def refusal_notes(rows: "pd.DataFrame", metric: str) -> list[str]:
    """List why a score of fits that did not fail could not be computed, each reason once.

    `rows` as for `compare_with_papers`.
    """
    return _refusal_notes(_list_refusals(rows[rows["status"] == "ok"]), metric)


def _list_refusals(good: "pd.DataFrame") -> list[tuple[str, str]]:
    """List the scores of fits that did not fail which could not be computed, each with the reason.

    A reason is listed once for each metric.
    """
    refusals: dict[tuple[str, str], None] = {}
    for problem in good["reason"].dropna().unique():
        # metrics are columns
        refusals.update(dict.fromkeys(split_refusals(problem, good.columns).items()))
    return list(refusals)


def _refusal_notes(refusals: Sequence[tuple[str, str]], metric: str) -> list[str]:
    return [f"not computed: {name}: {reason}" for name, reason in refusals if name == metric]


def _remarks(
    estimate: Estimate,
    metric_info: MetricInfo,
    floor: float | None,
    split: int | None,
    judgement: Judgement,
) -> Iterator[str]:
    if floor is not None:
        yield SAMPLED_FUNCTIONS if metric_info.by_samples else SAMPLED_TRUTH
    if split is not None:
        yield ONE_SPLIT.format(split)
    if estimate.failed and estimate.value is not None and metric_info.direction != "ratio":
        yield SURVIVORS
    if judgement.note:
        yield from judgement.note.split("\n")


def median_failed_as_worst(values: Array, failed: int, metric_info: MetricInfo) -> float | None:
    """Compute the median of all trials, where those that failed are worse than all others.

    None where none failed, or so many that the median is one of them, and for metrics without a
    worst value.
    """
    if not failed or metric_info.direction not in ("lower", "higher"):
        return None
    worst = math.inf if metric_info.direction == "lower" else -math.inf
    median = float(np.median(np.append(values, [worst] * failed)))
    return median if math.isfinite(median) else None


def summarise_values(statistic: str, values: Array) -> tuple[float | None, float | None]:
    """Compute a statistic of finite values and its standard error.

    None where there are too few or they overflow.
    """
    location, standard_error = STATISTICS[statistic]
    # Diverged trials can be finite and still overflow when squared or summed.
    with np.errstate(over="ignore", invalid="ignore"):
        value = location(values) if values.size else math.nan
        se = standard_error(values) if values.size > 1 else math.nan
    return value if math.isfinite(value) else None, se if math.isfinite(se) else None


def _concerns(note: "Note", key: Key) -> bool:
    """Return whether a note is about a number; what it leaves open it is about all of."""
    conditions = (note.dataset, note.entry, note.metric, note.statistic)
    return all(required in (None, name) for required, name in zip(conditions, key, strict=True))
