"""Comparative claims of the papers, judged by our rows."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports.layout import Section, measure, quantity
from bdl.reports.paired import PairedDifference, numbers, paired, scores
from bdl.reports.statistics import by_split, named, short
from bdl.reports.verdicts import FEWEST
from bdl.spec.fields import canonical

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
        """``confirmed`` or ``contradicted`` where the 95 % interval is below or above 0, else ``not shown``.

        Fewer than three pairs are ``undecided``, and what speaks for a side that failed where the
        other did not.
        """
        found = self.difference
        if found.low is None or found.high is None or found.n < FEWEST:
            return "undecided"
        if found.high < 0:
            return "undecided" if found.failed else CONFIRMED
        if found.low > 0:
            return "undecided" if found.baseline_failed else CONTRADICTED
        return NOT_SHOWN


class Judged(NamedTuple):
    """A claim and what the rows say about it."""

    claim: "Claim"
    findings: tuple[Finding, ...]
    """By data set, then by point of the axes that the claim leaves open; at least one."""

    @property
    def verdict(self) -> str:
        """The verdict of all findings, or how many have which."""
        counts = Counter(each.verdict for each in self.findings)
        if len(counts) == 1:
            return next(iter(counts))
        order = (CONFIRMED, CONTRADICTED, NOT_SHOWN, "undecided")
        return f"{', '.join(f'{word} {counts[word]}' for word in order if counts[word])} of {len(self.findings)}"

    @property
    def records(self) -> list[dict[str, Any]]:
        """The findings as mappings, for a frame."""
        found, said = [], {"claim": self.claim.text, "source": self.claim.source}
        for each in self.findings:
            own = each.difference
            sides = {"less": each.less, "than": each.than, "times": self.claim.times}
            interval = {"difference": own.mean, "low": own.low, "high": own.high, "n": own.n}
            found.append(
                {
                    **said,
                    "dataset": own.dataset,
                    **own.point,
                    **sides,
                    **interval,
                    "verdict": each.verdict,
                }
            )
        return found


def judged_claims(
    benchmark: "Benchmark", rows: "pd.DataFrame", overlap: Mapping[str, float]
) -> list[Judged]:
    """Judge the claims of a benchmark, but those of which no split has both sides, in the order of the file.

    Arguments are as `bdl.reports.paired.paired_differences` takes them, whose intervals these are.
    """
    groups = by_split(rows, benchmark.axes)
    found = (
        Judged(claim, tuple(_findings(claim, benchmark, groups, overlap)))
        for claim in benchmark.claims
    )
    return [each for each in found if each.findings]


def _findings(
    claim: "Claim",
    benchmark: "Benchmark",
    groups: "Mapping[tuple[Hashable, ...], pd.DataFrame]",
    overlap: Mapping[str, float],
) -> Iterator[Finding]:
    """Yield what rows by data set, entry and values of the axes say, where a split has both sides."""
    sides = claim.sides()
    open_axes = [axis for axis in benchmark.axes if axis not in {*sides[0][1], *sides[1][1]}]
    places = dict.fromkeys(
        tuple(point.texts[axis] for axis in open_axes) for point in benchmark.points
    )
    for dataset, texts in product(map(str, claim.datasets or benchmark.datasets), places):
        place = dict(zip(open_axes, texts, strict=True))
        values = []
        for entry, given, metric in sides:
            point = {**place, **{path: canonical(value) for path, value in given.items()}}
            own = groups.get((dataset, entry, *(point[axis] for axis in benchmark.axes)))
            if own is not None and metric in own:
                values.append(scores(own, metric))
        if (
            len(values) == 2
            and (both := values[0].dropna().index.intersection(values[1].dropna().index)).size
        ):
            key = PairedDifference(dataset, claim.less.entry, sides[0][2], 0, point=place)
            difference = paired(key, values[0], claim.times * values[1], overlap.get(dataset, 0.0))
            yield Finding(float(values[0][both].mean()), float(values[1][both].mean()), difference)


def claim_sections(benchmark: "Benchmark", found: Sequence[Judged]) -> list[Section]:
    """Lay out claims, a table each: both sides, their difference and what follows."""
    sections = []
    for judged in found:
        claim, findings = judged
        names = [
            ", ".join(filter(None, (side.entry, _place(side.at), side.metric)))
            for side in (claim.less, claim.than)
        ]
        difference = "Difference" if claim.times == 1 else f"Difference from {claim.times:g} times"
        columns = ["Dataset", *findings[0].difference.point, *names, difference, "Verdict", "n"]
        rows = []
        for each in findings:
            own = each.difference
            place, means = (
                (own.dataset, *map(short, own.point.values())),
                map(quantity, (each.less, each.than)),
            )
            mean, interval = numbers(own)
            rows.append(
                (
                    *place,
                    *means,
                    f"{mean} ({interval})" if interval else mean,
                    each.verdict,
                    f"{own.n}",
                )
            )
        where = f" at {_place(claim.at)}" if claim.at else ""
        said = f"{benchmark.name}: {claim.text} ({claim.source}): {judged.verdict}"
        title = f"{said}. {measure(claim.metric)}{where}"
        sections.append(Section.of(title, columns, rows))
    return sections


def _place(values: Mapping[str, Any]) -> str:
    return named({path: canonical(value) for path, value in values.items()})
