"""Distributions: boxes of repeats on one split, weights of a layer, and ranks of the truth in simulations."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.metrics import info
from bdl.reports import drawing
from bdl.reports.layout import heading, measure, repeats
from bdl.reports.papers import paper_values
from bdl.reports.scores import entry_rows
from bdl.reports.statistics import Array, by_cell, finite, grouped

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

FEWEST = 5
"""Repeats that have quartiles worth drawing."""

BARS = 60
"""Bins of a histogram of weights."""
BOX = 0.18
"""Height of a panel above its bars that the box takes, as a share of the bars'."""

BINS = 20
"""Of a histogram of ranks."""
LEVEL = 0.95
"""Probability that all bars of a histogram of uniform ranks are within the envelope."""


class Box(NamedTuple):
    """Finite scores of an entry's repeats on one data set."""

    dataset: str
    entry: str
    metric: str
    values: Array


def boxes(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Box]:
    """Gather the scores of predictions, where fits are repeats on one split.

    `rows` are final ones.
    """
    if benchmark.axes or not benchmark.preparation.repeats:
        return []
    found, groups = [], by_cell(rows, ())
    for metric in (name for name in benchmark.metrics if info(name).kind == "predictive"):
        for dataset, entry in benchmark.pairs:
            own = groups.get((dataset, entry), rows[:0])
            values = finite(own, metric)
            if values.size >= FEWEST:
                found.append(Box(str(dataset), entry, str(metric), values))
    return found


def box_drawings(benchmark: "Benchmark", drawn: Sequence[Box]) -> drawing.Drawings:
    """Draw boxes: a panel a dataset, a row an entry, a figure a metric."""
    groups = grouped(drawn, lambda box: box.metric)
    return {f"{metric}-box": partial(box_figure, benchmark, own) for metric, own in groups.items()}


def box_figure(benchmark: "Benchmark", drawn: Sequence[Box]) -> "Figure":
    """Draw medians and quartiles, whiskers to the last value within 1.5 times their distance, and all beyond."""
    metric, groups = drawn[0].metric, grouped(drawn, lambda box: box.dataset)
    figure, panels = entry_rows(
        {name: [box.entry for box in own] for name, own in groups.items()}, measure(metric)
    )
    printed = paper_values(benchmark.papers)
    handles = [drawing.handle("ours, quartiles", color=drawing.COLORS[0])]
    beyond = {"markersize": 4, "markeredgecolor": drawing.COLORS[0]}
    for dataset, panel in panels.items():
        shown: dict[str, list[float]] = {}
        for row, box in enumerate(groups[dataset]):
            _box(panel, box.values, row, {"color": drawing.COLORS[0], "linewidth": 1.3}, beyond)
            shown[box.entry] = box.values.tolist()
            value = printed.get((dataset, box.entry, metric, "mean"))
            if value is not None:
                shown[f"paper, {box.entry}"] = [value.value]
                panel.plot([value.value], [row], linestyle="none", **drawing.PAPER)
        drawing.fit(panel, "x", shown, factor=drawing.far(metric))
    if any((box.dataset, box.entry, metric, "mean") in printed for box in drawn):
        handles.append(drawing.handle("paper, mean as printed", linestyle="none", **drawing.PAPER))
    drawing.title(figure, benchmark.title, heading(metric), repeats(benchmark))
    drawing.legend(figure, handles, columns=2)
    return figure


def _box(
    panel: "Axes", values: Array, place: float, look: dict[str, Any], beyond: dict[str, Any]
) -> None:
    """Draw a lying box with whiskers, at a height; what is beyond these are dots."""
    how: dict[str, Any] = {f"{part}props": look for part in ("box", "whisker", "cap", "median")}
    how["flierprops"] = {"marker": ".", **beyond}
    panel.boxplot(
        values, positions=[place], orientation="horizontal", widths=0.5, manage_ticks=False, **how
    )


class LayerWeights(NamedTuple):
    """Posterior means of the weights of one layer, of one fit."""

    dataset: str
    entry: str
    values: Array


def weight_drawings(benchmark: "Benchmark", found: Sequence[LayerWeights]) -> drawing.Drawings:
    """Draw histograms and boxes: a figure a data set, a panel an entry."""
    groups = grouped(found, lambda own: own.dataset)
    return {
        f"weights-{name}": partial(weights_figure, benchmark, group)
        for name, group in groups.items()
    }


def weights_figure(benchmark: "Benchmark", found: Sequence[LayerWeights]) -> "Figure":
    """Draw the weights of each entry, counts on a logarithmic scale, and above them quartiles and what is beyond.

    These are Figures 4.10 to 4.12 of Mata (2018). Whiskers end at the last value within 1.5 times
    the distance of the quartiles.
    """
    figure, panels = drawing.grid(len(found), (2.9, 2.3))
    beyond = {"markersize": 2, "markeredgecolor": drawing.COLORS[1]}
    for panel, own in zip(panels, found, strict=True):
        counts, edges = np.histogram(own.values, BARS)
        panel.bar(edges[:-1], counts, np.diff(edges), align="edge", color=drawing.COLORS[0])
        panel.set(yscale="log", ylim=(0.7, None))
        above = panel.inset_axes((0, 1 - BOX, 1, BOX), sharex=panel)
        _box(above, own.values, 1, {"color": drawing.INK, "linewidth": 0.9}, beyond)
        above.set_axis_off()
        low, high = panel.get_ylim()
        panel.set_ylim(low, low * (high / low) ** (1 / (1 - BOX)))
        drawing.dress(panel, own.entry, "y")
        panel.set_xlabel("mean of a weight")
    drawing.label_left(panels, "weights")
    drawing.title(figure, benchmark.title, found[0].dataset)
    return figure


class RankedTruth(NamedTuple):
    """Ranks of one quantity over draws of data, each fitted by one entry."""

    dataset: str
    entry: str
    quantity: str
    """Such as ``"parameter 0"``."""
    ranks: Array
    draws: int
    """Largest rank."""

    @property
    def edges(self) -> Array:
        """Edges of bins that are as wide as each other, if their number divides that of ranks, else by one rank."""
        count = self.draws + 1
        return np.floor(np.linspace(0, count, min(BINS, count) + 1)) - 0.5

    @property
    def counts(self) -> Array:
        """Ranks in each bin."""
        return np.histogram(self.ranks, self.edges)[0].astype(float)

    @property
    def envelope(self) -> tuple[Array, Array]:
        """Least and largest count of each bin.

        Each bar of uniform ranks is binomial; by Bonferroni's correction for the number of bars
        all are within with a probability of `LEVEL` or more.
        """
        from scipy.stats import binom

        share, tail = (
            np.diff(self.edges) / (self.draws + 1),
            (1 - LEVEL) / 2 / (len(self.edges) - 1),
        )
        low, high = (np.asarray(binom.ppf(p, len(self.ranks), share)) for p in (tail, 1 - tail))
        return low, high

    @property
    def beyond(self) -> NDArray[np.bool_]:
        """Whether each bar is beyond the envelope."""
        low, high = self.envelope
        return (self.counts < low) | (self.counts > high)


def truth_ranks(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[RankedTruth]:
    """Gather the ranks of each entry on each data set; `rows` are final ones."""
    if benchmark.axes:
        return []
    found, groups = [], by_cell(rows, ())
    for dataset, entry in benchmark.pairs:
        own = groups.get((dataset, entry), rows[:0])
        for metric in (one for one in benchmark.metrics if one.name == "truth_rank"):
            settings, ranks = metric.settings, finite(own, str(metric))
            quantity = f"{settings['of']} {settings['index']}"
            if ranks.size:
                found.append(RankedTruth(str(dataset), entry, quantity, ranks, settings["draws"]))
    return found


def truth_rank_drawings(benchmark: "Benchmark", ranked: Sequence[RankedTruth]) -> drawing.Drawings:
    """Draw histograms: a figure a data set, a line an entry, a column a quantity."""
    groups = grouped(ranked, lambda one: one.dataset)
    return {
        f"sbc-{dataset}": partial(truth_rank_figure, benchmark, own)
        for dataset, own in groups.items()
    }


def truth_rank_figure(benchmark: "Benchmark", ranked: Sequence[RankedTruth]) -> "Figure":
    """Draw the histograms of one data set; bars beyond the envelope have another colour."""
    from matplotlib.patches import Patch

    columns = len({one.quantity for one in ranked})
    figure, panels = drawing.grid(len(ranked), (2.4, 1.5), columns=columns)
    for panel, one in zip(panels, ranked, strict=True):
        (low, high), counts, edges, beyond = one.envelope, one.counts, one.edges, one.beyond
        panel.stairs(high, edges, baseline=low, fill=True, color=drawing.GRID)
        for chosen, color in ((~beyond, drawing.COLORS[0]), (beyond, drawing.COLORS[1])):
            panel.bar(
                edges[:-1][chosen],
                counts[chosen],
                np.diff(edges)[chosen],
                align="edge",
                color=color,
            )
        drawing.dress(panel, one.entry, "y")
        panel.set(xlim=(-0.5, one.draws + 0.5), xlabel=f"rank, {one.quantity}")
    texts = "within", "beyond"
    handles = [
        Patch(color=color, label=text) for color, text in zip(drawing.COLORS, texts, strict=False)
    ]
    envelope = Patch(
        color=drawing.GRID, label=f"envelope of uniform ranks, {LEVEL:.0%} for all bars of a panel"
    )
    lines = benchmark.title, f"Ranks of the truth: {ranked[0].dataset}"
    return drawing.finished(figure, panels, "data sets", *lines, handles=[envelope, *handles])
