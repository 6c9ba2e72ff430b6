"""What closeness to the truth costs: the distance of each entry against the time of its fit."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.metrics import info
from bdl.reports.axes import named
from bdl.reports.compare import Cell
from bdl.reports.figures import QUIET, save
from bdl.reports.inputs import Benchmark
from bdl.reports.layout import heading
from bdl.reports.scales import label_logs
from bdl.reports.swept import COLORS, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SECONDS = 60.0
"""In the unit of durations, which is minutes."""
GAP = 1e4
"""Distances that are more than this factor below the next one do not stretch the axis: their marks are at the edge."""
WIDTH, HEIGHT, MOST = 3.6, 3.3, 3
"""Of a panel, in inches; panels in a line."""
SIZE = 7.5
"""Of the letters of labels, in points."""
LINE, LETTER = 1.25 * SIZE / (72 * 0.75 * HEIGHT), 0.62 * SIZE / (72 * 0.85 * WIDTH)
"""Height and width of a letter, as shares of a panel, whose axes take part of it."""
BESIDE = 0.025
"""From a mark to its label, as a share of the panel."""
LEADER: dict[str, Any] = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
BARS: dict[str, Any] = {"linestyle": "none", "markersize": 5.5, "elinewidth": 1.2, "capsize": 2.5}


Styles = Mapping[str, Mapping[str, Any]]


class Price(NamedTuple):
    """Distance and duration of an entry on one dataset at one point of a sweep, means over its successful trials."""

    entry: str
    distance: float
    distance_se: float
    """Zero where it is not known."""
    seconds: float
    seconds_se: float


def cost_figures(benchmark: Benchmark, cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Draw distance against duration: a panel a dataset (and point of a sweep), a mark an entry, a figure a distance.

    Parameters
    ----------
    benchmark
        Gives the names and the order of datasets, entries and metrics.
    cells
        As `bdl.reports.compare` returns them.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-<metric>-cost.png`` (200 dpi) and ``.pdf`` for every distance, if the benchmark has distances and
        a duration. Both axes are logarithmic, and bars are one standard error of the logarithm (that of the mean over
        the mean). Distances far below all others, or of zero, stand at the lower edge.
    """
    times = [name for name in benchmark.metrics if info(name).kind == "time"]
    distances = [name for name in benchmark.metrics if times and info(name).kind == "distance"]
    found = {name: _prices(cells, name, times[0]) for name in distances}
    return save(
        {f"{benchmark.name}-{name}-cost": partial(_figure, benchmark, name, own) for name, own in found.items() if own},
        folder,
    )


def _prices(cells: Sequence[Cell], metric: str, time: str) -> dict[str, list[Price]]:
    """List what entries have both numbers, by the title of their panel."""
    means = {
        (cell.dataset, named(cell.point), cell.method, cell.metric): cell for cell in cells if cell.statistic == "mean"
    }
    found: dict[str, list[Price]] = {}
    for (dataset, point, entry, name), cell in means.items():
        cost = means.get((dataset, point, entry, time)) if name == metric else None
        if cost is not None and cell.ours is not None and cost.ours is not None and cost.ours > 0:
            price = Price(entry, cell.ours, cell.ours_se or 0.0, SECONDS * cost.ours, SECONDS * (cost.ours_se or 0.0))
            found.setdefault("  ".join(part for part in (dataset, point) if part), []).append(price)
    return found


def _figure(benchmark: Benchmark, metric: str, prices: dict[str, list[Price]]) -> "Figure":
    from matplotlib.figure import Figure

    columns = min(len(prices), MOST) if len(prices) != 4 else 2
    lines = math.ceil(len(prices) / columns)
    size = max(WIDTH * columns, 5.5), HEIGHT * lines + 0.8
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    styles = {
        name: {"color": color, "marker": marker}
        for name, color, marker in zip(benchmark.entries, cycle(COLORS), cycle(MARKERS), strict=False)
    }
    for panel in panels[len(prices) :]:
        panel.remove()
    for panel, (title, own) in zip(panels, prices.items(), strict=False):
        panel.set_title(title, fontsize=10, fontweight="bold", loc="left")
        _fill(panel, own, styles)
        panel.set_xlabel("seconds", color=QUIET)
    title = f"{benchmark.title}\n{heading(metric)}\nagainst the seconds of a fit, mean ± SE"
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return figure


def _fill(panel: "Axes", prices: Sequence[Price], styles: Styles) -> None:
    floor = _floor([price.distance for price in prices])
    panel.set(xscale="log", yscale="log")
    spans = (
        _limits(panel, "x", [(price.seconds, price.seconds_se) for price in prices]),
        _limits(panel, "y", [(price.distance, price.distance_se) for price in prices if price.distance >= floor]),
    )
    edge = spans[1][0] * (spans[1][1] / spans[1][0]) ** BESIDE
    places = []
    for price in prices:
        x, y = price.seconds, max(price.distance, edge)
        look = styles[price.entry]
        if price.distance < floor:
            panel.plot(x, y, **{**look, "marker": "v", "markersize": 6})
        else:
            panel.errorbar([x], [y], xerr=_bar(x, price.seconds_se), yerr=_bar(y, price.distance_se), **BARS, **look)
        places.append((_share(x, spans[0]), _share(y, spans[1])))
    _label(panel, prices, places, floor, styles)
    panel.grid()
    panel.tick_params(which="both", length=0)
    panel.spines[:].set_visible(False)


def _floor(distances: Sequence[float]) -> float:
    """Return the least distance that has its own place on the axis; those below are zero or far below
    the others, which are no fewer."""
    ordered = sorted(distance for distance in distances if distance > 0)
    below = [i for i in range(1, len(ordered) // 2 + 1) if ordered[i] > GAP * ordered[i - 1]]
    return ordered[max(below, default=0)] if ordered else 1.0


def _bar(value: float, error: float) -> list[list[float]]:
    """Return both lengths of a bar of one standard error of the logarithm."""
    factor = math.exp(error / value)
    return [[value - value / factor], [value * factor - value]]


def _limits(panel: "Axes", axis: str, values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Set the limits of a logarithmic axis around all bars, with package for labels to the right."""
    low = min((value * math.exp(-error / value) for value, error in values), default=1.0)
    high = max((value * math.exp(error / value) for value, error in values), default=1.0)
    way = max(high / low, 10.0)
    margins = (0.08, 0.45) if axis == "x" else (0.1, 0.1)
    span = low * way ** -margins[0], high * way ** margins[1]
    panel.set(**{f"{axis}lim": span})
    label_logs(getattr(panel, f"{axis}axis"), span[1] / span[0])
    return span


def _share(value: float, span: tuple[float, float]) -> float:
    """Return the place on a logarithmic axis as a share of the panel."""
    return math.log(value / span[0]) / math.log(span[1] / span[0])


def _label(
    panel: "Axes", prices: Sequence[Price], places: Sequence[tuple[float, float]], floor: float, styles: Styles
) -> None:
    """Write the names of the entries beside their marks; those that would overlap, in a column with lines to them."""
    texts = [price.entry + (f" {price.distance:.0g}" if price.distance < floor else "") for price in prices]
    column = max(x for x, _ in places) + 5 * BESIDE
    ends = [x + BESIDE + LETTER * len(text) for (x, _), text in zip(places, texts, strict=True)]
    crowded = [
        i
        for i, (x, y) in enumerate(places)
        if any(i != j and abs(v - y) < LINE and u < ends[i] and x < ends[j] for j, (u, v) in enumerate(places))
    ]
    if crowded:
        crowded = [i for i in range(len(places)) if i in crowded or ends[i] > column]
    crowded.sort(key=lambda i: places[i][1])
    heights = dict(zip(crowded, _spread([places[i][1] for i in crowded]), strict=True))
    for i, price in enumerate(prices):
        spot = (column, heights[i]) if i in heights else (places[i][0] + BESIDE, places[i][1])
        panel.annotate(
            texts[i],
            places[i],
            spot,
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=SIZE,
            color=styles[price.entry]["color"],
            arrowprops=LEADER if i in heights else None,
        )


def _spread(heights: Sequence[float]) -> list[float]:
    """Move ascending heights apart, as little as possible, so that lines of text fit."""
    blocks: list[list[float]] = []
    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and _top(blocks[-2]) + LINE > _top(blocks[-1]) - LINE * (len(blocks[-1]) - 1):
            last = blocks.pop()
            blocks[-1] += last
    spread = [_top(block) - LINE * (len(block) - 1 - i) for block in blocks for i in range(len(block))]
    return [height - max(0.0, spread[-1] - 1) for height in spread]


def _top(block: Sequence[float]) -> float:
    """Return the height of the last line of a block, which is centred on its marks."""
    return sum(block) / len(block) + LINE * (len(block) - 1) / 2
