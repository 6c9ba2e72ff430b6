"""Scores at recorded counts: what fits have learned after so many epochs, updates or observations."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bdl.reports import drawing, summary
from bdl.reports.layout import heading, measure, on_training_rows, repeats
from bdl.reports.papers import Key, PaperValue, paper_values
from bdl.reports.scores import SEEN, TOLD_SEEN
from bdl.reports.statistics import Array, grouped, named, panel_heading

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


ONLINE, BATCH = "-", (0, (4, 1.5))
LINES = 3
"""Panels in a column, if there are too many for one line."""
BEYOND, BESIDE = 1.3, 0.04
"""From the last count to the first printed value, and from each of them to the next: the factor
on a logarithmic axis,
and the share of the range of the counts on a linear one."""
STREAMS = "observations"
"""What the count of a stream counts."""


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


def curves(benchmark: "Benchmark", points: "pd.DataFrame") -> list[Curve]:
    """Average each metric over the splits, count by count; in the order metric, cell, axis.

    `points` has one row a score: `dataset`, `entry`, a column an axis of the sweep, `split`,
    `axis` (what the count counts), `at` (where it stood), `metric` and `value`. Counts without a
    finite value are left out.
    """
    if points.empty:
        return []
    keys = ["metric", "dataset", "entry", *benchmark.axes]
    by_cell = dict(list(points.groupby(keys, sort=False)))
    found = []
    for metric, (dataset, entry, point) in product(benchmark.metrics, benchmark.cells):
        scores = by_cell.get(
            (metric, dataset, entry, *(point.texts[path] for path in benchmark.axes))
        )
        for axis, own in () if scores is None else scores.groupby("axis"):
            values = own[np.isfinite(own["value"])].groupby("at")["value"]
            means = [(at, *summary("mean", own.to_numpy(dtype=np.float64))) for at, own in values]
            known = np.array([mean for mean in means if mean[1] is not None], dtype=np.float64)
            if known.size:
                places, mean, se = known.T
                found.append(
                    Curve(dataset, entry, metric, str(axis), places, mean, se, named(point.texts))
                )
    return found


def curve_drawings(benchmark: "Benchmark", drawn: Sequence[Curve]) -> drawing.Drawings:
    """Draw the curves: a panel a dataset (and point of a sweep), a line an entry, a figure a metric.

    One for each unit if entries counted in different units. Scores of training rows lie under
    those of new rows, too.
    """
    by_metric = grouped(drawn, lambda curve: curve.metric)
    groups = {metric: grouped(own, lambda curve: curve.axis) for metric, own in by_metric.items()}
    seen = {metric: groups.get(on_training_rows(metric, groups) or "", {}) for metric in groups}
    return {
        f"{metric}-curve" + (f"-{axis}" if len(by_axis) > 1 else ""): partial(
            curve_figure, benchmark, own, seen[metric].get(axis, ())
        )
        for metric, by_axis in groups.items()
        for axis, own in by_axis.items()
    }


def curve_figure(
    benchmark: "Benchmark", drawn: Sequence[Curve], seen: Sequence[Curve] = ()
) -> "Figure":
    """Draw curves of one metric in one unit, and dotted those of the same metric on training rows.

    Panels follow each other downwards, as in Figures 4.1 and B.1 of Brownlie (2022). Where there
    are online estimators (methods called ``online-...``), their lines are solid, and those of
    batch fits dashed. The printed values, which are those at the end of a fit, stand beside the
    last count.
    """
    from matplotlib.ticker import MaxNLocator

    by_panel, below = _by_panel(drawn), _by_panel(seen)
    down = (
        1 if len(by_panel) <= drawing.MOST else max(LINES, math.ceil(len(by_panel) / drawing.MOST))
    )
    streams = drawn[0].axis == STREAMS
    # Distances of streams compare from panel to panel, scores on different data do not.
    columns = math.ceil(len(by_panel) / down)
    shared = {"sharex": True, "sharey": "row" if streams else "none"}
    figure, panels = drawing.grid(
        len(by_panel), (2.6, 1.9), columns=columns, downwards=True, **shared
    )
    styles, printed = _styles(benchmark), paper_values(benchmark.papers)
    xscale = (
        "log"
        if drawing.log_scale(np.concatenate([curve.places for curve in drawn]).tolist())
        else "linear"
    )
    for number, (panel, (name, own)) in enumerate(zip(panels, by_panel.items(), strict=True)):
        drawing.dress(panel, name)
        for curve in below.get(name, ()):
            panel.plot(curve.places, curve.mean, **{**styles[curve.entry], **SEEN})
        for curve in own:
            panel.plot(curve.places, curve.mean, **drawing.DOTS, **styles[curve.entry])
            ends, color = (
                (curve.mean - curve.se, curve.mean + curve.se),
                styles[curve.entry]["color"],
            )
            panel.fill_between(curve.places, *ends, color=color, alpha=0.22, linewidth=0)
        _print(panel, own, styles, printed, xscale)
        if number % down == down - 1 or number == len(panels) - 1:  # the lowest of each column
            panel.set_xlabel(drawn[0].axis)
            panel.tick_params(labelbottom=True)
    for number, panel in enumerate(panels):
        row = slice(number % down, None, down) if streams else slice(number, number + 1)
        names = [*by_panel][row]
        level = [curve for name in names for curve in (*by_panel[name], *below.get(name, ()))]
        _vertical(panel, level, panels[row])
    # when all is drawn: the limits of an axis that is logarithmic before reach to powers of ten
    for panel in panels:
        panel.set_xscale(xscale)
        if xscale == "linear":
            panel.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    what = f"mean ± SE over {repeats(benchmark)}" + (f"; {TOLD_SEEN}" if seen else "")
    if 0 < len(_online(benchmark)) < len(benchmark.entries):
        what += "; solid: online, dashed: batch fits"
    lines = benchmark.title, heading(drawn[0].metric), what
    handles = _handles(figure, styles, drawn)
    return drawing.finished(
        figure, panels, measure(drawn[0].metric), *lines, handles=handles, handlelength=2.6
    )


def _by_panel(drawn: Sequence[Curve]) -> dict[str, list[Curve]]:
    return grouped(drawn, lambda curve: panel_heading(curve.dataset, curve.point))


def _vertical(panel: "Axes", level: Sequence[Curve], beside: "Sequence[Axes]") -> None:
    """Choose scale and limits so that no line flattens the others."""
    values = {
        entry: [mean for curve in own for mean in curve.mean.tolist()]
        for entry, own in grouped(level, lambda curve: curve.entry).items()
    }
    ends = [
        end
        for curve in level
        for end in (*(curve.mean - curve.se), *(curve.mean + curve.se))
        if end == end
    ]
    for bar in (bar for other in beside for bar in other.containers):  # printed values
        values.setdefault(str(bar.get_label()), []).append(float(bar.lines[0].get_ydata()[0]))  # type: ignore[attr-defined]
    drawing.fit(panel, "y", values, ends, factor=drawing.far(level[0].metric))


def _styles(benchmark: "Benchmark") -> drawing.Styles:
    """Return each entry a colour.

    Dashed lines are batch fits beside online estimators, or else colours used again.
    """
    online = _online(benchmark)
    found = drawing.styles(benchmark.entries)
    for name, look in found.items():
        del look["marker"]  # curves have dots
        if online:
            look["linestyle"] = ONLINE if name in online else BATCH
    return found


def _online(benchmark: "Benchmark") -> list[str]:
    return [
        name
        for name, entry in benchmark.entries.items()
        if entry.method.name.startswith("online-")
    ]


def _print(
    panel: "Axes",
    own: Sequence[Curve],
    styles: drawing.Styles,
    printed: Mapping[Key, PaperValue],
    xscale: str,
) -> None:
    """Mark the printed values beside the last count, from left to right, as they may lie close together."""
    place = max(float(curve.places[-1]) for curve in own)
    step = BESIDE * max(float(np.ptp(curve.places)) for curve in own)
    for curve in own:
        value = (
            None
            if curve.point
            else printed.get((curve.dataset, curve.entry, curve.metric, "mean"))
        )
        if value is not None and value.split is None:  # a curve is a mean over splits
            place = place * BEYOND if xscale == "log" else place + step
            style = drawing.PRINTED | {"color": styles[curve.entry]["color"]}
            panel.errorbar(
                [place],
                [value.value],
                yerr=value.stderr,
                elinewidth=1,
                label=f"paper, {curve.entry}",
                **style,
            )


def _handles(figure: "Figure", styles: drawing.Styles, drawn: Sequence[Curve]) -> "list[Artist]":
    names = [name for name in styles if name in {curve.entry for curve in drawn}]
    handles: list[Artist] = [
        drawing.handle(name, **drawing.DOTS, **styles[name]) for name in names
    ]
    if any(panel.containers for panel in figure.axes):
        label = "paper, whole stream" if drawn[0].axis == STREAMS else "paper, end of fit"
        handles.append(drawing.handle(label, **drawing.PRINTED | {"color": drawing.QUIET}))
    return handles
