"""Comparative claims of the papers, judged by our rows."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.metrics import get_metric_info
from bdl.reports.intervals import BETTER, DIFFERS, EQUIVALENT, UNDECIDED, WORSE, judge_interval
from bdl.reports.layout import Section, format_number, metric_with_unit
from bdl.reports.paired import PairedDifference, interval_texts, pair_scores, scores_by_split
from bdl.reports.statistics import format_setting, group_by_split, point_text
from bdl.spec.fields import to_canonical_json
from bdl.spec.sections import STREAM_RECORD

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark
    from bdl.spec.sections import Claim, Side

CONFIRMED, CONTRADICTED, NOT_SHOWN = "confirmed", "contradicted", "not shown"
NOT_JUDGED = "not judged"
_VERDICTS = {BETTER: CONFIRMED, WORSE: CONTRADICTED, UNDECIDED: UNDECIDED}
"""Verdicts on a side that is said to have less, by those of `judge_interval`; else not shown."""
_VERDICTS_OF_EQUALITY = {EQUIVALENT: CONFIRMED, DIFFERS: CONTRADICTED}
"""Those on sides that are said to be alike; else not shown."""


RECORD_FIELDS = (
    "claim",
    "source",
    "dataset",
    "less",
    "than",
    "times",
    "margin",
    "difference",
    "low",
    "high",
    "n",
    "verdict",
)
"""Fields of the record of a finding."""


class Finding(NamedTuple):
    """A claim on one data set, at one point of the axes that it leaves open."""

    less: float
    """Mean of the side that is said to have less, over the splits of both."""
    than: float
    """Mean of the other side."""
    difference: PairedDifference
    """First side minus `Claim.times` the other, split by split."""

    margin: float | None = None
    """Largest difference of sides that are alike; None where one is said to have less."""

    @property
    def verdict(self) -> str:
        """Verdict by the 95 % interval of the difference.

        ``confirmed`` where it is below 0, ``contradicted`` where it is above, else ``not shown``.
        For sides that are said to be alike: inside the margin, wholly outside of it, or else.
        ``undecided`` are fewer than three pairs, and what speaks for a side that failed where the
        other did not.
        """
        interval, failures = self.difference.interval, self.difference.failures
        if interval is None:
            return UNDECIDED
        if self.margin is None:
            # Whatever the metric means, the side that is said to have less is right by being
            # lower.
            return _VERDICTS.get(judge_interval(interval, "lower", failures=failures), NOT_SHOWN)
        # A failure of either side may hide a difference in either direction.
        if any(failures):
            return UNDECIDED
        return _VERDICTS_OF_EQUALITY.get(judge_interval(interval, margin=self.margin), NOT_SHOWN)


class ClaimVerdict(NamedTuple):
    """A claim and what the rows say about it."""

    claim: "Claim"
    findings: tuple[Finding, ...]
    """By data set, then by point of the axes that the claim leaves open; none where no split has
    both sides.
    """

    @property
    def verdict(self) -> str:
        """The verdict of all findings, or how many have which; ``not judged`` without a finding."""
        if not self.findings:
            return NOT_JUDGED
        counts = Counter(finding.verdict for finding in self.findings)
        if len(counts) == 1:
            return next(iter(counts))
        order = (CONFIRMED, CONTRADICTED, NOT_SHOWN, UNDECIDED)
        texts = [f"{verdict} {counts[verdict]}" for verdict in order if counts[verdict]]
        return f"{', '.join(texts)} of {len(self.findings)}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The findings as mappings, for a frame: `RECORD_FIELDS`, and the axes of a sweep.

        A claim without a finding is one record, which has no numbers.
        """
        if not self.findings:
            record = dict.fromkeys(RECORD_FIELDS) | {"claim": self.claim.text}
            return [record | {"source": self.claim.source, "n": 0, "verdict": self.verdict}]
        records = []
        for finding in self.findings:
            difference = finding.difference
            records.append(
                {
                    "claim": self.claim.text,
                    "source": self.claim.source,
                    "dataset": difference.dataset,
                    **difference.point,
                    "less": finding.less,
                    "than": finding.than,
                    "times": self.claim.times,
                    "margin": finding.margin,
                    "difference": difference.mean,
                    "low": difference.low,
                    "high": difference.high,
                    "n": difference.n,
                    "verdict": finding.verdict,
                }
            )
        return records


def judge_claims(
    benchmark: "Benchmark",
    rows: "pd.DataFrame",
    points: "pd.DataFrame",
    overlap: Mapping[str, float],
) -> list[ClaimVerdict]:
    """Judge the claims of a benchmark, in the order of its file.

    `points` are the recorded scores, as
    `bdl.reports.curves.average_curves` takes them; the other arguments are as
    `bdl.reports.paired.paired_differences` takes them, whose intervals these are.
    """
    scores = _Scores(benchmark, rows, points)
    verdicts: list[ClaimVerdict] = []
    for claim in benchmark.claims:
        findings = tuple(_findings(claim, benchmark, scores, overlap))
        verdicts.append(ClaimVerdict(claim, findings))
    return verdicts


class _Scores:
    """Scores of the cells of a benchmark, at the end of the fits and at recorded counts."""

    def __init__(
        self, benchmark: "Benchmark", rows: "pd.DataFrame", points: "pd.DataFrame"
    ) -> None:
        self._axes = benchmark.axes
        self._rows = group_by_split(rows, benchmark.axes)
        self._points = points

    def of_side(
        self, side: "Side", dataset: str, open_point: Mapping[str, str]
    ) -> "pd.Series[float] | None":
        """Return the scores of a side by split, NaN where a fit failed; None without rows.

        `dataset` is that of a side which names none.
        """
        label, metric = str(side.dataset or dataset), str(side.metric)
        side_texts = {path: to_canonical_json(value) for path, value in side.at.items()}
        texts = {**open_point, **side_texts}
        key = (label, side.entry, *(texts[axis] for axis in self._axes))
        rows = self._rows.get(key)
        if rows is None or metric not in rows:
            return None
        if side.after is None:
            return scores_by_split(rows, metric)
        points = self._points
        columns = ("dataset", "entry", *self._axes, "metric", "at")
        for column, value in zip(columns, (*key, metric, side.after), strict=True):
            points = points[points[column] == value]
        if points.empty:
            return None
        values = points.set_index("split")["value"]
        return scores_by_split(rows.assign(**{metric: values}), metric)


def _findings(
    claim: "Claim", benchmark: "Benchmark", scores: _Scores, overlap: Mapping[str, float]
) -> Iterator[Finding]:
    """Yield a finding for each data set and open point where a split has both sides of a claim."""
    sides = claim.sides()
    open_axes = [axis for axis in benchmark.axes if axis not in {*sides[0].at, *sides[1].at}]
    open_points: dict[tuple[str, ...], None] = {}  # an ordered set
    for point in benchmark.points:
        open_points[tuple(point.texts[axis] for axis in open_axes)] = None
    metric = str(sides[1].metric)
    datasets = [sides[0].dataset] if sides[0].dataset else claim.datasets or benchmark.datasets
    for dataset, texts in product(map(str, datasets), open_points):
        open_point = dict(zip(open_axes, texts, strict=True))
        less, than = (scores.of_side(side, dataset, open_point) for side in sides)
        if less is None or than is None:
            continue
        # both means are over the same splits as the difference, or they would not add up to it
        both = less.dropna().index.intersection(than.dropna().index)
        if both.size:
            unpaired = PairedDifference(dataset, claim.less.entry, metric, 0, point=open_point)
            # "less than half" is a difference from half of it, which splits give an interval
            multiple = claim.times * than
            difference = pair_scores(unpaired, less, multiple, overlap.get(dataset, 0.0))
            margin = get_metric_info(metric).margin_of(float(multiple[both].mean()))
            yield Finding(
                float(less[both].mean()),
                float(than[both].mean()),
                difference,
                margin if claim.equal else None,
            )


def claim_sections(benchmark: "Benchmark", verdicts: Sequence[ClaimVerdict]) -> list[Section]:
    """Lay out claims, a table each: both sides, their difference and the verdict."""
    sections = []
    for verdict in verdicts:
        claim, findings = verdict
        point = f" at {_point_text(claim.at)}" if claim.at else ""
        summary = f"{benchmark.name}: {claim.text} ({claim.source}): {verdict.verdict}"
        title = f"{summary}. {metric_with_unit(claim.metric)}{point}"
        if not findings:
            reason = "no split has scores of both sides"
            sections.append(Section.of(title, ["Verdict", "Reason"], [(NOT_JUDGED, reason)]))
            continue
        names = [_side_text(benchmark, side) for side in (claim.less, claim.than)]
        heading = "Difference" if claim.times == 1 else f"Difference from {claim.times:g} times"
        columns = ["Dataset", *findings[0].difference.point, *names, heading]
        if claim.equal:
            columns.append("Margin")
        rows = []
        for finding in findings:
            difference = finding.difference
            mean, interval = interval_texts(difference)
            cells = [
                difference.dataset,
                *map(format_setting, difference.point.values()),
                format_number(finding.less),
                format_number(finding.than),
                f"{mean} ({interval})" if interval else mean,
            ]
            if finding.margin is not None:
                cells.append(format_number(finding.margin))
            rows.append((*cells, finding.verdict, f"{difference.n}"))
        sections.append(Section.of(title, [*columns, "Verdict", "n"], rows))
    return sections


def _side_text(benchmark: "Benchmark", side: "Side") -> str:
    after = None
    if side.after:
        records = [
            benchmark.record_of(str(dataset), entry)
            for dataset, entry in benchmark.pairs
            if entry == side.entry
        ]
        unit = next((record.unit for record in records if record), STREAM_RECORD.unit)
        after = f"after {side.after:,} {unit}"
    texts = (side.entry, side.dataset, _point_text(side.at), side.metric, after)
    return ", ".join(str(text) for text in texts if text)


def _point_text(values: Mapping[str, Any]) -> str:
    return point_text({path: to_canonical_json(value) for path, value in values.items()})
