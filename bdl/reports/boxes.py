"""Boxplots of repeats on one split: how scores vary with the random numbers of a fit."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.metrics import info
from bdl.reports import drawing
from bdl.reports.axes import by_cell
from bdl.reports.layout import heading, measure, repeats
from bdl.reports.papers import paper_values
from bdl.reports.scores import entry_rows
from bdl.reports.statistics import Values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

FEWEST = 5
"""Repeats that have quartiles worth drawing."""


class Box(NamedTuple):
    """Finite scores of an entry's repeats on one data set."""

    dataset: str
    entry: str
    metric: str
    values: Values


def boxes(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Box]:
    """Gather the scores of predictions, where fits are repeats on one split; `rows` are final ones."""
    if benchmark.axes or not benchmark.preparation.repeats:
        return []
    found, groups = [], by_cell(rows, ())
    for metric in (name for name in benchmark.metrics if info(name).kind == "predictive"):
        for dataset, entry in benchmark.pairs:
            own = groups.get((dataset, entry), rows[:0])
            values = own[metric][own["status"] == "ok"].to_numpy(dtype=float)
            values = values[np.isfinite(values)]
            if values.size >= FEWEST:
                found.append(Box(str(dataset), entry, str(metric), values))
    return found


def box_drawings(benchmark: "Benchmark", drawn: Sequence[Box]) -> drawing.Drawings:
    """Draw boxes: a panel a dataset, a row an entry, a figure a metric."""
    metrics = dict.fromkeys(box.metric for box in drawn)
    own = {metric: [box for box in drawn if box.metric == metric] for metric in metrics}
    return {f"{metric}-box": partial(box_figure, benchmark, found) for metric, found in own.items()}


def box_figure(benchmark: "Benchmark", drawn: Sequence[Box]) -> "Figure":
    """Draw medians and quartiles, whiskers to the last value within 1.5 times their distance, and all beyond."""
    from matplotlib.lines import Line2D

    metric = drawn[0].metric
    rows = {box.dataset: [own.entry for own in drawn if own.dataset == box.dataset] for box in drawn}
    figure, panels = entry_rows(rows, measure(metric))
    printed = paper_values(benchmark.papers)
    handles = [Line2D([], [], color=drawing.COLORS[0], label="ours, quartiles")]
    look = {"color": drawing.COLORS[0], "linewidth": 1.3}
    how: dict[str, Any] = {f"{part}props": look for part in ("box", "whisker", "cap", "median")}
    how["flierprops"] = {"marker": ".", "markersize": 4, "markeredgecolor": drawing.COLORS[0]}
    for dataset, panel in panels.items():
        shown: dict[str, list[float]] = {}
        for row, box in enumerate(own for own in drawn if own.dataset == dataset):
            panel.boxplot(box.values, positions=[row], vert=False, widths=0.5, manage_ticks=False, **how)
            shown[box.entry] = box.values.tolist()
            value = printed.get((dataset, box.entry, metric, "mean"))
            if value is not None:
                shown[f"paper, {box.entry}"] = [value.value]
                panel.plot([value.value], [row], linestyle="none", **drawing.PAPER)
        drawing.fit(panel, "x", shown, factor=drawing.far(metric))
    if any((box.dataset, box.entry, metric, "mean") in printed for box in drawn):
        handles.append(Line2D([], [], linestyle="none", label="paper, mean as printed", **drawing.PAPER))
    drawing.title(figure, benchmark.title, heading(metric), repeats(benchmark))
    drawing.legend(figure, handles, columns=2)
    return figure
