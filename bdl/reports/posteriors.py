"""Figures of stored posteriors: moments compared with the truth, and credible bands."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.reports import drawing
from bdl.reports.statistics import group_by
from bdl.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


MAX_MARKED_PARAMETERS = 40
"""Most parameters whose marks can be told apart in a panel."""
SPREAD = 0.7
"""Share of the distance of two parameters over which the marks of the entries are spread."""
COLOUR_QUANTILE = 0.95
"""Quantile of the true covariances at which the colours end: a few are often outliers."""
MAP_WIDTH, MAPS_PER_LINE = 2.0, 5
"""Width of a heat map in inches, and number of maps in a line."""
TRUTH_LINE: dict[str, Any] = {"color": drawing.INK, "linewidth": 4, "alpha": 0.25}

DEVIATIONS = (3, 2, 1)
"""Standard deviations of bands, and of contours."""
DOTS: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": drawing.INK}
SHADE = 0.16
"""Opacity of a credible band."""
REACH = 1.5
"""Distance beyond the targets at which bands are clipped, in ranges of the targets."""


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
    """Log-density of parameters up to a constant, (m, D) -> (m,); None where only the moments are
    known.
    """
    start: Array | None = None
    """(D,), the vector before those of `path`."""
    path: Array | None = None
    """(T, D), vectors whose moments are those of the approximation; None where it keeps none."""

    @property
    def plane(self) -> bool:
        """Whether there are two parameters, and both are known."""
        return len(self.true_covariance) == len(self.mean) == 2


def group_by_truth(pairs: Sequence[Gaussians]) -> Iterator[tuple[str, list[Gaussians]]]:
    """Yield the pairs that belong in one figure, two or more, under its name.

    Further truths are numbered from 2.
    """
    for dataset, dataset_pairs in group_by(pairs, lambda pair: pair.dataset).items():
        groups: list[list[Gaussians]] = []
        for pair in dataset_pairs:
            group = next((group for group in groups if _share_figure(pair, group[0])), None)
            if group is None:
                groups.append([pair])
            else:
                group.append(pair)
        figures = [group for group in groups if len(group) > 1]
        for number, group in enumerate(figures, 1):
            yield dataset + (f"-{number}" if number > 1 else ""), group


def _share_figure(first: Gaussians, second: Gaussians) -> bool:
    """Return whether two posteriors have the same truth, or are both of two parameters."""
    truths = ((first.true_mean, second.true_mean), (first.true_covariance, second.true_covariance))
    same = all(a.shape == b.shape and np.allclose(a, b, rtol=1e-6) for a, b in truths)
    return same or (first.plane and second.plane)


def moments_figure(
    benchmark: "Benchmark", group: Sequence[Gaussians], styles: drawing.Styles
) -> "Figure":
    """Draw means and variances of all parameters, and covariances as heat maps.

    The truth is a broad line. The maps are on one scale, that of the truth (SLANG paper 2018,
    Figs. 1 and 7), which ends before its largest few off-diagonal covariances.
    """
    from matplotlib.figure import Figure

    first = group[0]
    n_true = len(first.true_covariance)
    maps = [
        ("truth", first.true_covariance),
        *((pair.entry, pair.covariance[:n_true, :n_true]) for pair in group),
    ]
    columns = min(len(maps), MAPS_PER_LINE)
    lines = math.ceil(len(maps) / columns) if n_true > 1 else 0
    height = (MAP_WIDTH + 0.1) * lines * MAPS_PER_LINE / max(columns, 3)
    figure = Figure(
        figsize=(MAP_WIDTH * MAPS_PER_LINE + 1, 4.7 + height),
        layout="constrained",
        facecolor="white",
    )
    upper, lower = (
        figure.subfigures(2, 1, height_ratios=[3.8, height]) if lines else (figure, figure)
    )
    means, variances = upper.subplots(2, 1, sharex=True)
    _draw_series(
        means,
        "mean of each parameter",
        first.true_mean,
        {pair.entry: pair.mean for pair in group},
        styles,
    )
    _draw_series(
        variances,
        "variance of each parameter",
        np.diag(first.true_covariance),
        {pair.entry: np.diag(pair.covariance)[:n_true] for pair in group},
        styles,
    )
    means.set_xlim(0.4, len(first.true_mean) + 0.6)  # the variances share it
    variances.set_xlabel("parameter")
    if lines:
        _draw_heat_maps(lower, lines, columns, maps)
    line = f"{first.dataset}, {first.entry}" if len(group) == 1 else first.dataset
    drawing.write_title(figure, benchmark.title, line)
    handles, labels = means.get_legend_handles_labels()
    upper.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return figure


def _draw_series(
    panel: "Axes",
    heading: str,
    truth: Array,
    values_by_entry: dict[str, Array],
    styles: drawing.Styles,
) -> None:
    drawing.style_panel(panel, heading, "y", bold=False)
    positions = np.arange(1, len(truth) + 1)
    panel.stairs(
        truth, np.arange(len(truth) + 1) + 0.5, baseline=None, label="truth", **TRUTH_LINE
    )
    separate = len(truth) <= MAX_MARKED_PARAMETERS
    shifts = (
        np.linspace(-SPREAD / 2, SPREAD / 2, len(values_by_entry) + 2)[1:-1]
        if separate
        else np.zeros(len(values_by_entry))
    )
    entry_look: dict[str, Any] = (
        {"linestyle": "none", "markersize": 3.5} if separate else {"linewidth": 0.8, "marker": ""}
    )
    for shift, (entry, values) in zip(shifts, values_by_entry.items(), strict=True):
        panel.plot(
            positions + shift, values[: len(truth)], label=entry, **{**styles[entry], **entry_look}
        )
    drawing.fit_axis(
        panel,
        "y",
        {name: values.tolist() for name, values in {"truth": truth, **values_by_entry}.items()},
    )
    panel.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def _draw_heat_maps(
    figure: Any, lines: int, columns: int, maps: Sequence[tuple[str, Array]]
) -> None:
    n_parameters = len(maps[0][1])
    hidden = np.eye(n_parameters, dtype=bool)
    limit = float(np.quantile(np.abs(maps[0][1][~hidden]), COLOUR_QUANTILE)) or 1.0
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel in panels[len(maps) :]:
        panel.remove()
    for panel, (heading, values) in zip(panels, maps, strict=False):
        extent = (0.5, n_parameters + 0.5, n_parameters + 0.5, 0.5)
        off_diagonal = np.ma.array(values, mask=hidden)
        # White at zero, blue below and red above, which are told apart under every common colour
        # blindness.
        image = panel.imshow(off_diagonal, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=extent)
        panel.set_title(heading, fontsize=9, loc="left")
        panel.tick_params(which="both", length=0, labelsize=7)
        panel.locator_params(nbins=4, integer=True)
        panel.spines[:].set_visible(False)
    figure.suptitle(
        "covariance of each two parameters", fontsize=10, x=0.01, ha="left", color=drawing.QUIET
    )
    figure.colorbar(image, ax=list(panels[: len(maps)]), shrink=0.8, extend="both", aspect=30)


class CredibleBand(NamedTuple):
    """Posterior moments and quartiles of a function of one input, for one fit, in original units.

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


def credible_band_drawings(
    benchmark: "Benchmark", bands: Sequence[CredibleBand]
) -> drawing.Drawings:
    """Draw credible bands, a figure a data set, a panel an entry.

    They are quartiles where the benchmark scores spreads.
    """
    by_quartiles = any(metric.startswith("spread") for metric in benchmark.metrics)
    groups = group_by(bands, lambda band: band.dataset)
    return {
        f"bands-{name}": partial(
            credible_bands_figure, benchmark, dataset_bands, by_quartiles=by_quartiles
        )
        for name, dataset_bands in groups.items()
    }


def credible_bands_figure(
    benchmark: "Benchmark", bands: Sequence[CredibleBand], *, by_quartiles: bool = False
) -> "Figure":
    """Draw the function with its credible bands, and the rows.

    The noise of the targets is not part of the bands. `by_quartiles` draws medians, quartiles and
    the test rows, as in Figure 4.5 of Mata (2018), rather than means and deviations, as in
    Figure 8 of the SLANG paper (2018).
    """
    from matplotlib.patches import Patch

    figure, panels = drawing.lay_out_panels(len(bands), (3.2, 2.9), sharex=True, sharey=True)
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
        drawing.style_panel(panel, band.entry)
        panel.set_xlabel("input")
        panel.locator_params(axis="x", nbins=5)
    first = bands[0]
    panels[0].set(ylim=_value_limits(bands, by_quartiles), xlim=(first.x[0], first.x[-1]))
    drawing.label_vertical_axes(
        panels, "probability of the second class" if first.labels else "function of the input"
    )
    drawing.write_title(figure, benchmark.title, first.dataset)
    # Bands of fewer deviations lie on those of more, and are darker by as many shades.
    shades = [
        Patch(
            facecolor=drawing.COLORS[0],
            alpha=1 - (1 - SHADE) ** depth,
            label=f"credible band, ± {number} sd",
        )
        for depth, number in enumerate(DEVIATIONS, 1)
    ]
    if by_quartiles:
        shades = [Patch(facecolor=drawing.COLORS[0], alpha=2 * SHADE, label="quartiles")]
    drawing.draw_legend(
        figure,
        [*panels[0].get_legend_handles_labels()[0], *reversed(shades)],
        columns=2 if len(bands) < 3 else 5,
    )
    return figure


def _value_limits(bands: Sequence[CredibleBand], by_quartiles: bool) -> tuple[float, float]:
    """Return the limits of the vertical axis, which all panels share."""
    if by_quartiles:
        targets = np.concatenate([bands[0].targets, bands[0].new[1]])
        free = drawing.AXIS_MARGIN * float(np.ptp(targets))
        return float(targets.min()) - free, float(targets.max()) + free
    low, high = float(min(bands[0].targets)), float(max(bands[0].targets))
    reach = REACH * (high - low)
    lowest = min(low, *(float((band.mean - 3 * band.sd).min()) for band in bands))
    highest = max(high, *(float((band.mean + 3 * band.sd).max()) for band in bands))
    return max(low - reach, lowest), min(high + reach, highest)
