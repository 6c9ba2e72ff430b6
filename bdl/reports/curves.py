"""Scores at recorded counts: what fits have learned after so many epochs, updates or observations."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bdl.reports.axes import named
from bdl.reports.compare import summary
from bdl.reports.figures import MAX_COLUMNS, PAPER, QUIET, save
from bdl.reports.inputs import Array, Benchmark
from bdl.reports.layout import heading
from bdl.reports.papers import Key, PaperValue, paper_values
from bdl.reports.scales import Scale, label_logs, scale
from bdl.reports.statistics import Values
from bdl.reports.swept import COLORS, DASHES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

ONLINE, BATCH = "-", (0, (4, 1.5))
DOTS: dict[str, Any] = {"marker": "o", "markersize": 2.4, "linewidth": 1.4}
PRINTED = PAPER | {"markersize": 4.5, "markeredgewidth": 1.2}
WIDTH, HEIGHT, MIN_WIDTH = 2.6, 1.9, 6.8
"""Of a panel, and the least of a figure, with package for its title; in inches."""
LINES = 3
"""Panels in a column, if there are too many for one line."""
BEYOND, BESIDE = 1.3, 0.04
"""From the last count to the first printed value, and from each of them to the next: the factor on a logarithmic axis,
and the share of the range of the counts on a linear one."""
STREAMS = "observations"
"""What the count of a stream counts."""

Styles = Mapping[str, Mapping[str, Any]]


class Curve(NamedTuple):
    """Mean over splits of one metric at every recorded count, for one entry on one dataset at one point of a sweep."""

    dataset: str
    entry: str
    metric: str
    axis: str
    """What the count counts: epochs, updates or observations."""
    places: Array
    """Where it stood, ascending, (n,)."""
    mean: Array
    """In the metric's unit, (n,)."""
    se: Array
    """Standard error of the mean, (n,); NaN at counts that fewer than two splits have."""
    point: str = ""
    """The values of the sweep's axes, for people; empty without a sweep."""


def curves(benchmark: Benchmark, points: "pd.DataFrame") -> list[Curve]:
    """Average each metric over the splits, count by count.

    Parameters
    ----------
    benchmark
        Gives the names and the order of metrics and cells.
    points
        One row a score: `dataset`, `entry`, a column an axis of the sweep, `split`, `axis` (what the count counts),
        `at` (where it stood), `metric` and `value`.

    Returns
    -------
    list of Curve
        In the order metric, cell, axis, where there is any finite value; counts without one are left out.
    """
    if points.empty:
        return []
    keys = ["metric", "dataset", "entry", *benchmark.axes]
    by_cell = dict(list(points.groupby(keys, sort=False)))
    found = []
    for metric, (dataset, entry, point) in product(benchmark.metrics, benchmark.cells):
        scores = by_cell.get((metric, dataset, entry, *(point.texts[path] for path in benchmark.axes)))
        for axis, own in () if scores is None else scores.groupby("axis"):
            means = [_mean(place, values) for place, values in own.groupby("at")["value"]]
            known = np.array([mean for mean in means if mean[1] is not None], dtype=np.float64)
            if known.size:
                places, mean, se = known.T
                found.append(Curve(dataset, entry, metric, str(axis), places, mean, se, named(point.texts)))
    return found


def curve_figures(benchmark: Benchmark, points: "pd.DataFrame", folder: Path) -> list[Path]:
    """Draw the curves: a panel a dataset (and point of a sweep), a line an entry, a figure a metric.

    Parameters
    ----------
    benchmark, points
        As in `curves`. Where there are online estimators (methods called ``online-...``), their lines are solid, and
        those of batch fits dashed.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-<metric>-curve.png`` (200 dpi) and ``.pdf`` for every metric that has a curve; one for each
        unit, ``<benchmark>-<metric>-curve-<unit>``, if entries counted in different units. Panels follow each other
        downwards, as in Figures 4.1 and B.1 of Brownlie (2022). Axes that span a wide range are logarithmic. The
        printed values, which are those at the end of a fit, stand beside the last count. The same rows give the same
        bytes under one version of matplotlib.
    """
    groups: dict[str, dict[str, list[Curve]]] = {}
    for curve in curves(benchmark, points):
        groups.setdefault(curve.metric, {}).setdefault(curve.axis, []).append(curve)
    drawings = {}
    for metric, by_axis in groups.items():
        for axis, own in by_axis.items():
            name = f"{benchmark.name}-{metric}-curve" + (f"-{axis}" if len(by_axis) > 1 else "")
            drawings[name] = partial(_figure, benchmark, own)
    return save(drawings, folder)


def _mean(place: Any, values: "pd.Series[float]") -> tuple[float | None, ...]:
    known: Values = np.asarray(values, dtype=np.float64)
    return float(place), *summary("mean", known[np.isfinite(known)])


def _figure(benchmark: Benchmark, drawn: Sequence[Curve]) -> "Figure":
    from matplotlib.figure import Figure

    by_panel: dict[str, list[Curve]] = {}
    for curve in drawn:
        by_panel.setdefault("  ".join(part for part in (curve.dataset, curve.point) if part), []).append(curve)
    lines = 1 if len(by_panel) <= MAX_COLUMNS else max(LINES, math.ceil(len(by_panel) / MAX_COLUMNS))
    columns = math.ceil(len(by_panel) / lines)
    size = max(WIDTH * columns + 0.4, MIN_WIDTH), HEIGHT * lines + 1.4
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    streams = drawn[0].axis == STREAMS
    # Distances of streams compare from panel to panel, scores on different data do not.
    panels = figure.subplots(lines, columns, sharex=True, sharey="row" if streams else "none", squeeze=False)
    styles, printed = _looks(benchmark), paper_values(benchmark.papers)
    for panel, (title, own) in zip(panels.T.ravel(), by_panel.items(), strict=False):
        panel.set_title(title, fontsize=10, fontweight="bold", loc="left")
        _fill(panel, own, styles)
        _print(panel, own, styles, printed, _scale("places", drawn))
    for panel, own in zip(panels.T.ravel(), by_panel.values(), strict=False):
        # Only now, when all is drawn: the limits of axes that are logarithmic before would reach to powers of ten.
        panel.set(xscale=_scale("places", drawn), yscale=_scale("mean", drawn if streams else own))
    _dress(panels, len(by_panel), drawn[0].axis)
    what = f"mean ± SE over {benchmark.splits} splits"
    if 0 < len(_online(benchmark)) < len(benchmark.entries):
        what += "; solid: online, dashed: batch fits"
    figure.suptitle("\n".join((benchmark.title, heading(drawn[0].metric), what)), fontsize=11, x=0.01, ha="left")
    _legend(figure, styles, drawn)
    return figure


def _dress(panels: "NDArray[Any]", used: int, axis: str) -> None:
    """Label the first panels, from the top downwards, and remove the others."""
    from matplotlib.ticker import MaxNLocator

    ordered = panels.T.ravel()
    for panel in ordered[used:]:
        panel.remove()
    for panel in ordered[:used]:
        panel.grid()
        panel.tick_params(which="both", length=0)
        panel.spines[:].set_visible(False)
        if panel.get_xscale() == "linear":
            panel.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        low, high = panel.get_ylim()
        if panel.get_yscale() == "log":
            label_logs(panel.yaxis, high / low)
    for panel in (*panels[-1, :-1], ordered[used - 1]):  # the lowest of each column
        panel.set_xlabel(axis, color=QUIET)
        panel.tick_params(labelbottom=True)


def _scale(name: str, of: Sequence[Curve]) -> Scale:
    return scale(np.concatenate([getattr(curve, name) for curve in of]).tolist())


def _looks(benchmark: Benchmark) -> dict[str, dict[str, Any]]:
    """Return each entry a colour; dashed lines are batch fits beside online estimators, or else colours used again."""
    online = _online(benchmark)
    lines = (ONLINE if name in online else BATCH for name in benchmark.entries) if online else cycle(DASHES)
    return {
        name: {"color": color, "linestyle": line}
        for name, color, line in zip(benchmark.entries, cycle(COLORS), lines, strict=False)
    }


def _online(benchmark: Benchmark) -> list[str]:
    return [name for name, entry in benchmark.entries.items() if entry.method.name.startswith("online-")]


def _fill(panel: "Axes", own: Sequence[Curve], styles: Styles) -> None:
    for curve in own:
        look = styles[curve.entry]
        panel.plot(curve.places, curve.mean, **DOTS, **look)
        ends = curve.mean - curve.se, curve.mean + curve.se
        panel.fill_between(curve.places, *ends, color=look["color"], alpha=0.22, linewidth=0)


def _print(
    panel: "Axes", own: Sequence[Curve], styles: Styles, printed: Mapping[Key, PaperValue], xscale: Scale
) -> None:
    """Mark the printed values beside the last count, from left to right, as they may lie close together."""
    place = max(float(curve.places[-1]) for curve in own)
    step = BESIDE * max(float(np.ptp(curve.places)) for curve in own)
    for curve in own:
        value = None if curve.point else printed.get((curve.dataset, curve.entry, curve.metric, "mean"))
        if value is not None and value.split is None:  # a curve is a mean over splits
            place = place * BEYOND if xscale == "log" else place + step
            style = PRINTED | {"color": styles[curve.entry]["color"]}
            panel.errorbar([place], [value.value], yerr=value.stderr, linestyle="none", elinewidth=1, **style)


def _legend(figure: "Figure", styles: Styles, drawn: Sequence[Curve]) -> None:
    from matplotlib.lines import Line2D

    names = [name for name in styles if name in {curve.entry for curve in drawn}]
    handles = [Line2D([], [], label=name, **DOTS, **styles[name]) for name in names]
    if any(panel.containers for panel in figure.axes):
        label = "paper, whole stream" if drawn[0].axis == STREAMS else "paper, end of fit"
        handles.append(Line2D([], [], linestyle="none", label=label, **PRINTED | {"color": QUIET}))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, handlelength=2.6)
