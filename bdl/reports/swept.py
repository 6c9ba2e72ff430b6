"""Scores along the axis of a sweep, one figure a metric."""

import math
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from bdl.metrics import info
from bdl.reports.axes import named, number, short
from bdl.reports.compare import Cell
from bdl.reports.inputs import Benchmark
from bdl.reports.layout import heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#222222", "#56b4e9")
"""Palette of Okabe and Ito (2008) without its yellow, which is too pale for lines."""
WIDTH, HEIGHT, MIN_WIDTH, MOST = 3.0, 2.4, 6.0, 4
"""Of a panel, the least width of a figure, in inches; panels in a line."""
LOG_FROM = 30.0
"""An axis whose values span more than this factor is logarithmic."""


def swept_figure(benchmark: Benchmark, metric: str, cells: Sequence[Cell]) -> "Figure":
    """Draw the first axis of the sweep from left to right, within `bdl.reports.figures.save`.

    Parameters
    ----------
    benchmark
        Whose sweep.
    metric
        What is drawn.
    cells
        Means of the metric. Each data set, and each combination of the other axes' values, has a panel; each entry has
        a line of means with standard errors.
    """
    from matplotlib.figure import Figure

    axis, *_ = benchmark.axes
    panels: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        others = {path: text for path, text in cell.point.items() if path != axis}
        panels.setdefault((cell.dataset, named(others)), []).append(cell)
    columns = min(len(panels), MOST)
    lines = math.ceil(len(panels) / columns)
    size = max(WIDTH * columns + 0.4, MIN_WIDTH), HEIGHT * lines + 1.1
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    looks = {
        name: {"color": color, "marker": marker}
        for name, color, marker in zip(benchmark.entries, cycle(COLORS), cycle("osD^v"), strict=False)
    }
    for panel, ((dataset, rest), own) in zip(axes, panels.items(), strict=False):
        panel.set_title(f"{dataset} {rest}".rstrip(), fontsize=10, fontweight="bold", loc="left")
        _fill(panel, axis, own, looks)
    for panel in axes[len(panels) :]:
        panel.remove()
    figure.suptitle(f"{benchmark.title}\n{heading(info(metric))}", fontsize=11, x=0.01, ha="left")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _fill(panel: "Axes", axis: str, cells: Sequence[Cell], looks: dict[str, dict[str, Any]]) -> None:
    values = list(dict.fromkeys(cell.point[axis] for cell in cells))
    places = _places(values)
    for entry in dict.fromkeys(cell.method for cell in cells):
        own = [cell for cell in cells if cell.method == entry and cell.ours is not None]
        own.sort(key=lambda cell: places[cell.point[axis]])
        x = [places[cell.point[axis]] for cell in own]
        errors = [cell.ours_se or 0.0 for cell in own]
        y = [cell.ours or 0.0 for cell in own]
        panel.errorbar(x, y, yerr=errors, label=entry, linewidth=1.4, markersize=4.5, capsize=2.5, **looks[entry])
    if len(places) > 1 and min(places.values()) > 0 and max(places.values()) / min(places.values()) > LOG_FROM:
        panel.set_xscale("log")
    panel.set_xticks(list(places.values()), [short(value) for value in places], minor=False)
    panel.minorticks_off()
    panel.set_xlabel(axis)
    panel.grid()
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_visible(False)


def _places(values: Sequence[str]) -> dict[str, float]:
    """Put values where their numbers are, or one beside the other if one of them is no number."""
    numbers = {value: number(value) for value in values}
    known = {value: place for value, place in numbers.items() if place is not None}
    return known if len(known) == len(numbers) else {value: float(i + 1) for i, value in enumerate(values)}
