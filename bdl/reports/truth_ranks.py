"""Calibration by simulation: histograms of the ranks of the truth, and between which counts uniform ranks stay."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bdl.reports import drawing
from bdl.reports.statistics import Values

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

LEVEL = 0.95
"""Probability that all bars of a histogram of uniform ranks are within the envelope."""
BINS = 20


class RankedTruth(NamedTuple):
    """Ranks of one quantity over draws of data, each fitted by one entry."""

    dataset: str
    entry: str
    quantity: str
    """Such as ``"parameter 0"``."""
    ranks: Values
    draws: int
    """Largest rank."""

    @property
    def edges(self) -> Values:
        """Edges of bins that are as wide as each other, if their number divides that of ranks, else by one rank."""
        count = self.draws + 1
        return np.floor(np.linspace(0, count, min(BINS, count) + 1)) - 0.5

    @property
    def counts(self) -> Values:
        """Ranks in each bin."""
        return np.histogram(self.ranks, self.edges)[0].astype(float)

    @property
    def envelope(self) -> tuple[Values, Values]:
        """Least and largest count of each bin.

        Each bar of uniform ranks is binomial; by Bonferroni's correction for the number of bars all are within with a
        probability of `LEVEL` or more.
        """
        from scipy.stats import binom

        share, tail = np.diff(self.edges) / (self.draws + 1), (1 - LEVEL) / 2 / (len(self.edges) - 1)
        low, high = (np.asarray(binom.ppf(p, len(self.ranks), share)) for p in (tail, 1 - tail))
        return low, high

    @property
    def inside(self) -> bool:
        """Whether all bars are within the envelope."""
        low, high = self.envelope
        return bool(((low <= self.counts) & (self.counts <= high)).all())


def truth_ranks(benchmark: "Benchmark", rows: "pd.DataFrame") -> list[RankedTruth]:
    """Gather the ranks of each entry on each data set; `rows` are final ones."""
    found = []
    for dataset, entry in () if benchmark.axes else benchmark.pairs:
        own = rows[(rows["dataset"] == dataset) & (rows["entry"] == entry) & (rows["status"] == "ok")]
        for metric in (one for one in benchmark.metrics if one.name == "truth_rank"):
            settings, ranks = metric.settings, own[str(metric)].dropna().to_numpy(dtype=float)
            quantity = f"{settings['of']} {settings['index']}"
            if ranks.size:
                found.append(RankedTruth(str(dataset), entry, quantity, ranks, settings["draws"]))
    return found


def truth_rank_drawings(benchmark: "Benchmark", ranked: Sequence[RankedTruth]) -> drawing.Drawings:
    """Draw histograms: a figure a data set, a line an entry, a column a quantity."""
    datasets = dict.fromkeys(one.dataset for one in ranked)
    own = {dataset: [one for one in ranked if one.dataset == dataset] for dataset in datasets}
    return {f"sbc-{dataset}": partial(truth_rank_figure, benchmark, found) for dataset, found in own.items()}


def truth_rank_figure(benchmark: "Benchmark", ranked: Sequence[RankedTruth]) -> "Figure":
    """Draw the histograms of one data set; bars beyond the envelope have another colour."""
    from matplotlib.patches import Patch

    columns = len({one.quantity for one in ranked})
    figure, panels = drawing.grid(len(ranked), (2.4, 1.5), columns=columns)
    for panel, one in zip(panels, ranked, strict=True):
        (low, high), counts, edges = one.envelope, one.counts, one.edges
        panel.stairs(high, edges, baseline=low, fill=True, color=drawing.GRID)
        beyond = (counts < low) | (counts > high)
        for chosen, color in ((~beyond, drawing.COLORS[0]), (beyond, drawing.COLORS[1])):
            panel.bar(edges[:-1][chosen], counts[chosen], np.diff(edges)[chosen], align="edge", color=color)
        drawing.dress(panel, one.entry, "y")
        panel.set(xlim=(-0.5, one.draws + 0.5), xlabel=f"rank, {one.quantity}")
    drawing.label_left(panels, "data sets")
    texts = "within", "beyond"
    handles = [Patch(color=color, label=text) for color, text in zip(drawing.COLORS, texts, strict=False)]
    envelope = Patch(color=drawing.GRID, label=f"envelope of uniform ranks, {LEVEL:.0%} for all bars of a panel")
    drawing.title(figure, benchmark.title, f"Ranks of the truth: {ranked[0].dataset}")
    drawing.legend(figure, [envelope, *handles])
    return figure
