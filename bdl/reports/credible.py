"""Credible bands: what stored posteriors say of a function of one input."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports import drawing
from bdl.reports.posteriors import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVIATIONS = (3, 2, 1)
SHADE = 0.16
"""How dark one credible band is."""
REACH = 1.5
"""How far beyond the targets, and the means, panels of a function reach, in ranges of the targets; bands are clipped
there."""


class CredibleBand(NamedTuple):
    """What an approximation says of a function of one input, for one fit; all in original units."""

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


def band_drawings(bands: Sequence[CredibleBand]) -> drawing.Drawings:
    """Draw credible bands of the function, a figure a data set, a panel an entry."""
    groups: dict[str, list[CredibleBand]] = {}
    for band in bands:
        groups.setdefault(band.dataset, []).append(band)
    return {f"bands-{name}": partial(bands_figure, own) for name, own in groups.items()}


def bands_figure(bands: Sequence[CredibleBand]) -> "Figure":
    """Draw the mean of the function with its credible bands, and the training rows on top, as in Figure 8 of the SLANG
    paper (2018). The noise of the targets is not part of the bands."""
    from matplotlib.patches import Patch

    figure, panels = drawing.grid(len(bands), (3.2, 2.9), sharex=True, sharey=True)
    for panel, band in zip(panels, bands, strict=True):
        for number in DEVIATIONS:
            ends = band.mean - number * band.sd, band.mean + number * band.sd
            panel.fill_between(band.x, *ends, alpha=SHADE, linewidth=0, color=drawing.COLORS[0])
        panel.plot(band.x, band.mean, linewidth=1.6, label="mean", color=drawing.COLORS[0])
        marks: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 3.2, "color": drawing.INK}
        panel.plot(band.inputs, band.targets, label="training rows", **marks)
        drawing.dress(panel, band.entry)
        panel.set_xlabel("input")
        panel.locator_params(axis="x", nbins=5)
    panels[0].set(ylim=_limits(bands), xlim=(bands[0].x[0], bands[0].x[-1]), ylabel="function of the input")
    drawing.title(figure, bands[0].dataset)
    shades = [  # bands of more deviations lie below those of fewer
        Patch(facecolor=drawing.COLORS[0], alpha=1 - (1 - SHADE) ** depth, label=f"credible band, ± {number} sd")
        for depth, number in enumerate(DEVIATIONS, 1)
    ]
    drawing.legend(
        figure, [*panels[0].get_legend_handles_labels()[0], *reversed(shades)], columns=2 if len(bands) < 3 else 5
    )
    return figure


def _limits(bands: Sequence[CredibleBand]) -> tuple[float, float]:
    """Return the least and the greatest value that the panels show."""
    low, high = (float(choose(bands[0].targets)) for choose in (min, max))
    reach = REACH * (high - low)
    ends = [(float((band.mean - 3 * band.sd).min()), float((band.mean + 3 * band.sd).max())) for band in bands]
    least, most = min(low, *(end[0] for end in ends)), max(high, *(end[1] for end in ends))
    return max(low - reach, least), min(high + reach, most)
