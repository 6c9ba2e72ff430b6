"""Weights of a layer: histograms and boxplots of their posterior means."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.reports import drawing
from bdl.reports.statistics import Values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

BINS = 60
BOX = 0.18
"""Height of a panel above its bars that the box takes, as a share of the bars'."""


class LayerWeights(NamedTuple):
    """Posterior means of the weights of one layer, of one fit."""

    dataset: str
    entry: str
    values: Values


def weight_drawings(benchmark: "Benchmark", found: Sequence[LayerWeights]) -> drawing.Drawings:
    """Draw histograms and boxes: a figure a data set, a panel an entry."""
    datasets = dict.fromkeys(own.dataset for own in found)
    groups = {name: [own for own in found if own.dataset == name] for name in datasets}
    return {f"weights-{name}": partial(weights_figure, benchmark, group) for name, group in groups.items()}


def weights_figure(benchmark: "Benchmark", found: Sequence[LayerWeights]) -> "Figure":
    """Draw the weights of each entry, counts on a logarithmic scale, and above them quartiles and what is beyond.

    These are Figures 4.10 to 4.12 of Mata (2018). Whiskers end at the last value within 1.5 times the distance of the
    quartiles.
    """
    figure, panels = drawing.grid(len(found), (2.9, 2.3))
    look: dict[str, Any] = {"color": drawing.INK, "linewidth": 0.9}
    how: dict[str, Any] = {f"{part}props": look for part in ("box", "whisker", "cap", "median")}
    how["flierprops"] = {"marker": ".", "markersize": 2, "markeredgecolor": drawing.COLORS[1]}
    for panel, own in zip(panels, found, strict=True):
        counts, edges = np.histogram(own.values, BINS)
        panel.bar(edges[:-1], counts, np.diff(edges), align="edge", color=drawing.COLORS[0])
        panel.set(yscale="log", ylim=(0.7, None))
        above = panel.inset_axes((0, 1 - BOX, 1, BOX), sharex=panel)
        above.boxplot(own.values, vert=False, widths=0.5, manage_ticks=False, **how)
        above.set_axis_off()
        low, high = panel.get_ylim()
        panel.set_ylim(low, low * (high / low) ** (1 / (1 - BOX)))
        drawing.dress(panel, own.entry, "y")
        panel.set_xlabel("mean of a weight")
    drawing.label_left(panels, "weights")
    drawing.title(figure, benchmark.title, found[0].dataset)
    return figure
