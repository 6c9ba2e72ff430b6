"""The posterior of two parameters beside the truth: two densities on one scale, and the outlines of both."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bdl.reports.figures import OURS, PAPER
from bdl.reports.inputs import Array, Gaussians

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHADES = "bone_r"
"""From white to black, without a hue that could be taken for one of the outlines."""
LEVELS = np.linspace(0, 1, 11)
MARGIN = 3.2
"""Standard deviations, of the truth and of the approximation, that the panels show."""
RESOLUTION = 200
IN_LINE = 4
"""Panels, if there is one an entry."""
Look = dict[str, Any]
TRUTH: Look = {"color": PAPER["color"], "linestyle": (0, (4, 2)), "linewidth": 1.8}
APPROXIMATION: Look = {"color": OURS["color"], "linestyle": "-", "linewidth": 1.4}


def plane_figure(pair: Gaussians) -> "Figure":
    """Draw a posterior of two parameters in three panels with the same axes.

    Parameters
    ----------
    pair
        With D = d = 2. The truth is drawn from its log-density, or without one as the Gaussian with its moments.

    Returns
    -------
    Figure
        The densities of the truth and of the approximation, each relative to its peak and on one scale (VIFA paper
        2023, Figs. 1 and 3), and the outlines of both where the density is e^-1/2 and e^-2 of the peak: at one and
        two standard deviations of a Gaussian.
    """
    from matplotlib.figure import Figure

    points = _points(pair)
    truth = _truth(pair, points)
    ours = _gaussian(points, pair.mean, pair.covariance)

    figure = Figure(figsize=(10, 3.6), layout="constrained", facecolor="white")
    left, middle, bar, right = figure.subplots(1, 4, width_ratios=[1, 1, 0.04, 1])
    for panel, values, title in ((left, truth, "density, truth"), (middle, ours, "density, approximation")):
        density = np.exp(values - values.max())
        image = panel.contourf(*np.moveaxis(points, -1, 0), density, levels=LEVELS, cmap=SHADES)
        _finish(panel, title, points)
    figure.colorbar(image, cax=bar, label="relative to the peak").outline.set_visible(False)  # type: ignore[operator]
    bar.set(box_aspect=25)
    bar.tick_params(length=0)
    if pair.true_log_density is None:
        _ellipses(right, pair.true_mean, pair.true_covariance, TRUTH)
    else:
        _contours(right, points, truth, TRUTH)
    _ellipses(right, pair.mean, pair.covariance, APPROXIMATION)
    _finish(right, "outlines at 1 and 2 sd", points)
    _legend(right)
    left.set(ylabel="parameter 2")
    figure.suptitle(f"{pair.dataset}, {pair.entry}", fontsize=11, x=0.01, ha="left")
    return figure


def planes_figure(pairs: Sequence[Gaussians]) -> "Figure":
    """Draw several posteriors of two parameters, a panel an entry.

    Parameters
    ----------
    pairs
        Of one data set, as in `plane_figure`.

    Returns
    -------
    Figure
        Density of the truth, relative to its peak, and over it the outlines of the approximation at one and two
        standard deviations.
    """
    from matplotlib.figure import Figure

    columns = min(len(pairs), IN_LINE)
    lines = math.ceil(len(pairs) / columns)
    figure = Figure(figsize=(max(2.7 * columns, 5), 2.7 * lines + 0.9), layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, squeeze=False)
    for panel in panels.ravel()[len(pairs) :]:
        panel.remove()
    for panel, pair in zip(panels.ravel(), pairs, strict=False):
        points = _points(pair)
        truth = _truth(pair, points)
        panel.contourf(*np.moveaxis(points, -1, 0), np.exp(truth - truth.max()), levels=LEVELS, cmap=SHADES)
        _ellipses(panel, pair.mean, pair.covariance, APPROXIMATION)
        _finish(panel, pair.entry, points)
    for row in panels:
        row[0].set(ylabel="parameter 2")
    what = "truth shaded; approximation at 1 and 2 sd"
    figure.suptitle(f"{pairs[0].dataset}\n{what}", fontsize=11, x=0.01, ha="left")
    return figure


def _truth(pair: Gaussians, points: Array) -> Array:
    """Log-density of the truth, or without one of the Gaussian with its moments: (n, n, 2) -> (n, n)."""
    if pair.true_log_density is None:
        return _gaussian(points, pair.true_mean, pair.true_covariance)
    return pair.true_log_density(points.reshape(-1, 2)).reshape(points.shape[:-1])


def _points(pair: Gaussians) -> Array:
    """Lay a grid that is wide enough for both posteriors, (n, n, 2)."""
    both = ((pair.true_mean, pair.true_covariance), (pair.mean, pair.covariance))
    reach = [(mean, MARGIN * np.sqrt(covariance.diagonal())) for mean, covariance in both]
    low = np.min([mean - way for mean, way in reach], 0)
    high = np.max([mean + way for mean, way in reach], 0)
    return np.stack(np.meshgrid(*np.linspace(low, high, RESOLUTION, axis=1)), -1)


def _spread(covariance: Array) -> Array:
    """Take a square root S, S S^T = covariance, of full rank even if the covariance is not."""
    values, vectors = np.linalg.eigh(covariance)
    root: Array = vectors * np.sqrt(values.clip(np.finfo(np.float64).eps * values.max()))
    return root


def _gaussian(points: Array, mean: Array, covariance: Array) -> Array:
    """Log-density relative to the peak: (..., 2) -> (...)."""
    whitened = (points - mean) @ np.linalg.inv(_spread(covariance)).T
    relative: Array = -0.5 * np.square(whitened).sum(-1)
    return relative


def _ellipses(panel: "Axes", mean: Array, covariance: Array, look: Look) -> None:
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = _spread(covariance) @ np.stack([np.cos(turn), np.sin(turn)])
    for deviations in (1, 2):
        panel.plot(*(mean[:, None] + deviations * circle), **look)


def _contours(panel: "Axes", points: Array, log_density: Array, look: Look) -> None:
    levels = [log_density.max() - 0.5 * deviations**2 for deviations in (2, 1)]
    styles = {"colors": look["color"], "linestyles": [look["linestyle"]], "linewidths": look["linewidth"]}
    panel.contour(*np.moveaxis(points, -1, 0), log_density, levels=levels, **styles)


def _finish(panel: "Axes", title: str, points: Array) -> None:
    panel.set_title(title, fontsize=10, loc="left")
    panel.set(xlim=points[0, [0, -1], 0], ylim=points[[0, -1], 0, 1], xlabel="parameter 1", box_aspect=1)
    panel.tick_params(which="both", length=0)
    panel.locator_params(nbins=5)


def _legend(panel: "Axes") -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label="truth", **TRUTH), Line2D([], [], label="approximation", **APPROXIMATION)]
    panel.legend(handles=handles, loc="upper center", ncols=2, frameon=False, fontsize=8)
