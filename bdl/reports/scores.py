"""Figures of scores, ours and printed, and of differences from the baseline; also along sweeps."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bdl.metrics import get_metric_info
from bdl.reports import drawing
from bdl.reports.comparison import TableEntry
from bdl.reports.layout import (
    format_number,
    metric_heading,
    metric_with_unit,
    repeats_text,
    training_metric,
)
from bdl.reports.method_styles import entry_styles
from bdl.reports.paired import PairedDifference
from bdl.reports.statistics import (
    AXIS_NAMES,
    format_setting,
    group_by,
    panel_heading,
    parse_number,
    point_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

TRAINING_LINE: dict[str, Any] = {"linestyle": (0, (1, 1.2)), "linewidth": 1.2, "markersize": 2.5}
"""Scores of training rows, in the colours of those of new rows."""
TRAINING_REMARK = "dotted: training rows"

PANEL_WIDTH, ROW_HEIGHT = 3.4, 0.4
OFFSET = 0.14
"""Distance of our mark and of the printed one from the line of their row."""
ONE_LINE_WIDTH = 9.0
"""Width in inches from which on the legend of differences is one line."""
VERDICT_MARKS: dict[str, dict[str, Any]] = {
    "better": drawing.OUR_MARK,
    "worse": drawing.PAPER_MARK | {"markerfacecolor": drawing.COLORS[1]},
    "undecided": {**drawing.PAPER_MARK, "color": "#8c8c8c", "marker": "o"},
}
"""Mark of each verdict; they differ in shape as well as in colour."""

RowMark = tuple[float, float, float | None, Mapping[str, Any]]
"""Height, value, error to either side, and look of a mark."""


class SweepMark(NamedTuple):
    """A number with its error at one point of a sweep."""

    dataset: str
    entry: str
    point: Mapping[str, str]
    """Path of each axis to the JSON of its value."""
    value: float | None
    error: float | None
    """Half the length of its bar."""


def score_drawings(benchmark: "Benchmark", cells: Sequence[TableEntry]) -> drawing.Drawings:
    """Draw our means and the paper's, with standard errors: a panel a dataset, a figure a metric.

    The means of a sweep are drawn along its first axis instead.
    """
    drawings = {}
    for name in benchmark.metrics:
        means = [cell for cell in cells if cell.metric == name and cell.statistic == "mean"]
        training_name = training_metric(name, benchmark.metrics)
        training_means = [
            cell for cell in cells if cell.metric == training_name and cell.statistic == "mean"
        ]
        if not benchmark.axes:
            drawings[str(name)] = partial(scores_figure, benchmark, name, means)
            continue
        subtitle = f"{metric_heading(name)}, mean ± SE"
        if training_means:
            subtitle += f"; {TRAINING_REMARK}"
        drawings[str(name)] = partial(
            swept_figure,
            benchmark,
            name,
            (benchmark.title, subtitle),
            _sweep_marks(means),
            training_marks=_sweep_marks(training_means),
        )
    return drawings


def _sweep_marks(cells: Sequence[TableEntry]) -> list[SweepMark]:
    return [
        SweepMark(cell.dataset, cell.method, cell.point, cell.ours, cell.ours_se) for cell in cells
    ]


def paired_drawings(
    benchmark: "Benchmark", differences: Sequence[PairedDifference]
) -> drawing.Drawings:
    """Draw the paired differences: a panel a dataset, a figure a predictive metric.

    Those of a sweep are drawn along its first axis instead. Datasets and metrics without a pair
    are left out.
    """
    drawings = {}
    groups = group_by(differences, lambda difference: difference.metric)
    for metric, metric_differences in groups.items():
        datasets = {difference.dataset for difference in metric_differences if difference.n}
        if not datasets:
            continue
        in_panels = [pair for pair in metric_differences if pair.dataset in datasets]
        if not benchmark.axes:
            drawings[f"{metric}-paired"] = partial(paired_figure, benchmark, metric, in_panels)
            continue
        marks = [
            SweepMark(pair.dataset, pair.entry, pair.point, pair.mean, pair.half_width)
            for pair in in_panels
        ]
        subtitle = f"mean difference from {benchmark.baseline} over {repeats_text(benchmark)}"
        subtitle += ", 95 % intervals"
        lines = benchmark.title, metric_heading(metric), subtitle
        drawings[f"{metric}-paired"] = partial(
            swept_figure, benchmark, metric, lines, marks, around_zero=True
        )
    return drawings


def scores_figure(benchmark: "Benchmark", metric: str, cells: Sequence[TableEntry]) -> "Figure":
    """Draw our means and those of the paper, with standard errors."""
    entries = {
        str(name): [entry for dataset, entry in benchmark.pairs if dataset == name]
        for name in benchmark.datasets
    }
    figure, panels = entry_rows(entries, metric_with_unit(metric))
    for dataset, panel in panels.items():
        marks: list[RowMark] = []
        for cell in cells:
            if cell.dataset != dataset:
                continue
            row = entries[dataset].index(cell.method)
            offset = 0.0 if cell.paper is None else OFFSET
            if cell.ours is None:
                centred: dict[str, Any] = {
                    "transform": panel.get_yaxis_transform(),
                    "ha": "center",
                    "va": "center",
                }
                panel.text(0.5, row - offset, cell.verdict, color=drawing.QUIET, **centred)
            else:
                marks.append((row - offset, cell.ours, cell.ours_se, drawing.OUR_MARK))
            if cell.paper is not None:
                marks.append((row + offset, cell.paper, cell.paper_se, drawing.PAPER_MARK))
        _draw_marks(panel, marks, drawing.outlier_factor(metric))
    drawing.write_title(figure, benchmark.title, metric_heading(metric))
    handles = [drawing.legend_handle("ours, mean ± SE", linestyle="none", **drawing.OUR_MARK)]
    if any(cell.paper is not None for cell in cells):
        handles.append(
            drawing.legend_handle(
                "paper, mean ± SE as printed", linestyle="none", **drawing.PAPER_MARK
            )
        )
    drawing.draw_legend(figure, handles, columns=2)
    return figure


def paired_figure(
    benchmark: "Benchmark", metric: str, differences: Sequence[PairedDifference]
) -> "Figure":
    """Draw mean differences from the baseline, with 95 % intervals.

    The number of pairs is written where splits are missing.
    """
    groups = group_by(differences, lambda difference: difference.dataset)
    rows = {
        name: [difference.entry for difference in dataset_differences]
        for name, dataset_differences in groups.items()
    }
    figure, panels = entry_rows(rows, f"difference in {metric_with_unit(metric)}")
    for name, panel in panels.items():
        panel.axvline(0, color=drawing.QUIET, linestyle=":", linewidth=1.2, zorder=1)
        marks: list[RowMark] = []
        for row, difference in enumerate(groups[name]):
            if difference.mean is not None:
                look = VERDICT_MARKS[difference.verdict]
                marks.append((row, difference.mean, difference.half_width, look))
        _draw_marks(panel, marks, drawing.outlier_factor(metric), zero=True)
        small: dict[str, Any] = {"va": "center", "color": drawing.QUIET, "fontsize": 7}
        for row, difference in enumerate(groups[name]):
            if difference.n < len(benchmark.splits_of(name)):
                across = panel.get_yaxis_transform()
                panel.text(1.01, row, f"n = {difference.n}", transform=across, **small)
    subtitle = f"mean difference from {benchmark.baseline} over {repeats_text(benchmark)}"
    drawing.write_title(figure, benchmark.title, metric_heading(metric), subtitle)
    left, right = (
        ("better", "worse")
        if get_metric_info(metric).direction == "lower"
        else ("worse", "better")
    )
    labels = {
        left: f"left: {left} than {benchmark.baseline}",
        "undecided": "undecided: 95 % interval holds 0, a fit failed, or n < 3",
        right: f"right: {right} than {benchmark.baseline}",
    }
    handles = [
        drawing.legend_handle(label, linestyle="none", **VERDICT_MARKS[verdict])
        for verdict, label in labels.items()
    ]
    columns = 3 if figure.get_figwidth() > ONE_LINE_WIDTH else 2
    drawing.draw_legend(figure, handles, columns=columns, handlelength=1.2, columnspacing=1.6)
    return figure


def entry_rows(rows: Mapping[str, Sequence[str]], label: str) -> "tuple[Figure, dict[str, Axes]]":
    """Lay out a panel a dataset with a row for each of its entries."""
    from matplotlib.ticker import MaxNLocator

    height = ROW_HEIGHT * max(map(len, rows.values())) + 0.75
    # to the right matplotlib writes the power of ten of the ticks; a panel by itself has the
    # width of a figure
    label_width = 18 if len(rows) > 1 else 40
    figure, panels = drawing.lay_out_panels(len(rows), (PANEL_WIDTH, height))
    for panel, (dataset, entries) in zip(panels, rows.items(), strict=True):
        drawing.style_panel(panel, dataset, "x")
        panel.set_yticks(range(len(entries)), entries)
        panel.set_ylim(len(entries) - 0.5, -0.5)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=3))
        panel.set_xlabel(fill(label, label_width), loc="left")
    return figure, dict(zip(rows, panels, strict=True))


def _draw_marks(
    panel: "Axes", marks: Sequence[RowMark], factor: float, *, zero: bool = False
) -> None:
    """Mark values with their errors; those beyond the axis are written at its end.

    With `zero`, 0 is on the axis.
    """
    bars = [end for _, value, error, _ in marks for end in drawing.bar_ends(value, error)]
    if zero:
        bars.append(0.0)
    values = {index: [value] for index, (_, value, _, _) in enumerate(marks)}
    outliers = drawing.fit_axis(
        panel,
        "x",
        values,
        bars,
        factor=factor,
        scale="linear" if zero else None,
        write_outliers=False,
    )
    low, _ = panel.get_xlim()
    across = panel.get_yaxis_transform()
    bar: dict[str, Any] = {"linestyle": "none", "elinewidth": 1.4, "capsize": 2.5, "capthick": 1.4}
    for index, (row, value, error, look) in enumerate(marks):
        if index not in outliers:
            panel.errorbar([value], [row], xerr=error, **bar, **look)
            continue
        style: dict[str, Any] = {"va": "center", "fontsize": 8, "color": look["color"]}
        text = format_number(value)
        if value < low:
            panel.text(0.01, row, f"← {text}", transform=across, ha="left", **style)
        else:
            panel.text(0.99, row, f"{text} →", transform=across, ha="right", **style)


def swept_figure(
    benchmark: "Benchmark",
    metric: str,
    lines: Sequence[str],
    marks: Sequence[SweepMark],
    *,
    training_marks: Sequence[SweepMark] = (),
    around_zero: bool = False,
) -> "Figure":
    """Draw the first axis of the sweep from left to right, under a title of some lines.

    Each data set, and each combination of the other axes' values, has a panel; a few of these
    combinations stand side by side on one scale, a data set a line. Each entry has a line of
    values with their errors, with a gap where there is none, and a dotted one for the scores of
    training rows. Differences are drawn around zero: 0 has a line, and no scale is logarithmic.
    """
    axis, *_ = benchmark.axes
    by_panel, training_panels = _by_panel(marks, axis), _by_panel(training_marks, axis)
    n_combinations = len({combination for _, combination in by_panel})
    shared_scale = 1 < n_combinations <= drawing.MAX_COLUMNS
    figure, panels = drawing.lay_out_panels(
        len(by_panel),
        (3.0, 2.4),
        columns=n_combinations if shared_scale else None,
        sharey="row" if shared_scale else "none",
    )
    styles = entry_styles(benchmark.entries)
    for panel, (facet, panel_marks) in zip(panels, by_panel.items(), strict=True):
        drawing.style_panel(panel, panel_heading(*facet))
        if around_zero:
            panel.axhline(0, color=drawing.QUIET, linestyle=":", linewidth=1.2, zorder=1)
        positions = _axis_positions(panel_marks, axis)
        for entry in dict.fromkeys(mark.entry for mark in panel_marks):
            x, y, errors = _entry_line(panel_marks, entry, positions, axis)
            panel.errorbar(x, y, yerr=errors, label=entry, **{**drawing.BARS, **styles[entry]})
            if facet in training_panels:
                x, y, _ = _entry_line(training_panels[facet], entry, positions, axis)
                panel.plot(x, y, **{**styles[entry], **TRAINING_LINE})
        if _is_geometric(sorted(positions.values())):
            panel.set_xscale("log")
        panel.set_xticks(list(positions.values()), [format_setting(text) for text in positions])
        panel.minorticks_off()
        panel.margins(x=0.08)
        panel.set_xlabel(AXIS_NAMES.get(axis, axis.rpartition(".")[2].replace("_", " ")))
        scale_marks = [*panel_marks, *training_panels.get(facet, ())]
        if shared_scale:
            scale_marks = [mark for mark in (*marks, *training_marks) if mark.dataset == facet[0]]
        _fit_vertical_axis(panel, scale_marks, drawing.outlier_factor(metric), around_zero)
    label = metric_with_unit(metric)
    if around_zero:
        label = f"difference in {label}"
    return drawing.finish_figure(figure, panels, label, *lines, order=styles)


def _by_panel(marks: Sequence[SweepMark], axis: str) -> dict[tuple[str, str], list[SweepMark]]:
    """Group marks by data set and by the values of the other axes."""

    def panel_of(mark: SweepMark) -> tuple[str, str]:
        combination = {path: value for path, value in mark.point.items() if path != axis}
        return mark.dataset, point_text(combination)

    return group_by(marks, panel_of)


def _entry_line(
    marks: Sequence[SweepMark], entry: str, positions: Mapping[str, float], axis: str
) -> tuple[list[float], list[float], list[float]]:
    """Return positions, values and errors of an entry, from left to right.

    NaN where there is none.
    """
    line = sorted(
        (mark for mark in marks if mark.entry == entry),
        key=lambda mark: positions[mark.point[axis]],
    )
    values = [math.nan if mark.value is None else mark.value for mark in line]
    errors = [math.nan if mark.error is None else mark.error for mark in line]
    return [positions[mark.point[axis]] for mark in line], values, errors


def _fit_vertical_axis(
    panel: "Axes", marks: Sequence[SweepMark], factor: float, around_zero: bool
) -> None:
    """Choose scale and limits so that no line flattens the others."""
    values: dict[str, list[float]] = {}
    bars: list[float] = []
    for mark in marks:
        if mark.value is not None:
            values.setdefault(mark.entry, []).append(mark.value)
            bars += drawing.bar_ends(mark.value, mark.error)
    if around_zero:
        bars.append(0.0)
    scale: Literal["linear"] | None = "linear" if around_zero else None
    drawing.fit_axis(panel, "y", values, bars, factor=factor, scale=scale)


def _axis_positions(marks: Sequence[SweepMark], axis: str) -> dict[str, float]:
    """Return the position of each value of an axis.

    Numbers are at their value. If one of the values is no number, they are side by side in the
    order of the sweep.
    """
    texts = list(dict.fromkeys(mark.point[axis] for mark in marks))
    numbers: dict[str, float] = {}
    for text in texts:
        value = parse_number(text)
        if value is None:
            return {text: float(index) for index, text in enumerate(texts)}
        numbers[text] = value
    return numbers


def _is_geometric(positions: Sequence[float]) -> bool:
    """Return whether ascending positions are better spread on a logarithmic axis than on a linear.

    They are if it sets the two closest further apart.
    """
    if len(positions) < 3 or positions[0] <= 0:
        return False
    logs = [math.log(position) for position in positions]
    return _smallest_gap(logs) > _smallest_gap(positions)


def _smallest_gap(positions: Sequence[float]) -> float:
    """Compute the distance of the two closest of ascending positions, as a share of the range."""
    gap = min(after - before for before, after in pairwise(positions))
    return gap / (positions[-1] - positions[0])
