"""Scores at recorded clocks: what fits have learned after so many epochs, updates or observations."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.metrics import info
from bdl.reports.axes import at, named
from bdl.reports.compare import summary
from bdl.reports.figures import LOG_FROM, MAX_COLUMNS, PAPER, QUIET, label_logs, save
from bdl.reports.inputs import Array, Benchmark
from bdl.reports.layout import heading
from bdl.reports.papers import Key, PaperValue, paper_values
from bdl.reports.statistics import Values
from bdl.reports.swept import COLORS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

ONLINE, BATCH = "-", (0, (4, 1.5))
DOTS: dict[str, Any] = {"marker": "o", "markersize": 2.4, "linewidth": 1.4}
PRINTED = PAPER | {"markersize": 4.5, "markeredgewidth": 1.2}
WIDTH, HEIGHT, MIN_WIDTH = 2.6, 1.9, 6.8
"""Of a panel, and the least of a figure, with room for its title; in inches."""
LINES = 3
"""Panels in a column, if there are too many for one line."""
BESIDE = 1.3
"""Factor from the last checkpoint to the first printed value, and from each of them to the next."""

Looks = Mapping[str, Mapping[str, Any]]


class Curve(NamedTuple):
    """Mean over splits of one metric at every recorded clock, for one entry on one dataset at one point of a sweep."""

    dataset: str
    entry: str
    metric: str
    axis: str
    """What the clock counts: epochs, updates or observations."""
    places: Array
    """Where it stood, ascending, (n,)."""
    mean: Array
    """In the metric's unit, (n,)."""
    se: Array
    """Standard error of the mean, (n,); NaN at clocks that fewer than two splits have."""
    point: str = ""
    """The values of the sweep's axes, for people; empty without a sweep."""


def curves(benchmark: Benchmark, points: "pd.DataFrame") -> list[Curve]:
    """Average each metric over the splits, clock by clock.

    Parameters
    ----------
    benchmark
        Gives the names and the order of metrics and cells.
    points
        One row a score: `dataset`, `entry`, a column an axis of the sweep, `split`, `axis` (what the clock counts),
        `at` (where it stood), `metric` and `value`.

    Returns
    -------
    list of Curve
        In the order metric, cell, axis, where there is any finite value; clocks without one are left out.
    """
    found = []
    for metric in benchmark.metrics:
        for dataset, entry, point in benchmark.cells if len(points) else ():
            own = (points["dataset"] == dataset) & (points["entry"] == entry) & (points["metric"] == metric)
            for axis, scores in at(points[own], point.texts).groupby("axis"):
                places = np.unique(scores["at"].to_numpy(dtype=np.int64))
                means = [_mean(place, scores.loc[scores["at"] == place, "value"]) for place in places]
                known = np.array([mean for mean in means if mean[1] is not None], dtype=np.float64)
                if known.size:
                    at_clocks, mean, se = known.T
                    swept = named(point.texts)
                    found.append(Curve(dataset, entry, metric, str(axis), at_clocks, mean, se, swept))
    return found


def curve_figures(benchmark: Benchmark, points: "pd.DataFrame", folder: Path) -> list[Path]:
    """Draw the curves: a panel a dataset (and point of a sweep), a line an entry, a figure a metric.

    Parameters
    ----------
    benchmark, points
        As in `curves`. Where there are streams, lines are solid for entries whose method is called ``online-...``, and
        dashed for batch fits.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-<metric>-curve.png`` (200 dpi) and ``.pdf`` for every metric that has a curve. Panels follow each
        other downwards, as in Figures 4.1 and B.1 of Brownlie (2022). Axes that span a wide range are logarithmic. The
        printed values, which are those at the end of a fit, stand beside the last clock. The same rows give the same
        bytes under one version of matplotlib.
    """
    groups: dict[str, list[Curve]] = {}
    for curve in curves(benchmark, points):
        groups.setdefault(curve.metric, []).append(curve)
    names = {metric: f"{benchmark.name}-{metric}-curve" for metric in groups}
    return save({names[metric]: partial(_figure, benchmark, own) for metric, own in groups.items()}, folder)


def _mean(place: int, values: "pd.Series[float]") -> tuple[float | None, ...]:
    known: Values = values.to_numpy(dtype=np.float64)
    return place, *summary("mean", known[np.isfinite(known)])


def _figure(benchmark: Benchmark, drawn: Sequence[Curve]) -> "Figure":
    from matplotlib.figure import Figure

    by_panel: dict[str, list[Curve]] = {}
    for curve in drawn:
        by_panel.setdefault(" ".join(part for part in (curve.dataset, curve.point) if part), []).append(curve)
    lines = 1 if len(by_panel) <= MAX_COLUMNS else max(LINES, math.ceil(len(by_panel) / MAX_COLUMNS))
    columns = math.ceil(len(by_panel) / lines)
    size = max(WIDTH * columns + 0.4, MIN_WIDTH), HEIGHT * lines + 1.4
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, sharex=True, sharey="row", squeeze=False)
    looks, printed = _looks(benchmark), paper_values(benchmark.papers)
    for panel, (title, own) in zip(panels.T.ravel(), by_panel.items(), strict=False):
        panel.set_title(title, fontsize=10, fontweight="bold", loc="left")
        _fill(panel, own, looks)
        _print(panel, own, looks, printed)
    _dress(panels, len(by_panel), drawn)
    streams = drawn[0].axis == "observations"
    what = f"mean ± SE over {benchmark.splits} splits" + ("; solid: online, dashed: batch fits" if streams else "")
    figure.suptitle("\n".join((benchmark.title, heading(info(drawn[0].metric)), what)), fontsize=11, x=0.01, ha="left")
    _legend(figure, looks, drawn)
    return figure


def _dress(panels: "NDArray[Any]", used: int, drawn: Sequence[Curve]) -> None:
    """Scale and label the first panels, from the top downwards, and remove the others."""
    ordered = panels.T.ravel()
    places, means = (np.concatenate([getattr(curve, name) for curve in drawn]) for name in ("places", "mean"))
    for panel in ordered[used:]:
        panel.remove()
    for panel in ordered[:used]:
        panel.set(xscale=_scale(places), yscale=_scale(means))
        panel.grid()
        panel.tick_params(which="both", length=0)
        panel.spines[:].set_visible(False)
    for panel in (*panels[-1, :-1], ordered[used - 1]):  # the lowest of each column
        panel.set_xlabel(drawn[0].axis, color=QUIET)
        panel.tick_params(labelbottom=True)
    for panel in panels[:, 0]:
        low, high = panel.get_ylim()
        if panel.get_yscale() == "log":
            label_logs(panel.yaxis, high / low)


def _scale(values: Array) -> str:
    """Choose a logarithmic axis for positive values that span a wide range."""
    return "log" if values.min() > 0 and values.max() / values.min() > LOG_FROM else "linear"


def _looks(benchmark: Benchmark) -> dict[str, dict[str, Any]]:
    """Give each entry a colour; dashed lines are batch fits beside online estimators."""
    online = {name: entry.method.name.startswith("online-") for name, entry in benchmark.entries.items()}
    if not any(online.values()):
        online = dict.fromkeys(online, True)
    return {
        name: {"color": color, "linestyle": ONLINE if online[name] else BATCH}
        for name, color in zip(online, cycle(COLORS), strict=False)
    }


def _fill(panel: "Axes", own: Sequence[Curve], looks: Looks) -> None:
    for curve in own:
        look = looks[curve.entry]
        panel.plot(curve.places, curve.mean, **DOTS, **look)
        ends = curve.mean - curve.se, curve.mean + curve.se
        panel.fill_between(curve.places, *ends, color=look["color"], alpha=0.22, linewidth=0)


def _print(panel: "Axes", own: Sequence[Curve], looks: Looks, printed: Mapping[Key, PaperValue]) -> None:
    """Mark the printed values beside the last checkpoint, from left to right, as they may lie close together."""
    place = max(curve.places[-1] for curve in own)
    for curve in own:
        value = None if curve.point else printed.get((curve.dataset, curve.entry, curve.metric, "mean"))
        if value is not None:
            place *= BESIDE
            style = PRINTED | {"color": looks[curve.entry]["color"]}
            panel.errorbar([place], [value.value], yerr=value.stderr, linestyle="none", elinewidth=1, **style)


def _legend(figure: "Figure", looks: Looks, drawn: Sequence[Curve]) -> None:
    from matplotlib.lines import Line2D

    names = [name for name in looks if name in {curve.entry for curve in drawn}]
    handles = [Line2D([], [], label=name, **DOTS, **looks[name]) for name in names]
    if any(panel.containers for panel in figure.axes):
        handles.append(Line2D([], [], linestyle="none", label="paper, whole stream", **PRINTED | {"color": QUIET}))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, handlelength=2.6)
