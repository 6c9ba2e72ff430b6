"""Paired differences as tables, and who wins how often."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bdl.metrics import info, settings
from bdl.reports.axes import short
from bdl.reports.layout import Section, heading, quantity
from bdl.reports.paired import PairedDifference

if TYPE_CHECKING:
    from bdl.spec import Benchmark


def paired_sections(benchmark: "Benchmark", differences: Sequence[PairedDifference]) -> list[Section]:
    """Lay out the differences from the baseline, a table a metric.

    Parameters
    ----------
    benchmark
        Gives the baseline.
    differences
        As `bdl.reports.paired_differences` returns them.
    """
    groups: dict[str, list[tuple[str, PairedDifference, str]]] = {}
    for own in differences:
        verdict = own.verdict if own.n else "no pair"
        groups.setdefault(own.metric, []).append((own.dataset, own, verdict))
    title = "{}: {}, mean difference from {}"
    return [
        difference_section(title.format(benchmark.name, heading(metric), benchmark.baseline), rows)
        for metric, rows in groups.items()
    ]


def difference_section(title: str, rows: Sequence[tuple[str, PairedDifference, str]]) -> Section:
    """Lay out differences, each with the name of its data set and its verdict."""
    columns = ["Dataset", *rows[0][1].point, "Method", "Difference", "95 % interval", "Verdict", "n"]
    lines = [
        (dataset, *map(short, each.point.values()), each.entry, *_numbers(each), verdict, _count(each))
        for dataset, each, verdict in rows
    ]
    return Section.of(title, columns, lines)


def tally(benchmark: "Benchmark", differences: Sequence[PairedDifference]) -> Section:
    """Count on how many data sets (and points of a sweep) each entry is better, undecided and worse."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for difference in differences:
        if difference.n:
            counts.setdefault((difference.metric, difference.entry), Counter())[difference.verdict] += 1
    lines = [
        (metric_name(metric), entry, *(str(found[word]) for word in ("better", "undecided", "worse")))
        for (metric, entry), found in counts.items()
    ]
    columns = ["Metric", "Method", "Wins", "Ties", "Losses"]
    return Section.of(f"{benchmark.name}: data sets on which {benchmark.baseline} is beaten", columns, lines)


def metric_name(label: str) -> str:
    """Write a metric without its unit."""
    return " ".join([info(label).label, *settings(label)])


def _numbers(difference: PairedDifference) -> tuple[str, str]:
    if difference.mean is None:
        return "", ""
    if difference.low is None or difference.high is None:
        return quantity(difference.mean), ""
    return quantity(difference.mean), f"{quantity(difference.low)} to {quantity(difference.high)}"


def _count(difference: PairedDifference) -> str:
    lost = difference.failed, difference.baseline_failed
    return f"{difference.n} (failed: {lost[0]}, of the baseline {lost[1]})" if any(lost) else f"{difference.n}"
