"""Scores of entries, ours and printed, and differences from the baseline: a row an entry, or along a sweep."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.metrics import info
from bdl.reports import Cell, drawing
from bdl.reports.layout import heading, measure, on_training_rows, quantity, repeats
from bdl.reports.paired import PairedDifference
from bdl.reports.statistics import WORDS, grouped, named, number, panel_heading, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

SEEN: dict[str, Any] = {"linestyle": (0, (1, 1.2)), "linewidth": 1.2, "marker": ""}
"""Scores of training rows, in the colours of those of new rows."""
TOLD_SEEN = "dotted: training rows"

PANEL_WIDTH, ROW_HEIGHT = 2.6, 0.46
OFFSET = 0.14
"""Of ours and the printed one from the line of their row."""
WIDE = 9.0
"""Inches from which on the legend of differences is one line."""
LOOKS: dict[str, dict[str, Any]] = {
    "better": drawing.OURS,
    "worse": drawing.PAPER | {"markerfacecolor": drawing.COLORS[1]},
    "undecided": {**drawing.PAPER, "color": "#8c8c8c", "marker": "o"},
}
"""How a verdict is drawn; told apart by shape as well as by colour."""

Row = tuple[float, float, float | None, Mapping[str, Any]]
"""Height, value, error to either side, and look of a mark."""


class Mark(NamedTuple):
    """A number with its error at one point of a sweep."""

    dataset: str
    entry: str
    point: Mapping[str, str]
    """Path of each axis to the JSON of its value."""
    value: float | None
    error: float | None
    """Half the length of its bar."""


def score_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw our mean against the paper's, with standard errors: a panel a dataset, a figure a metric.

    The means of a sweep are drawn along its first axis instead.
    """
    found = {}
    for name in benchmark.metrics:
        own = [cell for cell in cells if cell.metric == name and cell.statistic == "mean"]
        other = on_training_rows(name, benchmark.metrics)
        seen = [cell for cell in cells if cell.metric == other and cell.statistic == "mean"]
        lines = benchmark.title, f"{heading(name)}, mean ± SE" + (f"; {TOLD_SEEN}" if seen else "")
        along = partial(swept_figure, benchmark, name, lines, _marks(own), seen=_marks(seen))
        found[str(name)] = (
            along if benchmark.axes else partial(scores_figure, benchmark, name, own)
        )
    return found


def _marks(cells: Sequence[Cell]) -> list[Mark]:
    return [Mark(cell.dataset, cell.method, cell.point, cell.ours, cell.ours_se) for cell in cells]


def paired_drawings(
    benchmark: "Benchmark", differences: Sequence[PairedDifference]
) -> drawing.Drawings:
    """Draw the paired differences: a panel a dataset, a figure a predictive metric.

    Those of a sweep are drawn along its first axis instead. Datasets without a pair are left out,
    and so are metrics.
    """
    found = {}
    for metric, own in grouped(differences, lambda each: each.metric).items():
        there = {each.dataset for each in own if each.n}
        own = [each for each in own if each.dataset in there]
        if own:
            marks = [
                Mark(each.dataset, each.entry, each.point, each.mean, each.half) for each in own
            ]
            what = f"mean difference from {benchmark.baseline} over {repeats(benchmark)}, 95 % intervals"
            lines = benchmark.title, heading(metric), what
            along = partial(swept_figure, benchmark, metric, lines, marks, around_zero=True)
            found[f"{metric}-paired"] = (
                along if benchmark.axes else partial(paired_figure, benchmark, metric, own)
            )
    return found


def scores_figure(benchmark: "Benchmark", metric: str, cells: Sequence[Cell]) -> "Figure":
    """Draw means of ours and of the paper, with standard errors."""
    own = {
        str(name): [entry for dataset, entry in benchmark.pairs if dataset == name]
        for name in benchmark.datasets
    }
    figure, panels = entry_rows(own, measure(metric))
    for dataset, panel in panels.items():
        marks: list[Row] = []
        for cell in (cell for cell in cells if cell.dataset == dataset):
            row = own[dataset].index(cell.method)
            offset = 0.0 if cell.paper is None else OFFSET
            if cell.ours is None:
                centred: dict[str, Any] = {
                    "transform": panel.get_yaxis_transform(),
                    "ha": "center",
                    "va": "center",
                }
                panel.text(0.5, row - offset, cell.verdict, color=drawing.QUIET, **centred)
            else:
                marks.append((row - offset, cell.ours, cell.ours_se, drawing.OURS))
            if cell.paper is not None:
                marks.append((row + offset, cell.paper, cell.paper_se, drawing.PAPER))
        _mark(panel, marks, drawing.far(metric))
    drawing.title(figure, benchmark.title, heading(metric))
    handles = [drawing.handle("ours, mean ± SE", linestyle="none", **drawing.OURS)]
    if any(cell.paper is not None for cell in cells):
        handles.append(
            drawing.handle("paper, mean ± SE as printed", linestyle="none", **drawing.PAPER)
        )
    drawing.legend(figure, handles, columns=2)
    return figure


def paired_figure(
    benchmark: "Benchmark", metric: str, differences: Sequence[PairedDifference]
) -> "Figure":
    """Draw mean differences from the baseline, with 95 % intervals and the number of pairs where splits are missing."""
    own = grouped(differences, lambda each: each.dataset)
    rows = {name: [each.entry for each in drawn] for name, drawn in own.items()}
    figure, panels = entry_rows(rows, f"difference in {measure(metric)}")
    for name, panel in panels.items():
        panel.axvline(0, color=drawing.QUIET, linestyle=":", linewidth=1.2, zorder=1)
        known = [
            (row, each, each.mean) for row, each in enumerate(own[name]) if each.mean is not None
        ]
        marks: list[Row] = [
            (row, mean, each.half, LOOKS[each.verdict]) for row, each, mean in known
        ]
        _mark(panel, marks, drawing.far(metric), zero=True)
        for row, each in enumerate(own[name]):
            if each.n < benchmark.splits:
                across = panel.get_yaxis_transform()
                panel.text(
                    1.01,
                    row,
                    f"n = {each.n}",
                    transform=across,
                    va="center",
                    color=drawing.QUIET,
                    fontsize=7,
                )
    what = f"mean difference from {benchmark.baseline} over {repeats(benchmark)}"
    drawing.title(figure, benchmark.title, heading(metric), what)
    left, right = ("better", "worse") if info(metric).direction == "lower" else ("worse", "better")
    labels = {
        left: f"left: {left} than {benchmark.baseline}",
        "undecided": "undecided: 95 % interval holds 0, a fit failed, or n < 3",
        right: f"right: {right} than {benchmark.baseline}",
    }
    handles = [
        drawing.handle(label, linestyle="none", **LOOKS[verdict])
        for verdict, label in labels.items()
    ]
    columns = 3 if figure.get_figwidth() > WIDE else 2
    drawing.legend(figure, handles, columns=columns, handlelength=1.2, columnspacing=1.6)
    return figure


def entry_rows(rows: Mapping[str, Sequence[str]], label: str) -> "tuple[Figure, dict[str, Axes]]":
    """Lay out a panel a dataset with a row for each of its entries."""
    from matplotlib.ticker import MaxNLocator

    alike = (
        len({tuple(entries) for entries in rows.values()}) == 1
    )  # then only the first panel names them
    height = ROW_HEIGHT * max(map(len, rows.values())) + 0.75
    figure, panels = drawing.grid(len(rows), (PANEL_WIDTH, height), sharey=alike)
    for panel, (dataset, entries) in zip(panels, rows.items(), strict=True):
        drawing.dress(panel, dataset, "x")
        panel.set_yticks(range(len(entries)), entries)
        panel.set_ylim(len(entries) - 0.5, -0.5)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=3))
    for panel in panels[-min(len(rows), drawing.MOST) :]:  # those without another below
        panel.set_xlabel(
            fill(label, 26), loc="left"
        )  # to the right is the power of ten of the ticks
    return figure, dict(zip(rows, panels, strict=True))


def _mark(panel: "Axes", marks: Sequence[Row], factor: float, *, zero: bool = False) -> None:
    """Mark values with their errors; those beyond the axis are written at its end."""
    bars = [end for _, value, error, _ in marks for end in drawing.ends(value, error)] + [
        0.0
    ] * zero
    values = {number: [value] for number, (_, value, _, _) in enumerate(marks)}
    beyond = drawing.fit(
        panel, "x", values, bars, factor=factor, scale="linear" if zero else None, say=False
    )
    low, _ = panel.get_xlim()
    across = panel.get_yaxis_transform()
    bar: dict[str, Any] = {"linestyle": "none", "elinewidth": 1.4, "capsize": 2.5, "capthick": 1.4}
    for place, (row, value, error, look) in enumerate(marks):
        if place in beyond:
            written, left = quantity(value), value < low
            x, side, text = (
                (0.01, "left", f"← {written}") if left else (0.99, "right", f"{written} →")
            )
            panel.text(
                x,
                row,
                text,
                transform=across,
                ha=side,
                va="center",
                fontsize=8,
                color=look["color"],
            )
        else:
            panel.errorbar([value], [row], xerr=error, **bar, **look)


def swept_figure(
    benchmark: "Benchmark",
    metric: str,
    lines: Sequence[str],
    marks: Sequence[Mark],
    *,
    seen: Sequence[Mark] = (),
    around_zero: bool = False,
) -> "Figure":
    """Draw the first axis of the sweep from left to right, under a title of some lines.

    Each data set, and each combination of the other axes' values, has a panel; a few of these
    combinations stand side by side on one scale, a data set a line. Each entry has a line of
    values with their errors, with a gap where there is none, and a dotted one for those `seen` in
    training. Around zero are differences: 0 has a line, and no scale is logarithmic.
    """
    axis, *_ = benchmark.axes
    by_panel, below = _by_panel(marks, axis), _by_panel(seen, axis)
    beside = len({others for _, others in by_panel})
    alike = 1 < beside <= drawing.MOST
    figure, panels = drawing.grid(
        len(by_panel),
        (3.0, 2.4),
        columns=beside if alike else None,
        sharey="row" if alike else "none",
    )
    styles = drawing.styles(benchmark.entries)
    for panel, (place, own) in zip(panels, by_panel.items(), strict=True):
        drawing.dress(panel, panel_heading(*place))
        if around_zero:
            panel.axhline(0, color=drawing.QUIET, linestyle=":", linewidth=1.2, zorder=1)
        places = _places(own, axis)
        for entry in dict.fromkeys(mark.entry for mark in own):
            x, y, errors = _line(own, entry, places, axis)
            panel.errorbar(x, y, yerr=errors, label=entry, **{**drawing.BARS, **styles[entry]})
            if place in below:
                x, y, _ = _line(below[place], entry, places, axis)
                panel.plot(x, y, **{**styles[entry], **SEEN})
        if _geometric(sorted(places.values())):
            panel.set_xscale("log")
        panel.set_xticks(list(places.values()), [short(text) for text in places])
        panel.minorticks_off()
        panel.margins(x=0.08)
        panel.set_xlabel(WORDS.get(axis, axis.rpartition(".")[2].replace("_", " ")))
        level = [*own, *below.get(place, ())]
        if alike:
            level = [mark for mark in (*marks, *seen) if mark.dataset == place[0]]
        _vertical(panel, level, drawing.far(metric), around_zero)
    label = f"difference in {measure(metric)}" if around_zero else measure(metric)
    return drawing.finished(figure, panels, label, *lines, order=styles)


def _by_panel(marks: Sequence[Mark], axis: str) -> dict[tuple[str, str], list[Mark]]:
    return grouped(
        marks,
        lambda mark: (mark.dataset, named({k: v for k, v in mark.point.items() if k != axis})),
    )


def _line(
    marks: Sequence[Mark], entry: str, places: Mapping[str, float], axis: str
) -> tuple[list[float], list[float], list[float]]:
    """Return places, values and errors of an entry, from left to right.

    NaN where there is none.
    """
    line = sorted(
        (mark for mark in marks if mark.entry == entry), key=lambda mark: places[mark.point[axis]]
    )
    values = [math.nan if mark.value is None else mark.value for mark in line]
    errors = [math.nan if mark.error is None else mark.error for mark in line]
    return [places[mark.point[axis]] for mark in line], values, errors


def _vertical(panel: "Axes", marks: Sequence[Mark], factor: float, around_zero: bool) -> None:
    """Choose scale and limits so that no line flattens the others."""
    known = [(mark.entry, mark.value, mark.error) for mark in marks if mark.value is not None]
    values = {
        entry: [value for _, value, _ in own]
        for entry, own in grouped(known, lambda own: own[0]).items()
    }
    bars = [end for _, value, error in known for end in drawing.ends(value, error)] + [
        0.0
    ] * around_zero
    drawing.fit(panel, "y", values, bars, factor=factor, scale="linear" if around_zero else None)


def _places(marks: Sequence[Mark], axis: str) -> dict[str, float]:
    """Put values where their numbers are, or side by side in the order of the sweep if one of them is no number."""
    texts = list(dict.fromkeys(mark.point[axis] for mark in marks))
    known = {text: place for text in texts if (place := number(text)) is not None}
    return known if len(known) == len(texts) else {text: float(i) for i, text in enumerate(texts)}


def _geometric(places: Sequence[float]) -> bool:
    """Return whether a logarithmic axis sets the two closest of ascending places further apart than a linear one."""
    if len(places) < 3 or places[0] <= 0:
        return False
    logs = [math.log(place) for place in places]
    closest, closest_logs = (
        min(b - a for a, b in pairwise(found)) / (found[-1] - found[0]) for found in (places, logs)
    )
    return closest_logs > closest
