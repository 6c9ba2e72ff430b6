"""Numbers along the axis of a sweep."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports.axes import named, number, short
from bdl.reports.compare import Cell
from bdl.reports.inputs import Benchmark
from bdl.reports.layout import heading
from bdl.reports.scales import label_logs, scale, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#222222", "#56b4e9")
"""Palette of Okabe and Ito (2008) without its yellow, which is too pale for lines."""
ROUNDS: tuple[Any, ...] = ("-", (0, (3, 1.5)), ":")
DASHES = tuple(line for line in ROUNDS for _ in COLORS)
"""Lines of the first entries, which have the colours once, and of those that have them again."""
MARKERS = "osD^v"
GREY = "#666666"
BARS: dict[str, Any] = {"linewidth": 1.4, "elinewidth": 1.2, "markersize": 4.5, "capsize": 2.5}
WIDTH, HEIGHT, MIN_WIDTH, MOST = 3.0, 2.4, 6.0, 4
"""Of a panel, the least width of a figure, in inches; panels in a line."""


class Mark(NamedTuple):
    """A number with its error at one point of a sweep."""

    dataset: str
    entry: str
    point: Mapping[str, str]
    """Path of each axis to the JSON of its value."""
    value: float | None
    error: float | None
    """Half the length of its bar."""


def swept_figure(benchmark: Benchmark, metric: str, cells: Sequence[Cell]) -> "Figure":
    """Draw the means of a metric with their standard errors along the first axis of the sweep (`along`).

    Parameters
    ----------
    benchmark
        Whose sweep.
    metric
        What is drawn.
    cells
        Means of the metric.
    """
    marks = [Mark(cell.dataset, cell.method, cell.point, cell.ours, cell.ours_se) for cell in cells]
    return along(benchmark, f"{benchmark.title}\n{heading(metric)}, mean ± SE", marks)


def along(benchmark: Benchmark, title: str, marks: Sequence[Mark], *, around_zero: bool = False) -> "Figure":
    """Draw the first axis of the sweep from left to right, within `bdl.reports.figures.save`.

    Parameters
    ----------
    benchmark
        Whose sweep.
    title
        Heading of the figure.
    marks
        Each data set, and each combination of the other axes' values, has a panel; a few of these combinations stand
        side by side on one scale, a data set a line. Each entry has a line of values with their errors, with a gap
        where there is none.
    around_zero
        Whether the values are differences: 0 has a line, and no scale is logarithmic.
    """
    from matplotlib.figure import Figure

    axis, *_ = benchmark.axes
    by_panel: dict[tuple[str, str], list[Mark]] = {}
    for mark in marks:
        others = {path: text for path, text in mark.point.items() if path != axis}
        by_panel.setdefault((mark.dataset, named(others)), []).append(mark)
    beside = len({others for _, others in by_panel})
    alike = 1 < beside <= MOST
    columns = beside if alike else min(len(by_panel), MOST)
    lines = math.ceil(len(by_panel) / columns)
    size = max(WIDTH * columns + 0.4, MIN_WIDTH), HEIGHT * lines + 1.1
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, sharey="row" if alike else "none", squeeze=False).ravel()
    styles = {
        name: {"color": color, "marker": marker}
        for name, color, marker in zip(benchmark.entries, cycle(COLORS), cycle(MARKERS), strict=False)
    }
    for panel, (place, own) in zip(panels, by_panel.items(), strict=False):
        panel.set_title("  ".join(part for part in place if part), fontsize=10, fontweight="bold", loc="left")
        if around_zero:
            panel.axhline(0, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
        _fill(panel, own, axis, styles)
        level = [mark for mark in marks if mark.dataset == place[0]] if alike else own
        _dress(panel, own, axis, [] if around_zero else [mark.value for mark in level if mark.value is not None])
    for panel in panels[len(by_panel) :]:
        panel.remove()
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    _legend(figure, styles)
    return figure


def _fill(panel: "Axes", marks: Sequence[Mark], axis: str, styles: Mapping[str, Mapping[str, Any]]) -> None:
    places = _places(marks, axis)
    for entry in dict.fromkeys(mark.entry for mark in marks):
        own = sorted((mark for mark in marks if mark.entry == entry), key=lambda mark: places[mark.point[axis]])
        x = [places[mark.point[axis]] for mark in own]
        y, errors = ([math.nan if v is None else v for v in of] for of in zip(*(mark[3:] for mark in own), strict=True))
        panel.errorbar(x, y, yerr=errors, label=entry, **BARS, **styles[entry])


def _dress(panel: "Axes", marks: Sequence[Mark], axis: str, values: Sequence[float]) -> None:
    """Label both axes, of which the vertical one has the scale of `values`; each value of the sweep has its tick."""
    places = _places(marks, axis)
    if _geometric(sorted(places.values())):
        panel.set_xscale("log")
    panel.set_xticks(list(places.values()), [short(text) for text in places])
    panel.minorticks_off()
    panel.margins(x=0.08)
    panel.set_xlabel(axis, color=GREY)
    if scale(values) == "log":
        panel.set_yscale("log")
        label_logs(panel.yaxis, span(values))
    panel.grid()
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_visible(False)


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


def _legend(figure: "Figure", styles: Mapping[str, Mapping[str, Any]]) -> None:
    """Name the entries of all panels, in table order."""
    drawn: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        drawn |= dict(zip(labels, handles, strict=True))
    names = [name for name in styles if name in drawn]
    figure.legend([drawn[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False)
