"""What scores cost, a mark an entry: distances or scores of predictions by time, and such scores by distance."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bdl.metrics import info
from bdl.reports import drawing
from bdl.reports.axes import named, panel_heading
from bdl.reports.compare import Cell
from bdl.reports.layout import heading, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

SECONDS = 60.0
"""In the unit of durations, which is minutes."""


class Price(NamedTuple):
    """Score of an entry on one dataset at one point of a sweep, and what it is held against; means over its trials."""

    entry: str
    score: float
    score_se: float
    """Zero where it is not known."""
    against: float
    """Seconds, or a distance."""
    against_se: float


def cost_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw scores against durations: a panel a dataset (and point of a sweep), a mark an entry, a figure a score.

    Scores are the distances, and of a benchmark with a baseline the first of predictions. Nothing without a duration.
    """
    times = [name for name in benchmark.metrics if info(name).kind == "time"]
    wanted = [name for name in benchmark.metrics if info(name).kind == "distance"]
    if benchmark.baseline:
        wanted += [name for name in benchmark.metrics if info(name).kind == "predictive"][:1]
    found = {name: prices(cells, name, times[0], SECONDS) for name in wanted if times}
    searched = any(entry and entry.search for entry in benchmark.entries.values())
    what = f"against the seconds of a fit{', its search included' if searched else ''}; mean ± SE"
    draw = partial(cost_figure, benchmark, across="time (seconds)", what=what)
    return {f"{name}-cost": partial(draw, name, own) for name, own in found.items() if own}


def distance_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw the first score of predictions against the first distance: whether who predicts well is near the truth."""
    kinds = ([name for name in benchmark.metrics if info(name).kind == kind] for kind in ("predictive", "distance"))
    scores, distances = kinds
    if not (scores and distances and (found := prices(cells, scores[0], distances[0]))):
        return {}
    what = f"against {measure(distances[0])}; mean ± SE"
    draw = partial(cost_figure, benchmark, scores[0], found, across=info(distances[0]).label, what=what)
    return {f"{scores[0]}-distance": draw}


def prices(cells: Sequence[Cell], metric: str, other: str, unit: float = 1.0) -> dict[str, list[Price]]:
    """List what entries have both numbers, the other one times `unit`, by the title of their panel."""
    means = {
        (cell.dataset, named(cell.point), cell.method, cell.metric): cell for cell in cells if cell.statistic == "mean"
    }
    found: dict[str, list[Price]] = {}
    for (dataset, point, entry, name), cell in means.items():
        cost = means.get((dataset, point, entry, other)) if name == metric else None
        if cost is not None and cell.ours is not None and cost.ours is not None and cost.ours > 0:
            price = Price(entry, cell.ours, cell.ours_se or 0.0, unit * cost.ours, unit * (cost.ours_se or 0.0))
            found.setdefault(panel_heading(dataset, point), []).append(price)
    return found


def cost_figure(
    benchmark: "Benchmark", metric: str, found: Mapping[str, Sequence[Price]], across: str, what: str
) -> "Figure":
    """Draw durations and distances on logarithmic axes, where bars are one standard error of the logarithm.

    That is the standard error of the mean over the mean. What is far from all others stands at the edge, a distance of
    zero at the lower one.
    """
    figure, panels = drawing.grid(len(found), (3.4, 3.1), columns=2 if len(found) == 4 else min(len(found), 3))
    styles = drawing.styles(benchmark.entries)
    for panel, (name, own) in zip(panels, found.items(), strict=True):
        drawing.dress(panel, name)
        _fill(panel, own, styles, metric)
        panel.set_xlabel(across)
    return drawing.finished(figure, panels, measure(metric), benchmark.title, heading(metric), what, order=styles)


def _fill(panel: "Axes", own: Sequence[Price], styles: drawing.Styles, metric: str) -> None:
    log = info(metric).kind == "distance"
    across = [end for price in own for end in _ends(price.against, price.against_se, log=True)]
    along = [end for price in own if price.score > 0 or not log for end in _ends(price.score, price.score_se, log)]
    times = {price.entry: [price.against] for price in own}
    scores = {price.entry: [price.score] for price in own}
    drawing.fit(panel, "x", times, across, factor=drawing.FAR, scale="log")
    scale: Literal["log", "linear"] = "log" if log else "linear"
    beyond = drawing.fit(panel, "y", scores, along, factor=drawing.far(metric), scale=scale)
    for price in own:
        x, y = price.against, price.score
        look: dict[str, Any] = {**drawing.BARS, **styles[price.entry], "linestyle": "none", "label": price.entry}
        if price.entry in beyond:
            edge = 0.02 if y < panel.get_ylim()[0] else 0.98
            panel.errorbar([x], [edge], transform=panel.get_xaxis_transform(), **look)
        else:
            (left, right), (lower, upper) = _ends(x, price.against_se, log=True), _ends(y, price.score_se, log)
            panel.errorbar([x], [y], [[y - lower], [upper - y]], [[x - left], [right - x]], **look)


def _ends(value: float, error: float, log: bool) -> tuple[float, float]:
    """Return both ends of a bar of one standard error, of the logarithm or of the value."""
    if not log:
        return drawing.ends(value, error)
    factor = math.exp(error / value)
    return value / factor, value * factor
