"""Credible bands: what stored posteriors say of a function of one input."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.reports import drawing
from bdl.reports.posteriors import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVIATIONS = (3, 2, 1)
DOTS: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": drawing.INK}
SHADE = 0.16
"""How dark one credible band is."""
REACH = 1.5
"""How far beyond the targets, and the means, panels of a function reach, in ranges of the targets; bands are clipped
there."""


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


def band_drawings(bands: Sequence[CredibleBand], *, by_quartiles: bool = False) -> drawing.Drawings:
    """Draw credible bands of the function, a figure a data set, a panel an entry; see `bands_figure`."""
    groups: dict[str, list[CredibleBand]] = {}
    for band in bands:
        groups.setdefault(band.dataset, []).append(band)
    return {f"bands-{name}": partial(bands_figure, own, by_quartiles=by_quartiles) for name, own in groups.items()}


def bands_figure(bands: Sequence[CredibleBand], *, by_quartiles: bool = False) -> "Figure":
    """Draw the function with its credible bands, and the rows; the noise of the targets is not part of the bands.

    Parameters
    ----------
    bands
        Of one data set.
    by_quartiles
        Whether to draw medians and quartiles, with the test rows, as in Figure 4.5 of Mata (2018), rather than means
        and deviations, as in Figure 8 of the SLANG paper (2018).
    """
    from matplotlib.patches import Patch

    figure, panels = drawing.grid(len(bands), (3.2, 2.9), sharex=True, sharey=True)
    for panel, band in zip(panels, bands, strict=True):
        if by_quartiles:
            panel.plot(*band.new, label="test rows", zorder=1, **DOTS | {"markersize": 1.2, "color": "#b5b5b5"})
            low, middle, high = band.quartiles
            panel.fill_between(band.x, low, high, alpha=2 * SHADE, linewidth=0, color=drawing.COLORS[0])
        else:
            middle = band.mean
            for number in DEVIATIONS:
                ends = band.mean - number * band.sd, band.mean + number * band.sd
                panel.fill_between(band.x, *ends, alpha=SHADE, linewidth=0, color=drawing.COLORS[0])
        name = "median" if by_quartiles else "mean"
        panel.plot(band.x, middle, linewidth=1.6, label=name, color=drawing.COLORS[0])
        size = 1.8 if by_quartiles else 3.2
        panel.plot(band.inputs, band.targets, label="training rows", **DOTS | {"markersize": size})
        drawing.dress(panel, band.entry)
        panel.set_xlabel("input")
        panel.locator_params(axis="x", nbins=5)
    what = "probability of the second class" if bands[0].labels else "function of the input"
    panels[0].set(ylim=_limits(bands, by_quartiles), xlim=(bands[0].x[0], bands[0].x[-1]), ylabel=what)
    drawing.title(figure, bands[0].dataset)
    shades = [  # bands of more deviations lie below those of fewer
        Patch(facecolor=drawing.COLORS[0], alpha=1 - (1 - SHADE) ** depth, label=f"credible band, ± {number} sd")
        for depth, number in enumerate(DEVIATIONS, 1)
    ]
    if by_quartiles:
        shades = [Patch(facecolor=drawing.COLORS[0], alpha=2 * SHADE, label="quartiles")]
    drawing.legend(
        figure, [*panels[0].get_legend_handles_labels()[0], *reversed(shades)], columns=2 if len(bands) < 3 else 5
    )
    return figure


def _limits(bands: Sequence[CredibleBand], by_quartiles: bool) -> tuple[float, float]:
    """Return the least and the greatest value that the panels show."""
    if by_quartiles:
        shown = np.concatenate([bands[0].targets, bands[0].new[1]])
        free = drawing.FREE * float(np.ptp(shown))
        return float(shown.min()) - free, float(shown.max()) + free
    low, high = (float(choose(bands[0].targets)) for choose in (min, max))
    reach = REACH * (high - low)
    ends = [(float((band.mean - 3 * band.sd).min()), float((band.mean + 3 * band.sd).max())) for band in bands]
    least, most = min(low, *(end[0] for end in ends)), max(high, *(end[1] for end in ends))
    return max(low - reach, least), min(high + reach, most)
