"""Scores along the axis of a sweep, one figure a metric."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any

from bdl.metrics import info
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
MARKERS = "osD^v"
BARS: dict[str, Any] = {"linewidth": 1.4, "elinewidth": 1.2, "markersize": 4.5, "capsize": 2.5}
WIDTH, HEIGHT, MIN_WIDTH, MOST = 3.0, 2.4, 6.0, 4
"""Of a panel, the least width of a figure, in inches; panels in a line."""


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
        a line of means with standard errors, with a gap where no trial succeeded.
    """
    from matplotlib.figure import Figure

    axis, *_ = benchmark.axes
    by_panel: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        others = {path: text for path, text in cell.point.items() if path != axis}
        by_panel.setdefault((cell.dataset, named(others)), []).append(cell)
    columns = min(len(by_panel), MOST)
    lines = math.ceil(len(by_panel) / columns)
    size = max(WIDTH * columns + 0.4, MIN_WIDTH), HEIGHT * lines + 1.1
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    looks = {
        name: {"color": color, "marker": marker}
        for name, color, marker in zip(benchmark.entries, cycle(COLORS), cycle(MARKERS), strict=False)
    }
    for panel, (title, own) in zip(panels, by_panel.items(), strict=False):
        panel.set_title("  ".join(part for part in title if part), fontsize=10, fontweight="bold", loc="left")
        _fill(panel, own, axis, looks)
        _dress(panel, own, axis)
    for panel in panels[len(by_panel) :]:
        panel.remove()
    figure.suptitle(f"{benchmark.title}\n{heading(info(metric))}, mean ± SE", fontsize=11, x=0.01, ha="left")
    _legend(figure, looks)
    return figure


def _fill(panel: "Axes", cells: Sequence[Cell], axis: str, looks: Mapping[str, Mapping[str, Any]]) -> None:
    places = _places(cells, axis)
    for entry in dict.fromkeys(cell.method for cell in cells):
        own = sorted((cell for cell in cells if cell.method == entry), key=lambda cell: places[cell.point[axis]])
        x = [places[cell.point[axis]] for cell in own]
        y, errors = (
            [math.nan if v is None else v for v in (getattr(c, of) for c in own)] for of in ("ours", "ours_se")
        )
        panel.errorbar(x, y, yerr=errors, label=entry, **BARS, **looks[entry])


def _dress(panel: "Axes", cells: Sequence[Cell], axis: str) -> None:
    """Scale and label both axes; every value of the sweep has its tick."""
    places = _places(cells, axis)
    if _geometric(sorted(places.values())):
        panel.set_xscale("log")
    panel.set_xticks(list(places.values()), [short(text) for text in places])
    panel.minorticks_off()
    panel.margins(x=0.08)
    panel.set_xlabel(axis)
    means = [cell.ours for cell in cells if cell.ours is not None]
    if scale(means) == "log":
        panel.set_yscale("log")
        label_logs(panel.yaxis, span(means))
    panel.grid()
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_visible(False)


def _places(cells: Sequence[Cell], axis: str) -> dict[str, float]:
    """Put values where their numbers are, or side by side in the order of the sweep if one of them is no number."""
    texts = list(dict.fromkeys(cell.point[axis] for cell in cells))
    known = {text: place for text in texts if (place := number(text)) is not None}
    return known if len(known) == len(texts) else {text: float(i) for i, text in enumerate(texts)}


def _geometric(places: Sequence[float]) -> bool:
    """Tell whether a logarithmic axis sets the two closest of ascending places further apart than a linear one."""
    if len(places) < 3 or places[0] <= 0:
        return False
    logs = [math.log(place) for place in places]
    closest, closest_logs = (
        min(b - a for a, b in pairwise(found)) / (found[-1] - found[0]) for found in (places, logs)
    )
    return closest_logs > closest


def _legend(figure: "Figure", looks: Mapping[str, Mapping[str, Any]]) -> None:
    """Name the entries of all panels, in table order."""
    drawn: dict[str, Any] = {}
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        drawn |= dict(zip(labels, handles, strict=True))
    names = [name for name in looks if name in drawn]
    figure.legend([drawn[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False)
