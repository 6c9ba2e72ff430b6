"""A posterior beside the truth: means, variances and covariances, one figure a data set and entry."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bdl.reports.figures import OURS, PAPER, save
from bdl.reports.inputs import Gaussians
from bdl.reports.plane import plane_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = "RdBu_r"
"""Of covariances: white at zero, blue below and red above, which are told apart under every common colour blindness."""

FEW = 3
"""Entries on a data set that have figures of their own."""
MANY = 40
"""Parameters that can be told apart in a panel."""


def moment_figures(benchmark: str, pairs: Sequence[Gaussians], folder: Path) -> list[Path]:
    """Draw each posterior beside the truth.

    Parameters
    ----------
    benchmark
        Name of the benchmark, the start of the file names.
    pairs
        What to draw.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-posterior-<dataset>-<entry>.png`` (200 dpi) and ``.pdf``: means, variances, and
        off-diagonal covariances, if there are any, as two heat maps on one scale; for two parameters, the densities
        instead (`plane_figure`). Nothing of data sets on which more than three entries have a truth: there all are in
        one figure (`bdl.reports.posteriors`).
    """
    counts = Counter(pair.dataset for pair in pairs)
    few = [pair for pair in pairs if counts[pair.dataset] <= FEW]
    return save({f"{benchmark}-posterior-{pair.dataset}-{pair.entry}": partial(_figure, pair) for pair in few}, folder)


def _figure(pair: Gaussians) -> "Figure":
    from matplotlib.figure import Figure

    if len(pair.true_covariance) == len(pair.mean) == 2:
        return plane_figure(pair)
    correlated = len(pair.true_covariance) > 1
    widths = [1.4, 1.4, *([1, 1.12] if correlated else [])]
    figure = Figure(figsize=(2.3 * sum(widths), 2.9), layout="constrained", facecolor="white")
    axes = figure.subplots(1, len(widths), width_ratios=widths)
    _means(axes[0], pair)
    _variances(axes[1], pair)
    if correlated:
        _heat_maps(figure, axes[2:], pair)
    figure.suptitle(f"{pair.dataset}, {pair.entry}", fontsize=11, x=0.01, ha="left")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def plain(panel: "Axes", title: str) -> None:
    """Return a panel of numbers by parameter its title, and no more lines than it needs."""
    panel.set_title(title, fontsize=10, loc="left")
    panel.grid(axis="y")
    panel.tick_params(which="both", length=0)
    panel.spines[["left", "right", "top"]].set_visible(False)


def _means(panel: "Axes", pair: Gaussians) -> None:
    plain(panel, "mean of each parameter")
    place = np.arange(1, len(pair.mean) + 1)
    shrink = 0.5 if len(pair.mean) > MANY else 1.0
    panel.plot(place, pair.true_mean, linestyle="none", label="truth", **(PAPER | {"markersize": 7 * shrink}))
    panel.plot(place, pair.mean, linestyle="none", label="approximation", **(OURS | {"markersize": 3.5 * shrink}))
    panel.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def _variances(panel: "Axes", pair: Gaussians) -> None:
    plain(panel, "variance")
    known = len(pair.true_covariance)
    truth, ours = np.diag(pair.true_covariance), np.diag(pair.covariance)[:known]
    if known > MANY:  # bars would be hair-thin: the truth as an area, the approximation as a line
        edges = np.arange(known + 1) + 0.5
        panel.stairs(truth, edges, fill=True, color=PAPER["color"], alpha=0.5)
        panel.stairs(ours, edges, baseline=None, color=OURS["color"])
    else:
        place = np.arange(1, known + 1)
        panel.bar(place - 0.2, truth, 0.4, color="white", edgecolor=PAPER["color"], hatch="////")
        panel.bar(place + 0.2, ours, 0.4, color=OURS["color"])
    panel.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def _heat_maps(figure: "Figure", panels: Sequence["Axes"], pair: Gaussians) -> None:
    known = len(pair.true_covariance)
    hidden = np.eye(known, dtype=bool)
    maps = [np.ma.array(values, mask=hidden) for values in (pair.true_covariance, pair.covariance[:known, :known])]
    limit = max(float(np.abs(values).max()) for values in maps)
    for panel, values, title in zip(panels, maps, ("truth", "approximation"), strict=True):
        extent = (0.5, known + 0.5, known + 0.5, 0.5)
        image = panel.imshow(values, cmap=COLOURS, vmin=-limit, vmax=limit, extent=extent)
        panel.set_title(f"covariance, {title}", fontsize=10, loc="left")
        panel.tick_params(which="both", length=0)
        panel.spines[:].set_visible(False)
    figure.colorbar(image, ax=panels[-1], shrink=0.8)
