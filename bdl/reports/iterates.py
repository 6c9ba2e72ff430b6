"""Parameter vectors that an approximation is made of, over the contours of the truth."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bdl.reports import drawing
from bdl.reports.posteriors import RESOLUTION, Array, Gaussians, framed, grid_of, true_density

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVIATIONS = (3, 2, 1)
"""Contours are where the density of a Gaussian is at so many standard deviations."""
ROOM = 0.05
"""Share of the range of what is drawn that is free at either end."""
ITERATES: dict[str, Any] = {"color": "#c1272d", "marker": ".", "markersize": 3, "linestyle": "none", "alpha": 0.5}
CONTOURS: dict[str, Any] = {"colors": drawing.INK, "linewidths": 0.9, "linestyles": "-"}
START: dict[str, Any] = {"color": drawing.INK, "marker": "X", "markersize": 7, "linestyle": "none"}
MEAN: dict[str, Any] = {"color": drawing.COLORS[0], "marker": "o", "markersize": 6, "linestyle": "none"}
MEAN["markeredgecolor"] = "white"


def iterate_drawings(pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw the vectors of posteriors of two parameters that keep them: a figure a data set."""
    kept = [pair for pair in pairs if pair.plane and pair.path is not None]
    own = {name: [pair for pair in kept if pair.dataset == name] for name in dict.fromkeys(p.dataset for p in kept)}
    return {f"iterates-{name}": partial(iterates_figure, found) for name, found in own.items()}


def iterates_figure(pairs: Sequence[Gaussians]) -> "Figure":
    """Draw, a panel an entry, the true contours, the vectors, the one before them and their mean.

    These are Figures 4.2 and B.2 of Brownlie (2022).
    """
    from matplotlib.lines import Line2D

    figure, panels = drawing.grid(len(pairs), (2.9, 2.9))
    for panel, pair in zip(panels, pairs, strict=True):
        assert pair.path is not None, "those that keep them are drawn"
        points = _around(pair)
        truth = true_density(pair, points)
        levels = [truth.max() - 0.5 * deviations**2 for deviations in DEVIATIONS]
        framed(panel, pair.entry, points)
        panel.plot(*pair.path.T, **ITERATES)
        panel.contour(*np.moveaxis(points, -1, 0), truth, levels=levels, **CONTOURS)
        if pair.start is not None:
            panel.plot(*pair.start, **START)
        panel.plot(*pair.mean, **MEAN)
    drawing.label_left(panels, "parameter 2")
    looks = ((ITERATES | {"markersize": 7, "alpha": 1}, "iterates, or averages of windows"), (START, "before them"))
    handles = [Line2D([], [], label=label, **look) for look, label in (*looks, (MEAN, "their mean"))]
    handles.insert(0, Line2D([], [], color=drawing.INK, linewidth=0.9, label="truth at 1, 2 and 3 sd"))
    drawing.title(figure, pairs[0].dataset, "iterates over the contours of the posterior")
    drawing.legend(figure, handles)
    return figure


def _around(pair: Gaussians) -> Array:
    """Lay a grid over the true posterior and all that is drawn on it, (n, n, 2)."""
    truth = grid_of(pair._replace(mean=pair.true_mean, covariance=pair.true_covariance))
    drawn = [truth[0, 0], truth[-1, -1], pair.mean, *([] if pair.start is None else [pair.start])]
    both = np.concatenate([drawn, pair.path if pair.path is not None else drawn])
    low, high = both.min(0), both.max(0)
    room = ROOM * (high - low)
    return np.stack(np.meshgrid(*np.linspace(low - room, high + room, RESOLUTION, axis=1)), -1)
