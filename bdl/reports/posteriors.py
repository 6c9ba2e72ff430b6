"""Stored posteriors: moments beside the truth, and credible bands of a function of one input."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.reports import drawing
from bdl.reports.statistics import Array, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


MANY = 40
"""Parameters that can be told apart in a panel."""
SPREAD = 0.7
"""Share of the place of a parameter over which the marks of the entries stand side by side."""
SHOWN = 0.95
"""Share of the true covariances that the colours tell apart: a few are often out of all
proportion.
"""
MAP, IN_LINE = 2.0, 5
"""Width of a heat map in inches, and how many stand in a line."""
BROAD: dict[str, Any] = {"color": drawing.INK, "linewidth": 4, "alpha": 0.25}

DEVIATIONS = (3, 2, 1)
"""Standard deviations of bands, and of contours."""
DOTS: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": drawing.INK}
SHADE = 0.16
"""How dark one credible band is."""
REACH = 1.5
"""How far beyond the targets, and the means, panels of a function reach, in ranges of the
targets; bands are clipped
there."""


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
    """Log-density of parameters up to a constant, (m, D) -> (m,); None where the moments are all
    that is known.
    """
    start: Array | None = None
    """(D,), the vector before those of `path`."""
    path: Array | None = None
    """(T, D), vectors whose moments the approximation has; None where it is not made of such, or
    keeps none.
    """

    @property
    def plane(self) -> bool:
        """Whether there are two parameters, and both are known."""
        return len(self.true_covariance) == len(self.mean) == 2


def by_truth(pairs: Sequence[Gaussians]) -> Iterator[tuple[str, list[Gaussians]]]:
    """Yield the pairs that belong in one figure, two or more, under its name.

    Further truths are numbered from 2.
    """
    for dataset, own in grouped(pairs, lambda pair: pair.dataset).items():
        groups: list[list[Gaussians]] = []
        for pair in own:
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

    The maps are on one scale, that of the truth (SLANG paper 2018, Figs. 1 and 7), which ends
    before its largest few.
    """
    from matplotlib.figure import Figure

    first = group[0]
    known = len(first.true_covariance)
    maps = [
        ("truth", first.true_covariance),
        *((pair.entry, pair.covariance[:known, :known]) for pair in group),
    ]
    columns = min(len(maps), IN_LINE)
    lines = math.ceil(len(maps) / columns) if known > 1 else 0
    height = (MAP + 0.1) * lines * IN_LINE / max(columns, 3)
    figure = Figure(
        figsize=(MAP * IN_LINE + 1, 4.7 + height), layout="constrained", facecolor="white"
    )
    upper, lower = (
        figure.subfigures(2, 1, height_ratios=[3.8, height]) if lines else (figure, figure)
    )
    means, variances = upper.subplots(2, 1, sharex=True)
    _series(
        means,
        "mean of each parameter",
        first.true_mean,
        {pair.entry: pair.mean for pair in group},
        styles,
    )
    ours = {pair.entry: np.diag(pair.covariance)[:known] for pair in group}
    _series(variances, "variance of each parameter", np.diag(first.true_covariance), ours, styles)
    variances.set_xlabel("parameter")
    if lines:
        _heat_maps(lower, lines, columns, maps)
    drawing.title(figure, f"{first.dataset}, {first.entry}" if len(group) == 1 else first.dataset)
    handles, labels = means.get_legend_handles_labels()
    upper.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return figure


def _series(
    panel: "Axes", heading: str, truth: Array, ours: dict[str, Array], styles: drawing.Styles
) -> None:
    drawing.dress(panel, heading, "y", bold=False)
    place = np.arange(1, len(truth) + 1)
    panel.stairs(truth, np.arange(len(truth) + 1) + 0.5, baseline=None, label="truth", **BROAD)
    few = len(truth) <= MANY
    shifts = (
        np.linspace(-SPREAD / 2, SPREAD / 2, len(ours) + 2)[1:-1] if few else np.zeros(len(ours))
    )
    thin: dict[str, Any] = (
        {"linestyle": "none", "markersize": 3.5} if few else {"linewidth": 0.8, "marker": ""}
    )
    for shift, (entry, values) in zip(shifts, ours.items(), strict=True):
        panel.plot(place + shift, values[: len(truth)], label=entry, **{**styles[entry], **thin})
    drawing.fit(
        panel, "y", {name: values.tolist() for name, values in {"truth": truth, **ours}.items()}
    )
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
        # White at zero, blue below and red above, which are told apart under every common colour
        # blindness.
        image = panel.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=extent)
        panel.set_title(heading, fontsize=9, loc="left")
        panel.tick_params(which="both", length=0, labelsize=7)
        panel.locator_params(nbins=4, integer=True)
        panel.spines[:].set_visible(False)
    figure.suptitle(
        "covariance of each two parameters", fontsize=10, x=0.01, ha="left", color=drawing.QUIET
    )
    figure.colorbar(image, ax=list(panels[: len(maps)]), shrink=0.8, extend="both", aspect=30)


class CredibleBand(NamedTuple):
    """What an approximation says of a function of one input, for one fit; all in original units.

    Of labels, 0 and 1, the function is the probability of 1.
    """

    dataset: str
    entry: str
    x: Array
    """Inputs, ascending, (m,)."""
    mean: Array
    """Mean of the function there, (m,)."""
    sd: Array
    """Its standard deviation, without the noise of targets, (m,)."""
    inputs: Array
    """Of the training rows, (n,)."""
    targets: Array
    """Of the training rows, (n,)."""
    quartiles: Array
    """Lower quartile, median and upper quartile of the function, (3, m)."""
    new: Array
    """Inputs and targets of the test rows, (2, n_test)."""
    labels: bool = False
    """Whether targets are labels."""


def band_drawings(benchmark: "Benchmark", bands: Sequence[CredibleBand]) -> drawing.Drawings:
    """Draw credible bands, a figure a data set, a panel an entry.

    By quartiles where the benchmark scores spreads.
    """
    by_quartiles = any(metric.startswith("spread") for metric in benchmark.metrics)
    groups = grouped(bands, lambda band: band.dataset)
    return {
        f"bands-{name}": partial(bands_figure, own, by_quartiles=by_quartiles)
        for name, own in groups.items()
    }


def bands_figure(bands: Sequence[CredibleBand], *, by_quartiles: bool = False) -> "Figure":
    """Draw the function with its credible bands, and the rows.

    The noise of the targets is not part of the bands.

    By quartiles, medians and quartiles are drawn, with the test rows, as in Figure 4.5 of Mata
    (2018), rather than means and deviations, as in Figure 8 of the SLANG paper (2018).
    """
    from matplotlib.patches import Patch

    figure, panels = drawing.grid(len(bands), (3.2, 2.9), sharex=True, sharey=True)
    for panel, band in zip(panels, bands, strict=True):
        if by_quartiles:
            panel.plot(
                *band.new,
                label="test rows",
                zorder=1,
                **DOTS | {"markersize": 1.2, "color": "#b5b5b5"},
            )
            low, middle, high = band.quartiles
            panel.fill_between(
                band.x, low, high, alpha=2 * SHADE, linewidth=0, color=drawing.COLORS[0]
            )
        else:
            middle = band.mean
            for number in DEVIATIONS:
                ends = band.mean - number * band.sd, band.mean + number * band.sd
                panel.fill_between(
                    band.x, *ends, alpha=SHADE, linewidth=0, color=drawing.COLORS[0]
                )
        name = "median" if by_quartiles else "mean"
        panel.plot(band.x, middle, linewidth=1.6, label=name, color=drawing.COLORS[0])
        size = 1.8 if by_quartiles else 3.2
        panel.plot(band.inputs, band.targets, label="training rows", **DOTS | {"markersize": size})
        drawing.dress(panel, band.entry)
        panel.set_xlabel("input")
        panel.locator_params(axis="x", nbins=5)
    what = "probability of the second class" if bands[0].labels else "function of the input"
    panels[0].set(
        ylim=_limits(bands, by_quartiles), xlim=(bands[0].x[0], bands[0].x[-1]), ylabel=what
    )
    drawing.title(figure, bands[0].dataset)
    shades = [  # bands of more deviations lie below those of fewer
        Patch(
            facecolor=drawing.COLORS[0],
            alpha=1 - (1 - SHADE) ** depth,
            label=f"credible band, ± {number} sd",
        )
        for depth, number in enumerate(DEVIATIONS, 1)
    ]
    if by_quartiles:
        shades = [Patch(facecolor=drawing.COLORS[0], alpha=2 * SHADE, label="quartiles")]
    drawing.legend(
        figure,
        [*panels[0].get_legend_handles_labels()[0], *reversed(shades)],
        columns=2 if len(bands) < 3 else 5,
    )
    return figure


def _limits(bands: Sequence[CredibleBand], by_quartiles: bool) -> tuple[float, float]:
    if by_quartiles:
        shown = np.concatenate([bands[0].targets, bands[0].new[1]])
        free = drawing.FREE * float(np.ptp(shown))
        return float(shown.min()) - free, float(shown.max()) + free
    low, high = (float(choose(bands[0].targets)) for choose in (min, max))
    reach = REACH * (high - low)
    ends = [
        (float((band.mean - 3 * band.sd).min()), float((band.mean + 3 * band.sd).max()))
        for band in bands
    ]
    least, most = min(low, *(end[0] for end in ends)), max(high, *(end[1] for end in ends))
    return max(low - reach, least), min(high + reach, most)
