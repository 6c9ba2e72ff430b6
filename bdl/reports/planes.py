"""Figures of posteriors of two parameters in their plane: densities, outlines, and iterates."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bdl.reports import drawing
from bdl.reports.method_styles import entry_styles
from bdl.reports.posteriors import DEVIATIONS, Gaussians, group_by_truth, moments_figure
from bdl.reports.statistics import group_by
from bdl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

MAX_ENTRIES = 3
"""Most entries on a data set that have a figure each."""
LEVELS = np.linspace(0, 1, 11)
MARGIN = 3.2
"""Standard deviations of the truth, and of the approximation, that a panel shows."""
RESOLUTION = 200
TRUTH: dict[str, Any] = {
    "color": drawing.PAPER_MARK["color"],
    "linestyle": (0, (4, 2)),
    "linewidth": 1.8,
}
APPROXIMATION: dict[str, Any] = {
    "color": drawing.OUR_MARK["color"],
    "linestyle": "-",
    "linewidth": 1.4,
}

PLANE_MARGIN = 0.05
"""Share of the range of the drawn points that is free at either end."""
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


def posterior_drawings(benchmark: "Benchmark", pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw each posterior with the truth, on data sets where at most three entries have one."""
    counts = Counter(pair.dataset for pair in pairs)
    styles = entry_styles(dict.fromkeys(pair.entry for pair in pairs))
    return {
        f"posterior-{pair.dataset}-{pair.entry}": (
            partial(plane_figure, benchmark, pair)
            if pair.plane
            else partial(moments_figure, benchmark, [pair], styles)
        )
        for pair in pairs
        if counts[pair.dataset] <= MAX_ENTRIES
    }


def joint_drawings(benchmark: "Benchmark", pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw the posteriors of two entries or more that belong in one figure.

    Those of two parameters are drawn in their plane, the others by their moments.
    """
    styles = entry_styles(dict.fromkeys(pair.entry for pair in pairs))
    return {
        f"posteriors-{name}": (
            partial(planes_figure, benchmark, group)
            if group[0].plane
            else partial(moments_figure, benchmark, group, styles)
        )
        for name, group in group_by_truth(pairs)
    }


def plane_figure(benchmark: "Benchmark", pair: Gaussians) -> "Figure":
    """Draw a posterior of two parameters in three panels with the same axes.

    The densities of the truth and of the approximation, each relative to its peak and on one scale
    (VIFA paper 2023, Figs. 1 and 3), and the outlines of both where the density is e^-1/2 and e^-2
    of the peak: at one and two standard deviations of a Gaussian.
    """
    from matplotlib.figure import Figure

    points = point_grid(pair)
    truth = true_density(pair, points)
    figure = Figure(figsize=(10, 3.9), layout="constrained", facecolor="white")
    left, middle, bar, right = figure.subplots(1, 4, width_ratios=[1, 1, 0.04, 1])
    _draw_density(left, "density, truth", points, truth)
    image = _draw_density(
        middle,
        "density, approximation",
        points,
        _gaussian_log_density(points, pair.mean, pair.covariance),
    )
    figure.colorbar(image, cax=bar, label="relative to the peak").outline.set_visible(False)  # type: ignore[operator]
    bar.set(box_aspect=25)
    bar.tick_params(length=0)
    if pair.true_log_density is None:
        _draw_ellipses(right, pair.true_mean, pair.true_covariance, TRUTH)
    else:
        levels = [truth.max() - 0.5 * deviations**2 for deviations in (2, 1)]
        line = {
            "colors": TRUTH["color"],
            "linestyles": [TRUTH["linestyle"]],
            "linewidths": TRUTH["linewidth"],
        }
        right.contour(*np.moveaxis(points, -1, 0), truth, levels=levels, **line)
    _draw_ellipses(right, pair.mean, pair.covariance, APPROXIMATION)
    frame_panel(right, "outlines at 1 and 2 sd", points)
    handles = [
        drawing.legend_handle("truth", **TRUTH),
        drawing.legend_handle("approximation", **APPROXIMATION),
    ]
    right.legend(handles=handles, loc="upper center", ncols=2, frameon=False, fontsize=8)
    left.set(ylabel="parameter 2")
    drawing.write_title(figure, benchmark.title, f"{pair.dataset}, {pair.entry}")
    return figure


def planes_figure(benchmark: "Benchmark", pairs: Sequence[Gaussians]) -> "Figure":
    """Draw posteriors of two parameters, a panel an entry.

    The true density is shaded, and the approximation drawn by its outlines.
    """
    figure, panels = drawing.lay_out_panels(len(pairs), (2.7, 2.7))
    for panel, pair in zip(panels, pairs, strict=True):
        points = point_grid(pair)
        _draw_density(panel, pair.entry, points, true_density(pair, points))
        _draw_ellipses(panel, pair.mean, pair.covariance, APPROXIMATION)
    drawing.label_vertical_axes(panels, "parameter 2")
    line = f"{pairs[0].dataset}: truth shaded, approximation at 1 and 2 sd"
    drawing.write_title(figure, benchmark.title, line)
    return figure


def true_density(pair: Gaussians, points: Array) -> Array:
    """Compute the log-density of the truth at points: (n, n, 2) -> (n, n).

    Where it is not known, it is that of the Gaussian with the moments of the truth.
    """
    if pair.true_log_density is None:
        return _gaussian_log_density(points, pair.true_mean, pair.true_covariance)
    return pair.true_log_density(points.reshape(-1, 2)).reshape(points.shape[:-1])


def point_grid(pair: Gaussians, *drawn_points: Array) -> Array:
    """Lay out a grid of points, (n, n, 2), around the truth and the approximation.

    Points to draw, (m, 2), take the place of the approximation.
    """
    moments = [(pair.true_mean, pair.true_covariance)]
    if not drawn_points:
        moments.append((pair.mean, pair.covariance))
    corners: list[Array] = []
    for mean, covariance in moments:
        reach = MARGIN * np.sqrt(covariance.diagonal())
        corners.append(np.stack([mean - reach, mean + reach]))
    covered = np.concatenate([*corners, *drawn_points])
    low, high = covered.min(0), covered.max(0)
    room = PLANE_MARGIN * (high - low) if drawn_points else 0.0
    return np.stack(np.meshgrid(*np.linspace(low - room, high + room, RESOLUTION, axis=1)), -1)


def _square_root(covariance: Array) -> Array:
    """Compute a square root S, S S^T = covariance, of full rank even if the covariance is not."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(values.clip(np.finfo(np.float64).eps * values.max()))
    return root


def _gaussian_log_density(points: Array, mean: Array, covariance: Array) -> Array:
    """Compute the log-density of a Gaussian relative to its peak: (..., 2) -> (...)."""
    whitened = (points - mean) @ np.linalg.inv(_square_root(covariance)).T
    relative: Array = -0.5 * np.square(whitened).sum(-1)
    return relative


def _draw_density(panel: "Axes", heading: str, points: Array, log_density: Array) -> Any:
    """Shade a density relative to its peak, from white to black.

    A hue could be taken for an outline.
    """
    density = np.exp(log_density - log_density.max())
    frame_panel(panel, heading, points)
    return panel.contourf(*np.moveaxis(points, -1, 0), density, levels=LEVELS, cmap="bone_r")


def _draw_ellipses(panel: "Axes", mean: Array, covariance: Array, look: dict[str, Any]) -> None:
    """Draw the ellipses of a Gaussian at one and two standard deviations."""
    angle = np.linspace(0, 2 * np.pi, 200)
    ellipse = _square_root(covariance) @ np.stack([np.cos(angle), np.sin(angle)])
    for deviations in (1, 2):
        panel.plot(*(mean[:, None] + deviations * ellipse), **look)


def frame_panel(panel: "Axes", heading: str, points: Array) -> None:
    """Put a heading on a panel of two parameters, and the limits of a grid."""
    panel.set_title(heading, fontsize=10, loc="left")
    panel.set(
        xlim=points[0, [0, -1], 0], ylim=points[[0, -1], 0, 1], xlabel="parameter 1", box_aspect=1
    )
    panel.tick_params(which="both", length=0)
    panel.locator_params(nbins=5)


def iterate_drawings(benchmark: "Benchmark", pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw the vectors of posteriors of two parameters that keep them: a figure a data set."""
    traced = [pair for pair in pairs if pair.plane and pair.path is not None]
    groups = group_by(traced, lambda pair: pair.dataset)
    return {
        f"iterates-{name}": partial(iterates_figure, benchmark, dataset_pairs)
        for name, dataset_pairs in groups.items()
    }


def iterates_figure(benchmark: "Benchmark", pairs: Sequence[Gaussians]) -> "Figure":
    """Draw, a panel an entry, the true contours, the vectors, the one before them and their mean.

    These are Figures 4.2 and B.2 of Brownlie (2022).
    """
    figure, panels = drawing.lay_out_panels(len(pairs), (2.9, 2.9))
    for panel, pair in zip(panels, pairs, strict=True):
        assert pair.path is not None, "those that keep them are drawn"
        points = point_grid(
            pair, pair.path, np.array([pair.mean, pair.mean if pair.start is None else pair.start])
        )
        truth = true_density(pair, points)
        levels = [truth.max() - 0.5 * deviations**2 for deviations in DEVIATIONS]
        frame_panel(panel, pair.entry, points)
        panel.plot(*pair.path.T, **ITERATES)
        panel.contour(*np.moveaxis(points, -1, 0), truth, levels=levels, **CONTOURS)
        if pair.start is not None:
            panel.plot(*pair.start, **START)
        panel.plot(*pair.mean, **MEAN)
    looks = (
        (ITERATES | {"markersize": 7, "alpha": 1}, "iterates, or averages of windows"),
        (START, "before them"),
    )
    handles = [
        drawing.legend_handle(label, **look) for look, label in (*looks, (MEAN, "their mean"))
    ]
    handles.insert(
        0, drawing.legend_handle("truth at 1, 2 and 3 sd", color=drawing.INK, linewidth=0.9)
    )
    lines = benchmark.title, f"{pairs[0].dataset}: iterates over the contours of the posterior"
    return drawing.finish_figure(figure, panels, "parameter 2", *lines, handles=handles)
