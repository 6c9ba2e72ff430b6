"""Calibration: how often what was predicted with some probability came true."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bdl.registry import Label
from bdl.reports import drawing
from bdl.reports.compare import Cell
from bdl.reports.selective import draw_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

Array = NDArray[np.float64]

_DIAGONAL: dict[str, Any] = {
    "color": drawing.QUIET,
    "linestyle": (0, (3, 1.5)),
    "linewidth": 1,
    "label": "calibrated",
}


def coverage(below: Array, levels: Array) -> Array:
    """Return the share of targets within central intervals.

    Parameters
    ----------
    below
        Predictive probability below each target, (n,).
    levels
        Probabilities of the intervals, (m,).

    Returns
    -------
    ndarray
        Shares, (m,). A target lies in the central interval of probability p where |2 F(y) - 1| <= p.
    """
    share: Array = (np.abs(2 * below - 1)[:, None] <= levels).mean(0)
    return share


def reliability(confidence: Array, hits: NDArray[np.bool_], bins: int) -> tuple[Array, Array, NDArray[np.int64]]:
    """Compare confidence with accuracy in bins of equal width, each without its lower bound (Guo et al. 2017).

    Parameters
    ----------
    confidence
        Probability of the most probable class of each row, (n,).
    hits
        Whether it was the right one, (n,).
    bins
        Number of bins from 0 to 1.

    Returns
    -------
    tuple
        Mean confidence, accuracy and number of rows of each bin that has any.
    """
    place = np.clip(np.ceil(confidence * bins).astype(int), 1, bins) - 1
    rows = np.bincount(place, minlength=bins)
    some = rows > 0
    means = [np.bincount(place, weights, bins)[some] / rows[some] for weights in (confidence, hits.astype(float))]
    return means[0], means[1], rows[some]


def coverage_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw how often intervals cover, where `coverage` is scored at several levels: nothing of a sweep."""
    scored = [own for own in benchmark.metrics if isinstance(own, Label) and own.name == "coverage"]
    levels = {str(own): float(own.settings["level"]) for own in scored}
    own = [cell for cell in cells if cell.statistic == "mean" and cell.metric in levels and cell.ours is not None]
    if benchmark.axes or len(levels) < 2 or not own:
        return {}
    own.sort(key=lambda cell: levels[cell.metric])
    return {"calibration": partial(coverage_figure, benchmark, levels, own)}


def coverage_figure(benchmark: "Benchmark", levels: Mapping[str, float], cells: Sequence[Cell]) -> "Figure":
    """Draw mean coverage against the level, a panel a data set and a line an entry; `levels` are those of metrics."""
    datasets = [dataset for dataset in benchmark.datasets if any(cell.dataset == dataset for cell in cells)]
    figure, panels = drawing.grid(len(datasets), (2.6, 2.8))
    styles = drawing.styles(benchmark.entries)
    for panel, dataset in zip(panels, datasets, strict=True):
        drawing.dress(panel, str(dataset))
        panel.plot([0, 1], [0, 1], **_DIAGONAL)
        for entry in benchmark.entries:
            draw_line(panel, entry, styles[entry], levels, [cell for cell in cells if cell.dataset == dataset])
        panel.set(xlabel="level of the central interval", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    drawing.label_left(panels, "share of targets within")
    drawing.title(figure, benchmark.title, "Coverage of predictive intervals, mean ± SE over splits")
    drawing.legend(figure, order=["calibrated", *styles], columns=3)
    return figure


def calibration_figure(table: "pd.DataFrame", rows: int) -> "Figure":
    """Draw the second column of a table against the first, beside the diagonal of what is calibrated."""
    figure, (panel,) = drawing.grid(1, (3.4, 3.4))
    across, up = table.columns[:2]
    panel.plot([0, 1], [0, 1], **_DIAGONAL)
    panel.plot(table[across], table[up], color=drawing.COLORS[0], label="predictions", **drawing.DOTS)
    drawing.dress(panel, f"{rows} rows", bold=False)
    panel.set(xlabel=across, ylabel=up, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    drawing.title(figure, "Calibration")
    drawing.legend(figure)
    return figure
