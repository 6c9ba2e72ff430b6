"""How many members of a deep ensemble are as good as another method."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bdl.metrics.calibrated import FIRST
from bdl.reports.axes import by_cell, short
from bdl.reports.layout import Section, measure, quantity

if TYPE_CHECKING:
    import pandas as pd

    from bdl.spec import Benchmark

METHOD = "deep-ensemble"


def equivalent(curve: Sequence[float], score: float) -> str:
    """Return the number of members at which a curve reaches a score, as text (Ashukha et al. 2020, section 4).

    Parameters
    ----------
    curve
        Scores of one member, of two and so on, where less is better; linear in between.
    score
        The score of another method.

    Returns
    -------
    str
        The least number with one decimal; ``"< 1"`` for a score worse than one member's, ``"> 5"`` for one better than
        all of five.
    """
    if score > curve[0]:
        return "< 1"
    for count, (before, after) in enumerate(pairwise(curve), start=1):
        if after <= score:
            return f"{count + (before - score) / (before - after) if before > after else count:.1f}"
    return "1.0" if score == curve[0] else f"> {len(curve)}"


def ensemble_sections(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Section]:
    """Lay out the deep-ensemble equivalents of all methods by `calibrated_nll`, a table for each deep ensemble.

    Means are over the splits of which method and ensemble both have the score. A data set without the ensemble, or
    without scores of its first members, is left out.

    Parameters
    ----------
    benchmark
        Names data sets, entries and metrics.
    rows
        Final rows.
    """
    metrics = [name for name in benchmark.metrics if getattr(name, "name", name) == "calibrated_nll"]
    ensembles = [name for name, entry in benchmark.entries.items() if entry.method.name == METHOD]
    if not (metrics and ensembles):
        return []
    rows = rows.reindex(columns=list(dict.fromkeys((*rows.columns, *benchmark.axes))))
    groups = {key: own.set_index("split") for key, own in by_cell(rows, benchmark.axes).items()}
    columns = ["Dataset", *benchmark.axes, "Method", "Mean", "Members", "n"]
    found = []
    for metric in metrics:
        for ensemble in ensembles:
            lines = list(_lines(groups, ensemble, metric))
            title = f"{benchmark.name}: members of {ensemble} that are as good, by {measure(metric)}"
            found += [Section.of(title, columns, lines)] if lines else []
    return found


def _lines(
    groups: "Mapping[tuple[Hashable, ...], pd.DataFrame]", ensemble: str, metric: str
) -> Iterator[tuple[str, ...]]:
    """Yield a line for each cell but those of the ensemble."""
    for (dataset, entry, *point), own in groups.items():
        reference = groups.get((dataset, ensemble, *point))
        if entry == ensemble or reference is None or metric not in own:
            continue
        first = [name for name in map(str, reference) if name.startswith(f"{metric}_{FIRST}_")]
        first.sort(key=lambda name: int(name.rpartition("_")[2]))
        scores = reference[[*first, metric]].assign(_own=own[metric]).dropna()
        if first and len(scores):
            *curve, score = scores.mean()
            texts = quantity(score), equivalent(curve, score), f"{len(scores)}"
            yield str(dataset), *(short(str(value)) for value in point), str(entry), *texts
