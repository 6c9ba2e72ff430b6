"""Several posteriors beside one truth: means, variances and covariances, one figure a data set."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bdl.reports.figures import QUIET, save
from bdl.reports.inputs import Array, Gaussians
from bdl.reports.moments import COLOURS, MANY, plain
from bdl.reports.plane import planes_figure
from bdl.reports.scales import label_logs, scale, span
from bdl.reports.swept import COLORS, DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRUTH: dict[str, Any] = {"color": "#222222", "linewidth": 4, "alpha": 0.25}
SPREAD = 0.7
"""Share of the place of a parameter over which the marks of the entries stand side by side."""
SHOWN = 0.95
"""Share of the true covariances that the colours tell apart: a few are often out of all proportion."""
MAP, IN_LINE = 2.0, 5
"""Width of a heat map in inches, and how many stand in a line."""


Styles = Mapping[str, Mapping[str, Any]]


def posterior_figures(benchmark: str, pairs: Sequence[Gaussians], folder: Path) -> list[Path]:
    """Draw the posteriors of all entries that are held against the same truth in one picture.

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
        ``<benchmark>-posteriors-<dataset>.png`` (200 dpi) and ``.pdf`` for each data set on which two entries or more
        have the same truth; with ``-2`` and so on for further truths. Means and variances of all parameters, the truth
        as a broad line behind, and off-diagonal covariances as heat maps on one scale, that of the truth (SLANG paper
        2018, Figs. 1 and 7), which ends before its largest few; for two parameters, a panel an entry instead,
        whatever its truth (`bdl.reports.plane.planes_figure`).
    """
    styles = {
        entry: {"color": color, "marker": marker, "linestyle": line}
        for entry, color, marker, line in zip(
            dict.fromkeys(pair.entry for pair in pairs), cycle(COLORS), cycle(MARKERS), cycle(DASHES), strict=False
        )
    }
    drawings = {}
    for name, group in _groups(pairs):
        draw = partial(planes_figure, group) if _flat(group[0]) else partial(_figure, group, styles)
        drawings[f"{benchmark}-posteriors-{name}"] = draw
    return save(drawings, folder)


def _flat(pair: Gaussians) -> bool:
    return len(pair.true_covariance) == len(pair.mean) == 2


def _groups(pairs: Sequence[Gaussians]) -> Iterator[tuple[str, list[Gaussians]]]:
    """Yield the pairs that belong in one figure, two or more, under its name."""
    for dataset in dict.fromkeys(pair.dataset for pair in pairs):
        groups: list[list[Gaussians]] = []
        for pair in (pair for pair in pairs if pair.dataset == dataset):
            for group in groups:
                if (_flat(pair) and _flat(group[0])) or _same_truth(pair, group[0]):
                    group.append(pair)
                    break
            else:
                groups.append([pair])
        shown = [group for group in groups if len(group) > 1]
        for number, group in enumerate(shown, 1):
            yield dataset + (f"-{number}" if number > 1 else ""), group


def _same_truth(one: Gaussians, other: Gaussians) -> bool:
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-6)
        for a, b in ((one.true_mean, other.true_mean), (one.true_covariance, other.true_covariance))
    )


def _figure(group: Sequence[Gaussians], styles: Styles) -> "Figure":
    from matplotlib.figure import Figure

    known = len(group[0].true_covariance)
    maps = [("truth", group[0].true_covariance), *((pair.entry, pair.covariance[:known, :known]) for pair in group)]
    lines = math.ceil(len(maps) / IN_LINE) if known > 1 else 0
    heights = [1.9, 1.9, *repeat(MAP + 0.1, lines)]
    figure = Figure(figsize=(MAP * IN_LINE + 1, sum(heights) + 0.9), layout="constrained", facecolor="white")
    upper, lower = figure.subfigures(2, 1, height_ratios=[3.8, sum(heights) - 3.8]) if lines else (figure, figure)
    means, variances = upper.subplots(2, 1, sharex=True)
    _series(means, "mean of each parameter", group[0].true_mean, {pair.entry: pair.mean for pair in group}, styles)
    ours = {pair.entry: np.diag(pair.covariance)[:known] for pair in group}
    _series(variances, "variance", np.diag(group[0].true_covariance), ours, styles)
    if lines:
        _heat_maps(lower, lines, maps)
    figure.suptitle(group[0].dataset, fontsize=11, x=0.01, ha="left")
    handles, labels = means.get_legend_handles_labels()
    upper.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return figure


def _series(panel: "Axes", title: str, truth: Array, ours: Mapping[str, Array], styles: Styles) -> None:
    """Draw a number a parameter: marks side by side, or thin lines if there are too many for that."""
    plain(panel, title)
    place = np.arange(1, len(truth) + 1)
    panel.stairs(truth, np.arange(len(truth) + 1) + 0.5, baseline=None, label="truth", **TRUTH)
    shifts = np.linspace(-SPREAD / 2, SPREAD / 2, len(ours)) if len(truth) <= MANY else np.zeros(len(ours))
    for shift, (entry, values) in zip(shifts, ours.items(), strict=True):
        if len(truth) <= MANY:
            look = {**styles[entry], "linestyle": "none", "markersize": 3.5}
        else:
            look = {**styles[entry], "linewidth": 0.8, "marker": ""}
        panel.plot(place + shift, values[: len(truth)], label=entry, **look)
    everything = np.concatenate([truth, *ours.values()]).tolist()
    if scale(everything) == "log":
        panel.set_yscale("log")
        label_logs(panel.yaxis, span(everything))
    panel.set_xlim(0.4, len(truth) + 0.6)
    panel.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]


def _heat_maps(figure: Any, lines: int, maps: Sequence[tuple[str, Array]]) -> None:
    known = len(maps[0][1])
    hidden = np.eye(known, dtype=bool)
    limit = float(np.quantile(np.abs(maps[0][1][~hidden]), SHOWN)) or 1.0
    panels = figure.subplots(lines, IN_LINE, squeeze=False).ravel()
    for panel in panels[len(maps) :]:
        panel.remove()
    panels = panels[: len(maps)]
    for panel, (title, values) in zip(panels, maps, strict=True):
        extent = (0.5, known + 0.5, known + 0.5, 0.5)
        shown = np.ma.array(values, mask=hidden)
        image = panel.imshow(shown, cmap=COLOURS, vmin=-limit, vmax=limit, extent=extent)
        panel.set_title(title, fontsize=9, loc="left")
        panel.tick_params(which="both", length=0, labelsize=7)
        panel.locator_params(nbins=4, integer=True)
        panel.spines[:].set_visible(False)
    figure.suptitle("covariance", fontsize=10, x=0.01, ha="left", color=QUIET)
    figure.colorbar(image, ax=list(panels), shrink=0.8, extend="both", aspect=30)
