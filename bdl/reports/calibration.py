"""Calibration: how often what was predicted with some probability came true."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bdl.reports import drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]


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


def calibration_figure(table: "pd.DataFrame", rows: int) -> "Figure":
    """Draw the second column of a table against the first, beside the diagonal of what is calibrated."""
    figure, (panel,) = drawing.grid(1, (3.4, 3.4))
    across, up = table.columns[:2]
    panel.plot([0, 1], [0, 1], color=drawing.QUIET, linestyle=(0, (3, 1.5)), linewidth=1, label="calibrated")
    panel.plot(table[across], table[up], color=drawing.COLORS[0], label="predictions", **drawing.DOTS)
    drawing.dress(panel, f"{rows} rows", bold=False)
    panel.set(xlabel=across, ylabel=up, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    drawing.title(figure, "Calibration")
    drawing.legend(figure)
    return figure
