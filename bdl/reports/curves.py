"""Scores of fits after so many epochs, updates or observations, as curves."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bdl.reports import drawing
from bdl.reports.comparison import summarise_values
from bdl.reports.layout import metric_heading, metric_with_unit, repeats_text, training_metric
from bdl.reports.method_styles import entry_styles
from bdl.reports.papers import Key, PaperValue, paper_values
from bdl.reports.scores import TRAINING_LINE, TRAINING_REMARK
from bdl.reports.statistics import group_by, panel_heading, point_text
from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


ONLINE, BATCH = "-", (0, (4, 1.5))
LINES = 3
"""Panels in a column, if there are too many for one line."""
PRINTED_FACTOR, PRINTED_STEP = 1.3, 0.04
"""Steps from the last count to the first printed value, and from each of them to the next.

The factor on a logarithmic axis, and the share of the range of the counts on a linear one.
"""
STREAMS = "observations"
"""Unit of the counts of a stream."""


class Curve(NamedTuple):
    """Mean over splits of one metric at every recorded count.

    It is of one entry on one dataset, at one point of a sweep.
    """

    dataset: str
    entry: str
    metric: str
    axis: str
    """Unit of the counts: epochs, updates or observations."""
    counts: Array
    """Ascending, (n,)."""
    mean: Array
    """In the metric's unit, (n,)."""
    se: Array
    """Standard error of the mean, (n,); NaN at counts that fewer than two splits have."""
    point: str = ""
    """The values of the sweep's axes, for people; empty without a sweep."""


def average_curves(benchmark: "Benchmark", points: "pd.DataFrame") -> list[Curve]:
    """Average each metric over the splits, count by count; in the order metric, cell, axis.

    `points` has one row a score: `dataset`, `entry`, a column an axis of the sweep, `split`,
    `axis` (the unit of the count), `at` (the count), `metric` and `value`. Counts without a
    finite value are left out.
    """
    if points.empty:
        return []
    keys = ["metric", "dataset", "entry", *benchmark.axes]
    groups = dict(list(points.groupby(keys, sort=False)))
    averaged = []
    for metric, (dataset, entry, point) in product(benchmark.metrics, benchmark.cells):
        scores = groups.get(
            (metric, dataset, entry, *(point.texts[path] for path in benchmark.axes))
        )
        if scores is None:
            continue
        for axis, axis_rows in scores.groupby("axis"):
            finite_rows = axis_rows[np.isfinite(axis_rows["value"])]
            means = []
            for count, values in finite_rows.groupby("at")["value"]:
                mean, se = summarise_values("mean", values.to_numpy(dtype=np.float64))
                if mean is not None:
                    means.append((count, mean, se))
            if means:
                # A standard error that is not known, None, becomes NaN.
                counts, mean, se = np.array(means, dtype=np.float64).T
                text = point_text(point.texts)
                averaged.append(Curve(dataset, entry, metric, str(axis), counts, mean, se, text))
    return averaged


def curve_drawings(benchmark: "Benchmark", curves: Sequence[Curve]) -> drawing.Drawings:
    """Draw curves: a panel a dataset (and point of a sweep), a line an entry, a figure a metric.

    A metric has one figure for each unit if entries counted in different units. Scores of
    training rows are drawn in the figure of new rows as well.
    """
    groups = {
        metric: group_by(metric_curves, lambda curve: curve.axis)
        for metric, metric_curves in group_by(curves, lambda curve: curve.metric).items()
    }
    drawings = {}
    for metric, by_axis in groups.items():
        training_curves = groups.get(training_metric(metric, groups) or "", {})
        for axis, axis_curves in by_axis.items():
            name = f"{metric}-curve" + (f"-{axis}" if len(by_axis) > 1 else "")
            drawings[name] = partial(
                curve_figure, benchmark, axis_curves, training_curves.get(axis, ())
            )
    return drawings


def curve_figure(
    benchmark: "Benchmark", curves: Sequence[Curve], training_curves: Sequence[Curve] = ()
) -> "Figure":
    """Draw curves of one metric in one unit, and dotted those of the same metric on training rows.

    Panels follow each other downwards, as in Figures 4.1 and B.1 of Brownlie (2022). Where there
    are online estimators (methods called ``online-...``), their lines are solid, and those of
    batch fits dashed. The printed values, which are those at the end of a fit, are drawn after the
    last count.
    """
    from matplotlib.ticker import MaxNLocator

    by_panel, training_panels = _by_panel(curves), _by_panel(training_curves)
    n_rows = 1
    if len(by_panel) > drawing.MAX_COLUMNS:
        n_rows = max(LINES, math.ceil(len(by_panel) / drawing.MAX_COLUMNS))
    # Distances of streams compare from panel to panel, scores on different data do not.
    streams = curves[0].axis == STREAMS
    columns = math.ceil(len(by_panel) / n_rows)
    shared = {"sharex": True, "sharey": "row" if streams else "none"}
    figure, panels = drawing.lay_out_panels(
        len(by_panel), (2.6, 1.9), columns=columns, downwards=True, **shared
    )
    styles, printed = _styles(benchmark), paper_values(benchmark.papers)
    all_counts = np.concatenate([curve.counts for curve in curves]).tolist()
    xscale = "log" if drawing.needs_log_scale(all_counts) else "linear"
    named_panels = zip(panels, by_panel.items(), strict=True)
    for number, (panel, (name, panel_curves)) in enumerate(named_panels):
        drawing.style_panel(panel, name)
        for curve in training_panels.get(name, ()):
            panel.plot(curve.counts, curve.mean, **{**styles[curve.entry], **TRAINING_LINE})
        for curve in panel_curves:
            look = {**drawing.DOTS, **styles[curve.entry]}
            panel.plot(curve.counts, curve.mean, label=curve.entry, **look)
            color = styles[curve.entry]["color"]
            low, high = curve.mean - curve.se, curve.mean + curve.se
            panel.fill_between(curve.counts, low, high, color=color, alpha=0.22, linewidth=0)
        _mark_printed(panel, panel_curves, styles, printed, xscale)
        if number % n_rows == n_rows - 1 or number == len(panels) - 1:  # the lowest of each column
            panel.set_xlabel(curves[0].axis)
            panel.tick_params(labelbottom=True)
    panel_names = [*by_panel]
    for number, panel in enumerate(panels):
        row = slice(number % n_rows, None, n_rows) if streams else slice(number, number + 1)
        row_curves: list[Curve] = []
        for name in panel_names[row]:
            row_curves += [*by_panel[name], *training_panels.get(name, ())]
        _fit_vertical_axis(panel, row_curves, panels[row])
    # The scale is set when all is drawn: on an axis that is logarithmic before that, matplotlib
    # extends the limits to powers of ten.
    for panel in panels:
        panel.set_xscale(xscale)
        if xscale == "linear":
            panel.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    subtitle = f"mean ± SE over {repeats_text(benchmark)}"
    if training_curves:
        subtitle += f"; {TRAINING_REMARK}"
    if 0 < len(_online_entries(benchmark)) < len(benchmark.entries):
        subtitle += "; solid: online, dashed: batch fits"
    lines = benchmark.title, metric_heading(curves[0].metric), subtitle
    handles = _legend_handles(figure, styles, curves)
    return drawing.finish_figure(
        figure,
        panels,
        metric_with_unit(curves[0].metric),
        *lines,
        handles=handles,
        handlelength=2.6,
    )


def _by_panel(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    return group_by(curves, lambda curve: panel_heading(curve.dataset, curve.point))


def _fit_vertical_axis(
    panel: "Axes", curves: Sequence[Curve], sharing_panels: "Sequence[Axes]"
) -> None:
    """Choose scale and limits so that no line flattens the others."""
    values = {
        entry: [mean for curve in entry_curves for mean in curve.mean.tolist()]
        for entry, entry_curves in group_by(curves, lambda curve: curve.entry).items()
    }
    ends: list[float] = []
    for curve in curves:
        bars = (*(curve.mean - curve.se), *(curve.mean + curve.se))
        ends += [end for end in bars if not math.isnan(end)]
    # The containers of a panel are the error bars of the printed values.
    for sharing_panel in sharing_panels:
        for bar in sharing_panel.containers:
            printed_value = float(bar.lines[0].get_ydata()[0])  # type: ignore[attr-defined]
            values.setdefault(str(bar.get_label()), []).append(printed_value)
    drawing.fit_axis(panel, "y", values, ends, factor=drawing.outlier_factor(curves[0].metric))


def _styles(benchmark: "Benchmark") -> drawing.Styles:
    """Return the look of each entry.

    Where there are online estimators, solid lines are theirs and dashed ones those of batch fits.
    """
    online = _online_entries(benchmark)
    styles = entry_styles(benchmark.entries)
    for name, look in styles.items():
        if online:
            look["linestyle"] = ONLINE if name in online else BATCH
    return styles


def _online_entries(benchmark: "Benchmark") -> list[str]:
    return [
        name
        for name, entry in benchmark.entries.items()
        if entry.method.name.startswith("online-")
    ]


def _mark_printed(
    panel: "Axes",
    panel_curves: Sequence[Curve],
    styles: drawing.Styles,
    printed: Mapping[Key, PaperValue],
    xscale: str,
) -> None:
    """Mark the printed values to the right of the last count.

    Each stands a step further to the right, as they may lie close together.
    """
    position = max(float(curve.counts[-1]) for curve in panel_curves)
    step = PRINTED_STEP * max(float(np.ptp(curve.counts)) for curve in panel_curves)
    for curve in panel_curves:
        if curve.point:  # papers print nothing at the points of a sweep
            continue
        value = printed.get((curve.dataset, curve.entry, curve.metric, "mean"))
        if value is not None and value.split is None:  # a curve is a mean over splits
            position = position * PRINTED_FACTOR if xscale == "log" else position + step
            style = drawing.PRINTED_MARK | {"color": styles[curve.entry]["color"]}
            panel.errorbar(
                [position],
                [value.value],
                yerr=value.stderr,
                elinewidth=1,
                label=f"paper, {curve.entry}",
                **style,
            )


def _legend_handles(
    figure: "Figure", styles: drawing.Styles, curves: Sequence[Curve]
) -> "list[Artist]":
    entries = {curve.entry for curve in curves}
    names = [name for name in styles if name in entries]
    handles: list[Artist] = [
        drawing.legend_handle(name, **drawing.DOTS, **styles[name]) for name in names
    ]
    if any(panel.containers for panel in figure.axes):
        label = "paper, whole stream" if curves[0].axis == STREAMS else "paper, end of fit"
        handles.append(
            drawing.legend_handle(label, **drawing.PRINTED_MARK | {"color": drawing.QUIET})
        )
    return handles
