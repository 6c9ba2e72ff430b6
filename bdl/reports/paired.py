"""Differences split by split, also as tables: of each entry from the baseline, and of two runs."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.metrics import get_metric_info
from bdl.records.row import HYPER_PREFIX
from bdl.reports.intervals import (
    BETTER,
    DIFFERS,
    MIN_SPLITS,
    UNDECIDED,
    WORSE,
    Failures,
    Interval,
    interval_half_width,
    judge_interval,
)
from bdl.reports.layout import Section, format_number, metric_heading, metric_name
from bdl.reports.statistics import format_setting, group_by, group_by_split, mean_se
from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark


class PairedDifference(NamedTuple):
    """Mean over splits of entry minus baseline.

    It is of one metric on one dataset, at one point of a sweep.
    """

    dataset: str
    entry: str
    metric: str
    n: int
    """Pairs: splits on which both have a finite value."""
    mean: float | None = None
    """In the metric's unit; None without a pair, or where it overflows."""
    low: float | None = None
    """Lower end of the 95 % interval; None with fewer than two pairs, or where it overflows."""
    high: float | None = None
    """Upper end."""
    failed: int = 0
    """Splits on which the entry failed and the baseline did not."""
    baseline_failed: int = 0
    """Splits on which the baseline failed and the entry did not."""
    point: Mapping[str, str] = {}
    """Path of each axis of a sweep to the JSON of its value; empty without a sweep."""

    @property
    def half_width(self) -> float | None:
        """Half the length of the interval."""
        return None if self.mean is None or self.high is None else self.high - self.mean

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval; None with fewer than three pairs, from which nothing follows."""
        if self.low is None or self.high is None or self.n < MIN_SPLITS:
            return None
        return Interval(self.low, self.high)

    @property
    def failures(self) -> Failures:
        """Failures of the entry, and of the baseline, where the other has a score."""
        return Failures(self.failed, self.baseline_failed)

    @property
    def verdict(self) -> str:
        """``"better"`` or ``"worse"`` than the baseline, or ``"undecided"``.

        Undecided are intervals that hold 0, fewer than three pairs, and what speaks for the one
        of the two that failed where the other did not. Of a metric without a better and a worse:
        ``"differs"`` or ``"undecided"``.
        """
        if self.interval is None:
            return UNDECIDED
        direction = get_metric_info(self.metric).direction
        verdict = judge_interval(self.interval, direction, failures=self.failures)
        return verdict if verdict in (BETTER, WORSE, DIFFERS) else UNDECIDED


def paired_differences(
    benchmark: "Benchmark", rows: "pd.DataFrame", overlap: Mapping[str, float]
) -> list[PairedDifference]:
    """Compare every entry with the baseline, on the splits that both finished.

    The list is empty without a baseline.

    `rows` are as for `bdl.reports.comparison.compare_with_papers`; in a sweep the baseline is the one of the
    same point. `overlap` maps a data set whose splits share training rows to its test rows per
    training row. The order is metric, then cell of the benchmark, for the metrics that rank methods
    and for the data sets on which the baseline runs.

    Notes
    -----
    The interval is mean ± t s sqrt(1/n + r), with s the standard deviation of the n differences, t
    the quantile of Student's t with n - 1 degrees of freedom, and r = n_test / n_train the
    overlap. Splits that share training rows give differences that are not independent; s^2 / n
    would be too small a variance of their mean, and r s^2 is what Nadeau and Bengio add
    ("Inference for the generalization error", Machine Learning 52, 2003).
    """
    metrics = [name for name in benchmark.metrics if get_metric_info(name).ranks_methods]
    datasets = {dataset for dataset, entry, _ in benchmark.cells if entry == benchmark.baseline}
    cells = []
    for dataset, entry, point in benchmark.cells:
        if dataset in datasets and entry != benchmark.baseline:
            cells.append((dataset, entry, point))
    rows = rows.reindex(columns=["dataset", "entry", *benchmark.axes, "split", "status", *metrics])
    groups = group_by_split(rows, benchmark.axes)
    differences, no_rows = [], rows[:0].set_index("split")
    for metric, (dataset, entry, point) in product(metrics, cells):
        texts = point.texts.values()
        entry_rows = groups.get((dataset, entry, *texts), no_rows)
        baseline_rows = groups.get((dataset, str(benchmark.baseline), *texts), no_rows)
        scores = scores_by_split(entry_rows, metric)
        baseline_scores = scores_by_split(baseline_rows, metric)
        unpaired = PairedDifference(dataset, entry, metric, 0, point=dict(point.texts))
        differences.append(
            pair_scores(unpaired, scores, baseline_scores, overlap.get(dataset, 0.0))
        )
    return differences


def scores_by_split(rows: "pd.DataFrame", metric: str) -> "pd.Series[float]":
    """Return a metric of rows whose index is the split.

    NaN where a fit failed or has no finite value.
    """
    values = rows[metric].astype(float)
    return values.where(np.isfinite(values) & (rows["status"] == "ok"))


def pair_scores(
    unpaired: PairedDifference,
    scores: "pd.Series[float]",
    baseline: "pd.Series[float]",
    overlap: float,
) -> PairedDifference:
    """Compare scores by split with those of a baseline; return `unpaired` with their difference.

    The interval is that of `paired_differences`.
    """
    # A split that only one of them has is NaN in the difference.
    values = np.asarray(scores - baseline, dtype=np.float64)
    values = values[np.isfinite(values)]
    mean, low, high = _interval(values, overlap)
    return unpaired._replace(
        n=values.size,
        mean=mean,
        low=low,
        high=high,
        failed=_count_lone_failures(scores, baseline),
        baseline_failed=_count_lone_failures(baseline, scores),
    )


def _count_lone_failures(scores: "pd.Series[float]", reference: "pd.Series[float]") -> int:
    """Count the splits on which a fit failed while that of the other did not.

    NaN is a failed fit.
    """
    return len(scores.index[scores.isna()].intersection(reference.index[reference.notna()]))


def _interval(values: Array, overlap: float) -> tuple[float | None, float | None, float | None]:
    """Compute the mean and the ends of its interval.

    None for what too few values leave open, or where scores of diverged fits overflow.
    """
    if values.size < 2:
        return (float(values[0]) if values.size else None), None, None
    with np.errstate(over="ignore", invalid="ignore"):
        # Nadeau and Bengio: s^2 / n (1 + n r) is s^2 (1 / n + r)
        mean, se = float(values.mean()), mean_se(values) * math.sqrt(1 + values.size * overlap)
    half = interval_half_width(se, values.size - 1)
    if not math.isfinite(mean):
        return None, None, None
    return (mean, mean - half, mean + half) if math.isfinite(half) else (mean, None, None)


def difference_sections(
    title: Callable[[str], str], rows: Iterable[tuple[PairedDifference, str]]
) -> list[Section]:
    """Lay out differences, each with its verdict, a table a metric."""
    arranged = []
    for metric, metric_rows in group_by(rows, lambda row: row[0].metric).items():
        columns = ["Dataset", *metric_rows[0][0].point, "Method"]
        columns += ["Difference", "95 % interval", "Verdict", "n"]
        lines = []
        for difference, verdict in metric_rows:
            count = f"{difference.n}"
            if difference.failed or difference.baseline_failed:
                count += f" (failed: {difference.failed}, "
                count += f"of the baseline {difference.baseline_failed})"
            lines.append(
                (
                    difference.dataset,
                    *map(format_setting, difference.point.values()),
                    difference.entry,
                    *interval_texts(difference),
                    verdict,
                    count,
                )
            )
        arranged.append(Section.of(title(metric), columns, lines))
    return arranged


def paired_sections(
    benchmark: "Benchmark", differences: Sequence[PairedDifference]
) -> list[Section]:
    """Lay out the differences from the baseline, a table a metric."""

    def title(metric: str) -> str:
        difference = f"mean difference from {benchmark.baseline}"
        return f"{benchmark.name}: {metric_heading(metric)}, {difference}"

    rows = (
        (difference, difference.verdict if difference.n else "no pair")
        for difference in differences
    )
    return difference_sections(title, rows)


def tally_section(benchmark: "Benchmark", differences: Sequence[PairedDifference]) -> Section:
    """Count the data sets (and points of a sweep) on which each entry is better, and worse."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for difference in differences:
        if difference.n:
            verdicts = counts.setdefault((difference.metric, difference.entry), Counter())
            verdicts[difference.verdict] += 1
    lines = []
    for (metric, entry), verdicts in counts.items():
        wins, ties, losses = (str(verdicts[name]) for name in ("better", "undecided", "worse"))
        lines.append((metric_name(metric), entry, wins, ties, losses))
    columns = ["Metric", "Method", "Wins", "Ties", "Losses"]
    title = f"{benchmark.name}: data sets on which a method is better than {benchmark.baseline}"
    return Section.of(title, columns, lines)


def interval_texts(difference: PairedDifference) -> tuple[str, str]:
    """Write the mean and the ends of its interval; empty where there is none."""
    if difference.mean is None:
        return "", ""
    mean = format_number(difference.mean)
    if difference.low is None or difference.high is None:
        return mean, ""
    return mean, f"{format_number(difference.low)} to {format_number(difference.high)}"


ROUNDING = 1e-6
"""Scores that differ by less, relative to their size, are the same: machines round differently."""


class ScoreChange(NamedTuple):
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
        """Verdict on the second run.

        ``"same"``, ``"better"``, ``"worse"``, ``"undecided"``, ``"differs"`` (of metrics without a
        better and a worse), ``"no pair"``, or ``"only in the first"`` or ``second``.
        """
        if self.only:
            return f"only in the {self.only}"
        if self.same:
            return "same"
        if not self.difference.n:
            return "no pair"
        return self.difference.verdict

    @property
    def record(self) -> dict[str, Any]:
        """The difference and its verdict as JSON values."""
        names = {"failed": "failed_in_second_alone", "baseline_failed": "failed_in_first_alone"}
        values: dict[str, Any] = {}
        for name, value in self.difference._asdict().items():
            values[names.get(name, name)] = value
        return values | {"point": dict(self.difference.point), "verdict": self.verdict}


class ChangedHyperparameter(NamedTuple):
    """A hyper-parameter whose values differ."""

    dataset: str
    entry: str
    point: Mapping[str, str]
    name: str
    first: float
    """Median over the splits that both have."""
    second: float
    splits: int
    """Number of splits on which it differs."""


def compare_scores(
    first: "pd.DataFrame",
    second: "pd.DataFrame",
    metrics: Sequence[str],
    axes: Sequence[str],
    overlap: Mapping[str, float],
) -> list[ScoreChange]:
    """Compare the scores of the final rows of two runs.

    Durations, which depend on the machine, are left out. Rows and overlap are as
    `paired_differences` takes them; the intervals are those.
    """
    changes = []
    for metric in metrics:
        if get_metric_info(metric).direction == "ratio":
            continue
        for cell, first_rows, second_rows in _matched_cells(first, second, axes):
            unpaired = cell._replace(metric=metric)
            if first_rows is None or second_rows is None:
                only = "second" if first_rows is None else "first"
                changes.append(ScoreChange(unpaired, False, only))
                continue
            before = scores_by_split(first_rows, metric)
            after = scores_by_split(second_rows, metric)
            difference = pair_scores(unpaired, after, before, overlap.get(cell.dataset, 0.0))
            same = set(before.index) == set(after.index)
            same = same and bool(_nearly_equal(before, after.loc[before.index]).all())
            changes.append(ScoreChange(difference, same, ""))
    return changes


def changed_hyperparameters(
    first: "pd.DataFrame", second: "pd.DataFrame", axes: Sequence[str]
) -> list[ChangedHyperparameter]:
    """List the hyper-parameters that differ on a split of both runs.

    Arguments are as in `compare_scores`.
    """
    changed = []
    for cell, first_rows, second_rows in _matched_cells(first, second, axes):
        if first_rows is None or second_rows is None:
            continue
        columns = dict.fromkeys((*first_rows.columns, *second_rows.columns))
        for column in columns:
            if not column.startswith(HYPER_PREFIX):
                continue
            before, after, splits = _hyperparameter_medians(first_rows, second_rows, column)
            if splits:
                name = column.removeprefix(HYPER_PREFIX)
                changed.append(
                    ChangedHyperparameter(
                        cell.dataset, cell.entry, cell.point, name, before, after, splits
                    )
                )
    return changed


def change_sections(changes: Sequence[ScoreChange], title: str) -> list[Section]:
    """Lay out changes, a table a metric."""
    rows = ((change.difference, change.verdict) for change in changes)
    return difference_sections(lambda metric: f"{title}: {metric_heading(metric)}", rows)


def hyperparameter_section(changed: Sequence[ChangedHyperparameter]) -> Section:
    """Lay out hyper-parameters that differ."""
    columns = ["Dataset", "Method", "Hyper-parameter", "First", "Second", "Splits"]
    rows = []
    for hyperparameter in changed:
        words = [hyperparameter.entry]
        for path, value in hyperparameter.point.items():
            words.append(f"{path.rpartition('.')[2]}={json.loads(value)}")
        rows.append(
            (
                hyperparameter.dataset,
                " ".join(words),
                hyperparameter.name,
                f"{hyperparameter.first:.3g}",
                f"{hyperparameter.second:.3g}",
                f"{hyperparameter.splits}",
            )
        )
    return Section.of("Hyper-parameters that differ, medians over splits", columns, rows)


def _matched_cells(
    first: "pd.DataFrame", second: "pd.DataFrame", axes: Sequence[str]
) -> Iterator[tuple[PairedDifference, "pd.DataFrame | None", "pd.DataFrame | None"]]:
    """Yield the cells of two runs, as differences without a metric, with the rows of both."""
    first_groups, second_groups = (group_by_split(rows, axes) for rows in (first, second))
    for key in dict.fromkeys((*first_groups, *second_groups)):
        dataset, entry, *point = map(str, key)
        unpaired = PairedDifference(
            dataset, entry, "", 0, point=dict(zip(axes, point, strict=True))
        )
        yield unpaired, first_groups.get(key), second_groups.get(key)


def _nearly_equal(first: "pd.Series[float]", second: "pd.Series[float]") -> NDArray[np.bool_]:
    return np.isclose(first, second, rtol=ROUNDING, atol=0, equal_nan=True)


def _hyperparameter_medians(
    first: "pd.DataFrame", second: "pd.DataFrame", name: str
) -> tuple[float, float, int]:
    """Compute the medians of a hyper-parameter in two runs, and the splits on which it differs.

    Both are over the splits that both runs have.
    """
    shared = first.index.intersection(second.index)
    # one of the runs may not have the hyper-parameter at all
    a = first.reindex(columns=[name]).loc[shared, name].astype(float)
    b = second.reindex(columns=[name]).loc[shared, name].astype(float)
    return float(a.median()), float(b.median()), int((~_nearly_equal(a, b)).sum())
