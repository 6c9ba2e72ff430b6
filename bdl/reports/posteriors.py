"""Stored posteriors beside the truth."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.reports import drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

FEW = 3
"""Entries on a data set that have figures of their own."""
MANY = 40
"""Parameters that can be told apart in a panel."""
SPREAD = 0.7
"""Share of the place of a parameter over which the marks of the entries stand side by side."""
SHOWN = 0.95
"""Share of the true covariances that the colours tell apart: a few are often out of all proportion."""
MAP, IN_LINE = 2.0, 5
"""Width of a heat map in inches, and how many stand in a line."""
BROAD: dict[str, Any] = {"color": drawing.INK, "linewidth": 4, "alpha": 0.25}

LEVELS = np.linspace(0, 1, 11)
MARGIN = 3.2
"""Standard deviations, of the truth and of the approximation, that the panels of a plane show."""
RESOLUTION = 200
TRUTH: dict[str, Any] = {"color": drawing.PAPER["color"], "linestyle": (0, (4, 2)), "linewidth": 1.8}
APPROXIMATION: dict[str, Any] = {"color": drawing.OURS["color"], "linestyle": "-", "linewidth": 1.4}


class Gaussians(NamedTuple):
    """Moments of an approximation and of the truth, for one fit."""

    dataset: str
    entry: str
    mean: Array
    """(D,)."""
    covariance: Array
    """(D, D)."""
    true_mean: Array
    """(D,)."""
    true_covariance: Array
    """(d, d), of the first d parameters."""
    true_log_density: Callable[[Array], Array] | None = None
    """Log-density of parameters up to a constant, (m, D) -> (m,); None where the moments are all that is known."""
    start: Array | None = None
    """(D,), the vector before those of `path`."""
    path: Array | None = None
    """(T, D), vectors whose moments the approximation has; None where it is not made of such, or keeps none."""

    @property
    def plane(self) -> bool:
        """Whether there are two parameters, and both are known."""
        return len(self.true_covariance) == len(self.mean) == 2


def moment_drawings(pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw each posterior beside the truth, on data sets on which at most three entries have one."""
    counts, styles = Counter(pair.dataset for pair in pairs), _styles(pairs)
    few = [pair for pair in pairs if counts[pair.dataset] <= FEW and not pair.plane]
    return {f"posterior-{pair.dataset}-{pair.entry}": partial(moments_figure, [pair], styles) for pair in few}


def posterior_drawings(pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw the posteriors of two entries or more that are held against the same truth in one figure."""
    styles = _styles(pairs)
    groups = [(name, group) for name, group in _groups(pairs) if not group[0].plane]
    return {f"posteriors-{name}": partial(moments_figure, group, styles) for name, group in groups}


def plane_drawings(pairs: Sequence[Gaussians]) -> drawing.Drawings:
    """Draw posteriors of two parameters: as `moment_drawings` and `posterior_drawings`, whatever their truths."""
    counts = Counter(pair.dataset for pair in pairs)
    few = [pair for pair in pairs if counts[pair.dataset] <= FEW and pair.plane]
    groups = [(name, group) for name, group in _groups(pairs) if group[0].plane]
    return {f"posterior-{pair.dataset}-{pair.entry}": partial(plane_figure, pair) for pair in few} | {
        f"posteriors-{name}": partial(planes_figure, group) for name, group in groups
    }


def _styles(pairs: Sequence[Gaussians]) -> drawing.Styles:
    return drawing.styles(dict.fromkeys(pair.entry for pair in pairs))


def _groups(pairs: Sequence[Gaussians]) -> Iterator[tuple[str, list[Gaussians]]]:
    """Yield the pairs that belong in one figure, two or more, under its name; further truths are numbered from 2."""
    for dataset in dict.fromkeys(pair.dataset for pair in pairs):
        groups: list[list[Gaussians]] = []
        for pair in (pair for pair in pairs if pair.dataset == dataset):
            group = next((group for group in groups if _alike(pair, group[0])), None)
            if group is None:
                groups.append([pair])
            else:
                group.append(pair)
        for number, group in enumerate((group for group in groups if len(group) > 1), 1):
            yield dataset + (f"-{number}" if number > 1 else ""), group


def _alike(one: Gaussians, other: Gaussians) -> bool:
    """Return whether two posteriors have the same truth, or are both of two parameters."""
    truths = ((one.true_mean, other.true_mean), (one.true_covariance, other.true_covariance))
    same = all(a.shape == b.shape and np.allclose(a, b, rtol=1e-6) for a, b in truths)
    return same or (one.plane and other.plane)


def moments_figure(group: Sequence[Gaussians], styles: drawing.Styles) -> "Figure":
    """Draw means and variances of all parameters, the truth as a broad line, and off-diagonal covariances as heat maps.

    The maps are on one scale, that of the truth (SLANG paper 2018, Figs. 1 and 7), which ends before its largest few.
    """
    from matplotlib.figure import Figure

    first = group[0]
    known = len(first.true_covariance)
    maps = [("truth", first.true_covariance), *((pair.entry, pair.covariance[:known, :known]) for pair in group)]
    columns = min(len(maps), IN_LINE)
    lines = math.ceil(len(maps) / columns) if known > 1 else 0
    height = (MAP + 0.1) * lines * IN_LINE / max(columns, 3)
    figure = Figure(figsize=(MAP * IN_LINE + 1, 4.7 + height), layout="constrained", facecolor="white")
    upper, lower = figure.subfigures(2, 1, height_ratios=[3.8, height]) if lines else (figure, figure)
    means, variances = upper.subplots(2, 1, sharex=True)
    _series(means, "mean of each parameter", first.true_mean, {pair.entry: pair.mean for pair in group}, styles)
    ours = {pair.entry: np.diag(pair.covariance)[:known] for pair in group}
    _series(variances, "variance of each parameter", np.diag(first.true_covariance), ours, styles)
    variances.set_xlabel("parameter")
    if lines:
        _heat_maps(lower, lines, columns, maps)
    drawing.title(figure, f"{first.dataset}, {first.entry}" if len(group) == 1 else first.dataset)
    handles, labels = means.get_legend_handles_labels()
    upper.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return figure


def _series(panel: "Axes", heading: str, truth: Array, ours: dict[str, Array], styles: drawing.Styles) -> None:
    """Draw a number a parameter: marks side by side, or thin lines if there are too many for that."""
    drawing.dress(panel, heading, "y", bold=False)
    place = np.arange(1, len(truth) + 1)
    panel.stairs(truth, np.arange(len(truth) + 1) + 0.5, baseline=None, label="truth", **BROAD)
    few = len(truth) <= MANY
    shifts = np.linspace(-SPREAD / 2, SPREAD / 2, len(ours) + 2)[1:-1] if few else np.zeros(len(ours))
    thin: dict[str, Any] = {"linestyle": "none", "markersize": 3.5} if few else {"linewidth": 0.8, "marker": ""}
    for shift, (entry, values) in zip(shifts, ours.items(), strict=True):
        panel.plot(place + shift, values[: len(truth)], label=entry, **{**styles[entry], **thin})
    drawing.fit(panel, "y", {name: values.tolist() for name, values in {"truth": truth, **ours}.items()})
    panel.set_xlim(0.4, len(truth) + 0.6)
    panel.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def _heat_maps(figure: Any, lines: int, columns: int, maps: Sequence[tuple[str, Array]]) -> None:
    known = len(maps[0][1])
    hidden = np.eye(known, dtype=bool)
    limit = float(np.quantile(np.abs(maps[0][1][~hidden]), SHOWN)) or 1.0
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel in panels[len(maps) :]:
        panel.remove()
    for panel, (heading, values) in zip(panels, maps, strict=False):
        extent = (0.5, known + 0.5, known + 0.5, 0.5)
        shown = np.ma.array(values, mask=hidden)
        # White at zero, blue below and red above, which are told apart under every common colour blindness.
        image = panel.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=extent)
        panel.set_title(heading, fontsize=9, loc="left")
        panel.tick_params(which="both", length=0, labelsize=7)
        panel.locator_params(nbins=4, integer=True)
        panel.spines[:].set_visible(False)
    figure.suptitle("covariance of each two parameters", fontsize=10, x=0.01, ha="left", color=drawing.QUIET)
    figure.colorbar(image, ax=list(panels[: len(maps)]), shrink=0.8, extend="both", aspect=30)


def plane_figure(pair: Gaussians) -> "Figure":
    """Draw a posterior of two parameters in three panels with the same axes.

    The densities of the truth and of the approximation, each relative to its peak and on one scale (VIFA paper 2023,
    Figs. 1 and 3), and the outlines of both where the density is e^-1/2 and e^-2 of the peak: at one and two standard
    deviations of a Gaussian.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    points = grid_of(pair)
    truth = true_density(pair, points)
    figure = Figure(figsize=(10, 3.6), layout="constrained", facecolor="white")
    left, middle, bar, right = figure.subplots(1, 4, width_ratios=[1, 1, 0.04, 1])
    _density(left, "density, truth", points, truth)
    image = _density(middle, "density, approximation", points, _gaussian(points, pair.mean, pair.covariance))
    figure.colorbar(image, cax=bar, label="relative to the peak").outline.set_visible(False)  # type: ignore[operator]
    bar.set(box_aspect=25)
    bar.tick_params(length=0)
    if pair.true_log_density is None:
        _ellipses(right, pair.true_mean, pair.true_covariance, TRUTH)
    else:
        levels = [truth.max() - 0.5 * deviations**2 for deviations in (2, 1)]
        line = {"colors": TRUTH["color"], "linestyles": [TRUTH["linestyle"]], "linewidths": TRUTH["linewidth"]}
        right.contour(*np.moveaxis(points, -1, 0), truth, levels=levels, **line)
    _ellipses(right, pair.mean, pair.covariance, APPROXIMATION)
    framed(right, "outlines at 1 and 2 sd", points)
    handles = [Line2D([], [], label="truth", **TRUTH), Line2D([], [], label="approximation", **APPROXIMATION)]
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


def grid_of(pair: Gaussians) -> Array:
    """Lay a grid that is wide enough for both posteriors, (n, n, 2)."""
    both = ((pair.true_mean, pair.true_covariance), (pair.mean, pair.covariance))
    reach = [(mean, MARGIN * np.sqrt(covariance.diagonal())) for mean, covariance in both]
    low = np.min([mean - way for mean, way in reach], 0)
    high = np.max([mean + way for mean, way in reach], 0)
    return np.stack(np.meshgrid(*np.linspace(low, high, RESOLUTION, axis=1)), -1)


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
    panel.set(xlim=points[0, [0, -1], 0], ylim=points[[0, -1], 0, 1], xlabel="parameter 1", box_aspect=1)
    panel.tick_params(which="both", length=0)
    panel.locator_params(nbins=5)
