"""Comparative claims of the papers, judged by our rows."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports.layout import Section, format_number, metric_with_unit
from bdl.reports.paired import PairedDifference, interval_texts, pair_scores, scores_by_split
from bdl.reports.statistics import format_setting, group_by_split, point_text
from bdl.reports.verdicts import MIN_SPLITS
from bdl.spec.fields import to_canonical_json

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark
    from bdl.spec.sections import Claim

CONFIRMED, CONTRADICTED, NOT_SHOWN = "confirmed", "contradicted", "not shown"


class Finding(NamedTuple):
    """A claim on one data set, at one point of the axes that it leaves open."""

    less: float
    """Mean of the side that is said to have less, over the splits of both."""
    than: float
    """Mean of the other side."""
    difference: PairedDifference
    """First side minus `Claim.times` the other, split by split."""

    @property
    def verdict(self) -> str:
        """Verdict by the 95 % interval of the difference.

        ``confirmed`` where it is below 0, ``contradicted`` where it is above, else ``not shown``.
        ``undecided`` are fewer than three pairs, and what speaks for a side that failed where the
        other did not.
        """
        interval = self.difference
        if interval.low is None or interval.high is None or interval.n < MIN_SPLITS:
            return "undecided"
        if interval.high < 0:
            return "undecided" if interval.failed else CONFIRMED
        if interval.low > 0:
            return "undecided" if interval.baseline_failed else CONTRADICTED
        return NOT_SHOWN


class ClaimVerdict(NamedTuple):
    """A claim and what the rows say about it."""

    claim: "Claim"
    findings: tuple[Finding, ...]
    """By data set, then by point of the axes that the claim leaves open; at least one."""

    @property
    def verdict(self) -> str:
        """The verdict of all findings, or how many have which."""
        counts = Counter(finding.verdict for finding in self.findings)
        if len(counts) == 1:
            return next(iter(counts))
        order = (CONFIRMED, CONTRADICTED, NOT_SHOWN, "undecided")
        texts = [f"{verdict} {counts[verdict]}" for verdict in order if counts[verdict]]
        return f"{', '.join(texts)} of {len(self.findings)}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The findings as mappings, for a frame."""
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
                    "difference": difference.mean,
                    "low": difference.low,
                    "high": difference.high,
                    "n": difference.n,
                    "verdict": finding.verdict,
                }
            )
        return records


def judge_claims(
    benchmark: "Benchmark", rows: "pd.DataFrame", overlap: Mapping[str, float]
) -> list[ClaimVerdict]:
    """Judge the claims of a benchmark, in the order of its file.

    Claims of which no split has both sides are left out. Arguments are as
    `bdl.reports.paired.paired_differences` takes them, whose intervals these are.
    """
    groups = group_by_split(rows, benchmark.axes)
    verdicts = (
        ClaimVerdict(claim, tuple(_findings(claim, benchmark, groups, overlap)))
        for claim in benchmark.claims
    )
    return [verdict for verdict in verdicts if verdict.findings]


def _findings(
    claim: "Claim",
    benchmark: "Benchmark",
    groups: "Mapping[tuple[Hashable, ...], pd.DataFrame]",
    overlap: Mapping[str, float],
) -> Iterator[Finding]:
    """Yield a finding for each data set and open point where a split has both sides of a claim.

    `groups` has the rows by data set, entry and values of the axes.
    """
    sides = claim.sides()
    open_axes = [axis for axis in benchmark.axes if axis not in {*sides[0][1], *sides[1][1]}]
    open_points = dict.fromkeys(
        tuple(point.texts[axis] for axis in open_axes) for point in benchmark.points
    )
    for dataset, texts in product(map(str, claim.datasets or benchmark.datasets), open_points):
        open_point = dict(zip(open_axes, texts, strict=True))
        scores = []
        for entry, settings, metric in sides:
            fixed_point = {path: to_canonical_json(value) for path, value in settings.items()}
            point = open_point | fixed_point
            side_rows = groups.get((dataset, entry, *(point[axis] for axis in benchmark.axes)))
            if side_rows is not None and metric in side_rows:
                scores.append(scores_by_split(side_rows, metric))
        if len(scores) < 2:
            continue
        less, than = scores
        both = less.dropna().index.intersection(than.dropna().index)
        if both.size:
            unpaired = PairedDifference(
                dataset, claim.less.entry, sides[0][2], 0, point=open_point
            )
            difference = pair_scores(unpaired, less, claim.times * than, overlap.get(dataset, 0.0))
            yield Finding(float(less[both].mean()), float(than[both].mean()), difference)


def claim_sections(benchmark: "Benchmark", verdicts: Sequence[ClaimVerdict]) -> list[Section]:
    """Lay out claims, a table each: both sides, their difference and the verdict."""
    sections = []
    for verdict in verdicts:
        claim, findings = verdict
        names = [
            ", ".join(filter(None, (side.entry, _point_text(side.at), side.metric)))
            for side in (claim.less, claim.than)
        ]
        heading = "Difference" if claim.times == 1 else f"Difference from {claim.times:g} times"
        columns = ["Dataset", *findings[0].difference.point, *names, heading, "Verdict", "n"]
        rows = []
        for finding in findings:
            difference = finding.difference
            mean, interval = interval_texts(difference)
            rows.append(
                (
                    difference.dataset,
                    *map(format_setting, difference.point.values()),
                    format_number(finding.less),
                    format_number(finding.than),
                    f"{mean} ({interval})" if interval else mean,
                    finding.verdict,
                    f"{difference.n}",
                )
            )
        point = f" at {_point_text(claim.at)}" if claim.at else ""
        summary = f"{benchmark.name}: {claim.text} ({claim.source}): {verdict.verdict}"
        title = f"{summary}. {metric_with_unit(claim.metric)}{point}"
        sections.append(Section.of(title, columns, rows))
    return sections


def _point_text(values: Mapping[str, Any]) -> str:
    return point_text({path: to_canonical_json(value) for path, value in values.items()})
