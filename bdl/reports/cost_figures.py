"""Figures of scores against their cost: seconds, or the distance from the truth."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bdl.metrics import get_metric_info
from bdl.reports import drawing
from bdl.reports.comparison import TableEntry
from bdl.reports.layout import metric_heading, metric_with_unit
from bdl.reports.method_styles import entry_styles
from bdl.reports.statistics import panel_heading, point_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


SECONDS_PER_MINUTE = 60.0
"""Durations are in minutes."""


class ScoreCost(NamedTuple):
    """Score of an entry on one dataset at one point of a sweep, and its cost.

    Both are means over its trials.
    """

    entry: str
    score: float
    score_se: float
    """Zero where it is not known."""
    cost: float
    """Seconds, or a distance."""
    cost_se: float


def cost_drawings(benchmark: "Benchmark", cells: Sequence[TableEntry]) -> drawing.Drawings:
    """Draw scores against durations: a panel a dataset (and point of a sweep), a mark an entry.

    There is a figure for each distance, and for a benchmark with a baseline one for the first
    score of predictions; none without a duration.
    """
    times = [name for name in benchmark.metrics if get_metric_info(name).kind == "time"]
    if not times:
        return {}
    metrics = [name for name in benchmark.metrics if get_metric_info(name).kind == "distance"]
    if benchmark.baseline:
        metrics += [
            name for name in benchmark.metrics if get_metric_info(name).kind == "predictive"
        ][:1]
    searched = any(entry and entry.search for entry in benchmark.entries.values())
    search = ", its search included" if searched else ""
    subtitle = f"against the seconds of a fit{search}; mean ± SE"
    drawings = {}
    for metric in metrics:
        costs = score_costs(cells, metric, times[0], SECONDS_PER_MINUTE)
        if costs:
            drawings[f"{metric}-cost"] = partial(
                cost_figure, benchmark, metric, costs, "time (seconds)", subtitle
            )
    return drawings


def distance_drawings(benchmark: "Benchmark", cells: Sequence[TableEntry]) -> drawing.Drawings:
    """Draw the first score of predictions against the first distance.

    The figure shows whether entries that predict well are near the true posterior.
    """
    scores, distances = (
        [name for name in benchmark.metrics if get_metric_info(name).kind == kind]
        for kind in ("predictive", "distance")
    )
    if not (scores and distances):
        return {}
    score, distance = scores[0], distances[0]
    costs = score_costs(cells, score, distance)
    if not costs:
        return {}
    subtitle = f"against {metric_with_unit(distance)}; mean ± SE"
    label = get_metric_info(distance).label
    return {f"{score}-distance": partial(cost_figure, benchmark, score, costs, label, subtitle)}


def score_costs(
    cells: Sequence[TableEntry], metric: str, cost_metric: str, unit: float = 1.0
) -> dict[str, list[ScoreCost]]:
    """List the score and the cost, times `unit`, of the entries that have both.

    The keys are the titles of panels.
    """
    means = {
        (cell.dataset, point_text(cell.point), cell.method, cell.metric): cell
        for cell in cells
        if cell.statistic == "mean"
    }
    costs: dict[str, list[ScoreCost]] = {}
    for (dataset, point, entry, name), score in means.items():
        cost = means.get((dataset, point, entry, cost_metric))
        if name != metric or cost is None or score.ours is None or cost.ours is None:
            continue
        if cost.ours > 0:  # costs are on a logarithmic axis
            score_cost = ScoreCost(
                entry,
                score.ours,
                score.ours_se or 0.0,
                unit * cost.ours,
                unit * (cost.ours_se or 0.0),
            )
            costs.setdefault(panel_heading(dataset, point), []).append(score_cost)
    return costs


def cost_figure(
    benchmark: "Benchmark",
    metric: str,
    costs: Mapping[str, Sequence[ScoreCost]],
    cost_label: str,
    subtitle: str,
) -> "Figure":
    """Draw scores against costs, a panel a dataset (and point of a sweep), a mark an entry.

    Durations and distances are on logarithmic axes, where bars are one standard error of the
    logarithm: the standard error of the mean over the mean. An outlier is drawn at the edge, and a
    distance of zero at the lower one.
    """
    figure, panels = drawing.lay_out_panels(
        len(costs), (3.4, 3.1), columns=2 if len(costs) == 4 else min(len(costs), 3)
    )
    styles = entry_styles(benchmark.entries)
    for panel, (name, panel_costs) in zip(panels, costs.items(), strict=True):
        drawing.style_panel(panel, name)
        _draw_costs(panel, panel_costs, styles, metric)
        panel.set_xlabel(cost_label)
    return drawing.finish_figure(
        figure,
        panels,
        metric_with_unit(metric),
        benchmark.title,
        metric_heading(metric),
        subtitle,
        order=styles,
    )


def _draw_costs(
    panel: "Axes", costs: Sequence[ScoreCost], styles: drawing.Styles, metric: str
) -> None:
    log = get_metric_info(metric).kind == "distance"
    cost_bars: list[float] = []
    score_bars: list[float] = []
    for score_cost in costs:
        cost_bars += _bar_ends(score_cost.cost, score_cost.cost_se, log=True)
        if score_cost.score > 0 or not log:
            score_bars += _bar_ends(score_cost.score, score_cost.score_se, log)
    by_entry = {score_cost.entry: [score_cost.cost] for score_cost in costs}
    drawing.fit_axis(panel, "x", by_entry, cost_bars, factor=drawing.OUTLIER_FACTOR, scale="log")
    scores = {score_cost.entry: [score_cost.score] for score_cost in costs}
    factor = drawing.outlier_factor(metric)
    scale: Literal["log", "linear"] = "log" if log else "linear"
    outliers = drawing.fit_axis(panel, "y", scores, score_bars, factor=factor, scale=scale)
    for score_cost in costs:
        x, y = score_cost.cost, score_cost.score
        look: dict[str, Any] = {**drawing.BARS, **styles[score_cost.entry]}
        look |= {"linestyle": "none", "label": score_cost.entry}
        if score_cost.entry in outliers:
            edge = 0.02 if y < panel.get_ylim()[0] else 0.98
            panel.errorbar([x], [edge], transform=panel.get_xaxis_transform(), **look)
        else:
            left, right = _bar_ends(x, score_cost.cost_se, log=True)
            lower, upper = _bar_ends(y, score_cost.score_se, log)
            panel.errorbar([x], [y], [[y - lower], [upper - y]], [[x - left], [right - x]], **look)


def _bar_ends(value: float, error: float, log: bool) -> tuple[float, float]:
    """Return both ends of an error bar; on a logarithmic axis, of the error of the logarithm."""
    if not log or value == 0:  # a logarithmic axis has no zero
        return drawing.bar_ends(value, error)
    factor = math.exp(error / value)
    return value / factor, value * factor
