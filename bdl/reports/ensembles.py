"""Deep-ensemble equivalents: how many members of a deep ensemble are as good as a method."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bdl.metrics import FIRST_MEMBERS
from bdl.reports.layout import Section, format_number, metric_with_unit
from bdl.reports.statistics import format_setting, group_by_split

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark


def equivalent_members(curve: Sequence[float], score: float) -> str:
    """Write the number of members at which a curve reaches a score.

    It is the deep-ensemble equivalent of Ashukha et al. (2020, section 4). The curve has the
    scores of one member, of two and so on, where less is better; it is linear in between. The
    number has one decimal; it is ``"< 1"`` for a score worse than one member's, ``"> 5"`` for one
    better than all of five.
    """
    if score > curve[0]:
        return "< 1"
    for count, (before, after) in enumerate(pairwise(curve), start=1):
        if after <= score:
            fraction = (before - score) / (before - after) if before > after else 0.0
            return f"{count + fraction:.1f}"
    return "1.0" if score == curve[0] else f"> {len(curve)}"


def ensemble_sections(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Section]:
    """Lay out the deep-ensemble equivalents of all methods, a table for each deep ensemble.

    They are by `calibrated_nll`. Means are over the splits of which method and ensemble both have
    the score. A data set without the ensemble, or without scores of its first members, is left
    out.
    """
    metrics = [
        name for name in benchmark.metrics if getattr(name, "name", name) == "calibrated_nll"
    ]
    ensembles: list[str] = []
    for name, entry in benchmark.entries.items():
        if entry.method.name == "deep-ensemble":
            ensembles.append(name)
    if not (metrics and ensembles):
        return []  # before the rows are grouped, which takes long
    groups = group_by_split(rows, benchmark.axes)
    columns = ["Dataset", *benchmark.axes, "Method", "Mean", "Members", "n"]
    arranged = []
    for metric in metrics:
        for ensemble in ensembles:
            lines = list(_equivalent_lines(groups, ensemble, metric))
            title = f"{benchmark.name}: members of {ensemble} that are as good"
            title += f", by {metric_with_unit(metric)}"
            if lines:
                arranged.append(Section.of(title, columns, lines))
    return arranged


def _equivalent_lines(
    groups: "Mapping[tuple[Hashable, ...], pd.DataFrame]", ensemble: str, metric: str
) -> Iterator[tuple[str, ...]]:
    """Yield a line for each data set, point and entry that shares splits with the ensemble."""
    for (dataset, entry, *point), entry_rows in groups.items():
        reference = groups.get((dataset, ensemble, *point))
        if entry == ensemble or reference is None or metric not in entry_rows:
            continue
        # Scores of the first member, of the first two, and so on; the metric is that of all.
        prefixes: list[str] = []
        for name in map(str, reference):
            if name.startswith(f"{metric}_{FIRST_MEMBERS}_"):
                prefixes.append(name)
        # by number: as texts, 10 comes before 2
        prefixes.sort(key=lambda name: int(name.rpartition("_")[2]))
        # only splits that both have: means over others are of other test rows
        scores = reference[[*prefixes, metric]].assign(_entry=entry_rows[metric]).dropna()
        if prefixes and len(scores):
            *curve, score = scores.mean()
            yield (
                str(dataset),
                *(format_setting(str(value)) for value in point),
                str(entry),
                format_number(score),
                equivalent_members(curve, score),
                f"{len(scores)}",
            )
