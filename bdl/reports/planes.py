"""Figures of posteriors.

Of two parameters, densities and outlines in their plane, and the vectors of one.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bdl.reports import drawing
from bdl.reports.posteriors import DEVIATIONS, Gaussians, by_truth, moments_figure
from bdl.reports.statistics import Array, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 3
"""Entries on a data set that have figures of their own."""
LEVELS = np.linspace(0, 1, 11)
MARGIN = 3.2
"""Standard deviations, of the truth and of the approximation, that the panels of a plane show."""
RESOLUTION = 200
TRUTH: dict[str, Any] = {
    "color": drawing.PAPER["color"],
    "linestyle": (0, (4, 2)),
    "linewidth": 1.8,
}
APPROXIMATION: dict[str, Any] = {
    "color": drawing.OURS["color"],
    "linestyle": "-",
    "linewidth": 1.4,
}

ROOM = 0.05
"""Share of the range of what is drawn that is free at either end."""
ITERATES: dict[str, Any] = {
    "color": "#c1272d",
    "marker": ".",
    "markersize": 3,
    "linestyle": "none",
    "alpha": 0.5,
}
CONTOURS: dict[str, Any] = {"colors": drawing.INK, "linewidths": 0.9, "linestyles": "-"}
START: dict[str, Any] = {"color": drawing.INK, "marker": "X", "markersize": 7, "linestyle": "none"}
MEAN: dict[str, Any] = {
    "color": drawing.COLORS[0],
    "marker": "o",
    "markersize": 6,
    "linestyle": "none",
}
MEAN["markeredgecolor"] = "white"


def own_drawings(pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw each posterior beside the truth, on data sets on which at most three entries have one."""
    counts = Counter(pair.dataset for pair in pairs)
    styles = drawing.styles(dict.fromkeys(pair.entry for pair in pairs))
    return {
        f"posterior-{pair.dataset}-{pair.entry}": (
            partial(plane_figure, pair) if pair.plane else partial(moments_figure, [pair], styles)
        )
        for pair in pairs
        if counts[pair.dataset] <= FEW
    }


def joint_drawings(pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw the posteriors of two entries or more in one figure: of the same truth, or of two parameters whatever it is.

    Those of two parameters are drawn in their plane.
    """
    styles = drawing.styles(dict.fromkeys(pair.entry for pair in pairs))
    return {
        f"posteriors-{name}": partial(planes_figure, own)
        if own[0].plane
        else partial(moments_figure, own, styles)
        for name, own in by_truth(pairs)
    }


def plane_figure(pair: Gaussians) -> "Figure":
    """Draw a posterior of two parameters in three panels with the same axes.

    The densities of the truth and of the approximation, each relative to its peak and on one scale
    (VIFA paper 2023, Figs. 1 and 3), and the outlines of both where the density is e^-1/2 and e^-2
    of the peak: at one and two standard deviations of a Gaussian.
    """
    from matplotlib.figure import Figure

    points = grid_of(pair)
    truth = true_density(pair, points)
    figure = Figure(figsize=(10, 3.6), layout="constrained", facecolor="white")
    left, middle, bar, right = figure.subplots(1, 4, width_ratios=[1, 1, 0.04, 1])
    _density(left, "density, truth", points, truth)
    image = _density(
        middle, "density, approximation", points, _gaussian(points, pair.mean, pair.covariance)
    )
    figure.colorbar(image, cax=bar, label="relative to the peak").outline.set_visible(False)  # type: ignore[operator]
    bar.set(box_aspect=25)
    bar.tick_params(length=0)
    if pair.true_log_density is None:
        _ellipses(right, pair.true_mean, pair.true_covariance, TRUTH)
    else:
        levels = [truth.max() - 0.5 * deviations**2 for deviations in (2, 1)]
        line = {
            "colors": TRUTH["color"],
            "linestyles": [TRUTH["linestyle"]],
            "linewidths": TRUTH["linewidth"],
        }
        right.contour(*np.moveaxis(points, -1, 0), truth, levels=levels, **line)
    _ellipses(right, pair.mean, pair.covariance, APPROXIMATION)
    framed(right, "outlines at 1 and 2 sd", points)
    handles = [drawing.handle("truth", **TRUTH), drawing.handle("approximation", **APPROXIMATION)]
    right.legend(handles=handles, loc="upper center", ncols=2, frameon=False, fontsize=8)
    left.set(ylabel="parameter 2")
    drawing.title(figure, f"{pair.dataset}, {pair.entry}")
    return figure


def planes_figure(pairs: Sequence[Gaussians]) -> "Figure":
    """Draw posteriors of two parameters, a panel an entry: the true density, and outlines of the approximation."""
    figure, panels = drawing.grid(len(pairs), (2.7, 2.7))
    for panel, pair in zip(panels, pairs, strict=True):
        points = grid_of(pair)
        _density(panel, pair.entry, points, true_density(pair, points))
        _ellipses(panel, pair.mean, pair.covariance, APPROXIMATION)
    drawing.label_left(panels, "parameter 2")
    drawing.title(figure, pairs[0].dataset, "truth shaded; approximation at 1 and 2 sd")
    return figure


def true_density(pair: Gaussians, points: Array) -> Array:
    """Log-density of the truth, or without one of the Gaussian with its moments: (n, n, 2) -> (n, n)."""
    if pair.true_log_density is None:
        return _gaussian(points, pair.true_mean, pair.true_covariance)
    return pair.true_log_density(points.reshape(-1, 2)).reshape(points.shape[:-1])


def grid_of(pair: Gaussians, *drawn: Array) -> Array:
    """Lay a grid that is wide enough for the truth, and for the approximation or other points, (m, 2): (n, n, 2)."""
    shown = [(pair.true_mean, pair.true_covariance), (pair.mean, pair.covariance)][
        : 1 if drawn else 2
    ]
    reach = [(mean, MARGIN * np.sqrt(covariance.diagonal())) for mean, covariance in shown]
    ends = np.concatenate([*([mean - way, mean + way] for mean, way in reach), *drawn])
    low, high = ends.min(0), ends.max(0)
    room = ROOM * (high - low) if drawn else 0.0
    return np.stack(np.meshgrid(*np.linspace(low - room, high + room, RESOLUTION, axis=1)), -1)


def _root(covariance: Array) -> Array:
    """Take a square root S, S S^T = covariance, of full rank even if the covariance is not."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(values.clip(np.finfo(np.float64).eps * values.max()))
    return root


def _gaussian(points: Array, mean: Array, covariance: Array) -> Array:
    """Log-density relative to the peak: (..., 2) -> (...)."""
    whitened = (points - mean) @ np.linalg.inv(_root(covariance)).T
    relative: Array = -0.5 * np.square(whitened).sum(-1)
    return relative


def _density(panel: "Axes", heading: str, points: Array, log_density: Array) -> Any:
    """Shade a density relative to its peak: white to black, without a hue that could be taken for an outline."""
    density = np.exp(log_density - log_density.max())
    framed(panel, heading, points)
    return panel.contourf(*np.moveaxis(points, -1, 0), density, levels=LEVELS, cmap="bone_r")


def _ellipses(panel: "Axes", mean: Array, covariance: Array, look: dict[str, Any]) -> None:
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = _root(covariance) @ np.stack([np.cos(turn), np.sin(turn)])
    for deviations in (1, 2):
        panel.plot(*(mean[:, None] + deviations * circle), **look)


def framed(panel: "Axes", heading: str, points: Array) -> None:
    """Put a heading on a panel of two parameters, and the limits of a grid."""
    panel.set_title(heading, fontsize=10, loc="left")
    panel.set(
        xlim=points[0, [0, -1], 0], ylim=points[[0, -1], 0, 1], xlabel="parameter 1", box_aspect=1
    )
    panel.tick_params(which="both", length=0)
    panel.locator_params(nbins=5)


def iterate_drawings(pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw the vectors of posteriors of two parameters that keep them: a figure a data set."""
    kept = [pair for pair in pairs if pair.plane and pair.path is not None]
    groups = grouped(kept, lambda pair: pair.dataset)
    return {f"iterates-{name}": partial(iterates_figure, own) for name, own in groups.items()}


def iterates_figure(pairs: Sequence[Gaussians]) -> "Figure":
    """Draw, a panel an entry, the true contours, the vectors, the one before them and their mean.

    These are Figures 4.2 and B.2 of Brownlie (2022).
    """
    figure, panels = drawing.grid(len(pairs), (2.9, 2.9))
    for panel, pair in zip(panels, pairs, strict=True):
        assert pair.path is not None, "those that keep them are drawn"
        points = grid_of(
            pair, pair.path, np.array([pair.mean, pair.mean if pair.start is None else pair.start])
        )
        truth = true_density(pair, points)
        levels = [truth.max() - 0.5 * deviations**2 for deviations in DEVIATIONS]
        framed(panel, pair.entry, points)
        panel.plot(*pair.path.T, **ITERATES)
        panel.contour(*np.moveaxis(points, -1, 0), truth, levels=levels, **CONTOURS)
        if pair.start is not None:
            panel.plot(*pair.start, **START)
        panel.plot(*pair.mean, **MEAN)
    looks = (
        (ITERATES | {"markersize": 7, "alpha": 1}, "iterates, or averages of windows"),
        (START, "before them"),
    )
    handles = [drawing.handle(label, **look) for look, label in (*looks, (MEAN, "their mean"))]
    handles.insert(0, drawing.handle("truth at 1, 2 and 3 sd", color=drawing.INK, linewidth=0.9))
    lines = pairs[0].dataset, "iterates over the contours of the posterior"
    return drawing.finished(figure, panels, "parameter 2", *lines, handles=handles)
