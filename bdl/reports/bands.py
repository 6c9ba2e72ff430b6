"""What posteriors say of a function of one input: its mean and deviations, one figure a data set."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bdl.reports.figures import INK, OURS, QUIET, save
from bdl.reports.inputs import Band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT, IN_LINE = 3.2, 2.9, 4
"""Of a panel, in inches; panels in a line."""
DEVIATIONS = (3, 2, 1)
SHADE = 0.16
"""How dark one band is."""
REACH = 1.5
"""How far beyond the targets, and the means, the panels reach, in ranges of the targets; deviations are cut there."""
POINTS: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 3.2, "color": INK}


def band_figures(benchmark: str, bands: Sequence[Band], folder: Path) -> list[Path]:
    """Draw the predictive mean with 1, 2 and 3 standard deviations of the function over its input.

    Parameters
    ----------
    benchmark
        Name of the benchmark, the start of the file names.
    bands
        What to draw.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-bands-<dataset>.png`` (200 dpi) and ``.pdf``: a panel an entry with the training rows on top, as
        in Figure 8 of the SLANG paper (2018). The noise of the targets is not part of the deviations.
    """
    groups: dict[str, list[Band]] = {}
    for band in bands:
        groups.setdefault(band.dataset, []).append(band)
    return save({f"{benchmark}-bands-{name}": partial(_figure, own) for name, own in groups.items()}, folder)


def _figure(bands: Sequence[Band]) -> "Figure":
    from matplotlib.figure import Figure

    columns = min(len(bands), IN_LINE)
    lines = math.ceil(len(bands) / columns)
    size = max(WIDTH * columns, 5.5), HEIGHT * lines + 0.9
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel in panels[len(bands) :]:
        panel.remove()
    for panel, band in zip(panels, bands, strict=False):
        panel.set_title(band.entry, fontsize=10, fontweight="bold", loc="left")
        _fill(panel, band)
    low, high = _limits(bands)
    panels[0].set(ylim=(low, high), xlim=(bands[0].x[0], bands[0].x[-1]))
    figure.suptitle(bands[0].dataset, fontsize=11, x=0.01, ha="left")
    _legend(figure, panels[0])
    return figure


def _fill(panel: "Axes", band: Band) -> None:
    color: Mapping[str, Any] = {"color": OURS["color"]}
    for number in DEVIATIONS:
        ends = band.mean - number * band.sd, band.mean + number * band.sd
        panel.fill_between(band.x, *ends, alpha=SHADE, linewidth=0, **color)
    panel.plot(band.x, band.mean, linewidth=1.6, label="mean", **color)
    panel.plot(band.inputs, band.targets, label="training rows", **POINTS)
    panel.grid()
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_visible(False)
    panel.set_xlabel("input", color=QUIET)
    panel.locator_params(axis="x", nbins=5)


def _legend(figure: "Figure", panel: "Axes") -> None:
    from matplotlib.patches import Patch

    lines, _ = panel.get_legend_handles_labels()
    shades = [  # bands of more deviations lie below those of fewer
        Patch(facecolor=OURS["color"], alpha=1 - (1 - SHADE) ** depth, label=f"± {number} sd")
        for depth, number in enumerate(DEVIATIONS, 1)
    ]
    figure.legend(handles=[*lines, *reversed(shades)], loc="outside lower center", ncols=5, frameon=False)


def _limits(bands: Sequence[Band]) -> tuple[float, float]:
    """Return the least and the greatest value that the panels show."""
    low, high = (float(choose(bands[0].targets)) for choose in (min, max))
    reach = REACH * (high - low)
    ends = [(float((band.mean - 3 * band.sd).min()), float((band.mean + 3 * band.sd).max())) for band in bands]
    least, most = min(low, *(end[0] for end in ends)), max(high, *(end[1] for end in ends))
    return max(low - reach, least), min(high + reach, most)
