"""Figures of distributions: scores of repeats, weights of a layer, and ranks of the truth."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.metrics import get_metric_info
from bdl.reports import drawing
from bdl.reports.layout import metric_heading, metric_with_unit, repeats_text
from bdl.reports.papers import paper_values
from bdl.reports.scores import entry_rows
from bdl.reports.statistics import finite_scores, group_by, group_by_cell
from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

MIN_REPEATS = 5
"""Repeats that have quartiles worth drawing."""

WEIGHT_BINS = 60
"""Bins of a histogram of weights."""
BOX_HEIGHT = 0.18
"""Height of a panel above its bars that the box takes, as a share of the bars'."""

RANK_BINS = 20
"""Bins of a histogram of ranks."""
ENVELOPE_LEVEL = 0.95
"""Probability that all bars of a histogram of uniform ranks are within the envelope."""


class Box(NamedTuple):
    """Finite scores of an entry's repeats on one data set."""

    dataset: str
    entry: str
    metric: str
    values: Array


def gather_boxes(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[Box]:
    """Gather the scores of predictions, where fits are repeats on one split.

    `rows` are final ones.
    """
    if benchmark.axes or not benchmark.preparation.repeats:
        return []
    boxes, groups = [], group_by_cell(rows, ())
    for metric in (
        name for name in benchmark.metrics if get_metric_info(name).kind == "predictive"
    ):
        for dataset, entry in benchmark.pairs:
            trials = groups.get((dataset, entry), rows[:0])
            values = finite_scores(trials, metric)
            if values.size >= MIN_REPEATS:
                boxes.append(Box(str(dataset), entry, str(metric), values))
    return boxes


def box_drawings(benchmark: "Benchmark", boxes: Sequence[Box]) -> drawing.Drawings:
    """Draw boxes: a panel a dataset, a row an entry, a figure a metric."""
    groups = group_by(boxes, lambda box: box.metric)
    return {
        f"{metric}-box": partial(box_figure, benchmark, metric_boxes)
        for metric, metric_boxes in groups.items()
    }


def box_figure(benchmark: "Benchmark", boxes: Sequence[Box]) -> "Figure":
    """Draw medians and quartiles, whiskers, and all values beyond these.

    Whiskers end at the last value within 1.5 times the distance of the quartiles.
    """
    metric, groups = boxes[0].metric, group_by(boxes, lambda box: box.dataset)
    figure, panels = entry_rows(
        {name: [box.entry for box in dataset_boxes] for name, dataset_boxes in groups.items()},
        metric_with_unit(metric),
    )
    printed = paper_values(benchmark.papers)
    handles = [drawing.legend_handle("ours, quartiles", color=drawing.COLORS[0])]
    look = {"color": drawing.COLORS[0], "linewidth": 1.3}
    outlier_look = {"markersize": 4, "markeredgecolor": drawing.COLORS[0]}
    for dataset, panel in panels.items():
        values: dict[str, list[float]] = {}
        for row, box in enumerate(groups[dataset]):
            _draw_box(panel, box.values, row, look, outlier_look)
            values[box.entry] = box.values.tolist()
            value = printed.get((dataset, box.entry, metric, "mean"))
            if value is not None:
                values[f"paper, {box.entry}"] = [value.value]
                panel.plot([value.value], [row], linestyle="none", **drawing.PAPER_MARK)
        drawing.fit_axis(panel, "x", values, factor=drawing.outlier_factor(metric))
    if any((box.dataset, box.entry, metric, "mean") in printed for box in boxes):
        handles.append(
            drawing.legend_handle("paper, mean as printed", linestyle="none", **drawing.PAPER_MARK)
        )
    drawing.write_title(figure, benchmark.title, metric_heading(metric), repeats_text(benchmark))
    drawing.draw_legend(figure, handles, columns=2)
    return figure


def _draw_box(
    panel: "Axes", values: Array, height: float, look: dict[str, Any], outlier_look: dict[str, Any]
) -> None:
    """Draw a horizontal box with whiskers at a height, and values beyond these as dots."""
    options: dict[str, Any] = {
        f"{element}props": look for element in ("box", "whisker", "cap", "median")
    }
    options["flierprops"] = {"marker": ".", **outlier_look}
    panel.boxplot(
        values,
        positions=[height],
        orientation="horizontal",
        widths=0.5,
        manage_ticks=False,
        **options,
    )


class LayerWeights(NamedTuple):
    """Posterior means of the weights of one layer, of one fit."""

    dataset: str
    entry: str
    values: Array


def weight_drawings(benchmark: "Benchmark", weights: Sequence[LayerWeights]) -> drawing.Drawings:
    """Draw histograms and boxes: a figure a data set, a panel an entry."""
    groups = group_by(weights, lambda layer: layer.dataset)
    return {
        f"weights-{name}": partial(weights_figure, benchmark, group)
        for name, group in groups.items()
    }


def weights_figure(benchmark: "Benchmark", weights: Sequence[LayerWeights]) -> "Figure":
    """Draw histograms of the weights of each entry, and above each a box of its quartiles.

    Counts are on a logarithmic scale. These are Figures 4.10 to 4.12 of Mata (2018). Whiskers end
    at the last value within 1.5 times the distance of the quartiles.
    """
    figure, panels = drawing.lay_out_panels(len(weights), (2.9, 2.3))
    outlier_look = {"markersize": 2, "markeredgecolor": drawing.COLORS[1]}
    for panel, layer in zip(panels, weights, strict=True):
        counts, edges = np.histogram(layer.values, WEIGHT_BINS)
        panel.bar(edges[:-1], counts, np.diff(edges), align="edge", color=drawing.COLORS[0])
        panel.set(yscale="log", ylim=(0.7, None))
        box_panel = panel.inset_axes((0, 1 - BOX_HEIGHT, 1, BOX_HEIGHT), sharex=panel)
        _draw_box(
            box_panel, layer.values, 1, {"color": drawing.INK, "linewidth": 0.9}, outlier_look
        )
        box_panel.set_axis_off()
        low, high = panel.get_ylim()
        panel.set_ylim(low, low * (high / low) ** (1 / (1 - BOX_HEIGHT)))
        drawing.style_panel(panel, layer.entry, "y")
        panel.set_xlabel("mean of a weight")
    drawing.label_vertical_axes(panels, "weights")
    drawing.write_title(figure, benchmark.title, weights[0].dataset)
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
        """Edges of the bins.

        All are of one width if their number divides that of the ranks; else they differ by one
        rank.
        """
        count = self.draws + 1
        return np.floor(np.linspace(0, count, min(RANK_BINS, count) + 1)) - 0.5

    @property
    def counts(self) -> Array:
        """Number of ranks in each bin."""
        return np.histogram(self.ranks, self.edges)[0].astype(float)

    @property
    def envelope(self) -> tuple[Array, Array]:
        """Least and largest count of each bin.

        Each bar of uniform ranks is binomial; by Bonferroni's correction for the number of bars
        all are within with a probability of `ENVELOPE_LEVEL` or more.
        """
        from scipy.stats import binom

        share = np.diff(self.edges) / (self.draws + 1)
        tail = (1 - ENVELOPE_LEVEL) / 2 / (len(self.edges) - 1)
        low, high = (np.asarray(binom.ppf(p, len(self.ranks), share)) for p in (tail, 1 - tail))
        return low, high

    @property
    def outside_envelope(self) -> NDArray[np.bool_]:
        """Whether each bar is beyond the envelope."""
        low, high = self.envelope
        return (self.counts < low) | (self.counts > high)


def gather_truth_ranks(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[RankedTruth]:
    """Gather the ranks of each entry on each data set; `rows` are final ones."""
    if benchmark.axes:
        return []
    rankings, groups = [], group_by_cell(rows, ())
    for dataset, entry in benchmark.pairs:
        trials = groups.get((dataset, entry), rows[:0])
        for metric in (metric for metric in benchmark.metrics if metric.name == "truth_rank"):
            settings, ranks = metric.settings, finite_scores(trials, str(metric))
            quantity = f"{settings['of']} {settings['index']}"
            if ranks.size:
                rankings.append(
                    RankedTruth(str(dataset), entry, quantity, ranks, settings["draws"])
                )
    return rankings


def truth_rank_drawings(benchmark: "Benchmark", ranked: Sequence[RankedTruth]) -> drawing.Drawings:
    """Draw histograms: a figure a data set, a line an entry, a column a quantity."""
    groups = group_by(ranked, lambda ranking: ranking.dataset)
    return {
        f"sbc-{dataset}": partial(truth_rank_figure, benchmark, dataset_rankings)
        for dataset, dataset_rankings in groups.items()
    }


def truth_rank_figure(benchmark: "Benchmark", ranked: Sequence[RankedTruth]) -> "Figure":
    """Draw the histograms of one data set; bars beyond the envelope have another colour."""
    from matplotlib.patches import Patch

    columns = len({ranking.quantity for ranking in ranked})
    figure, panels = drawing.lay_out_panels(len(ranked), (2.4, 1.5), columns=columns)
    for panel, ranking in zip(panels, ranked, strict=True):
        counts, edges, outside = ranking.counts, ranking.edges, ranking.outside_envelope
        low, high = ranking.envelope
        widths = np.diff(edges)
        panel.stairs(high, edges, baseline=low, fill=True, color=drawing.GRID)
        for bars, color in ((~outside, drawing.COLORS[0]), (outside, drawing.COLORS[1])):
            panel.bar(edges[:-1][bars], counts[bars], widths[bars], align="edge", color=color)
        drawing.style_panel(panel, ranking.entry, "y")
        panel.set(xlim=(-0.5, ranking.draws + 0.5), xlabel=f"rank, {ranking.quantity}")
    handles = [
        Patch(color=drawing.COLORS[0], label="within"),
        Patch(color=drawing.COLORS[1], label="beyond"),
    ]
    envelope = Patch(
        color=drawing.GRID,
        label=f"envelope of uniform ranks, {ENVELOPE_LEVEL:.0%} for all bars of a panel",
    )
    lines = benchmark.title, f"Ranks of the truth: {ranked[0].dataset}"
    return drawing.finish_figure(figure, panels, "data sets", *lines, handles=[envelope, *handles])
