"""Standings of entries: average ranks over data sets, and scores against their cost."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bdl.errors import InputError
from bdl.metrics import get_metric_info
from bdl.reports import drawing
from bdl.reports.comparison import TableEntry
from bdl.reports.intervals import LEVEL
from bdl.reports.layout import Section, metric_heading, metric_with_unit
from bdl.reports.method_styles import entry_styles
from bdl.reports.statistics import panel_heading, point_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


MIN_ENTRIES = 3
"""Fewest entries that Friedman's test takes."""


class Ranks(NamedTuple):
    """Ranks of entries by the means of one metric; 1 is the best."""

    metric: str
    n_datasets: int
    """Data sets on which all of the entries have a mean."""
    p: float
    """Of Friedman's test that all entries have the same average rank."""
    means: Mapping[str, float]
    """Entry to its average rank, the best first."""
    pairs: Mapping[str, Mapping[str, float]]
    """p of each pair by Nemenyi's test."""

    def distinguishable_from(self, entry: str) -> list[str]:
        """List the entries whose rank differs from that of `entry` by Nemenyi's test at 5 %."""
        return [name for name in self.means if name != entry and self.pairs[entry][name] < LEVEL]


def rank_entries(cells: Sequence[TableEntry], metric: str) -> Ranks | None:
    """Rank the entries that have most means, over the data sets on which all of these have one.

    Points of a sweep are of the same data, and no data sets of their own: an entry's means at them
    are averaged first, over the points that all of these entries have. None with fewer than three
    such entries or fewer than two data sets; `InputError` if scikit-posthocs is missing.

    Notes
    -----
    Friedman's test and Nemenyi's (Demsar, "Statistical comparisons of classifiers over multiple
    data sets", Journal of Machine Learning Research 7, 2006). Means are of the trials that
    succeeded.
    """
    from scipy.stats import friedmanchisquare

    table = _means_table(cells, metric)
    if table.shape[1] < MIN_ENTRIES or len(table) < 2:
        return None
    ranked = table.rank(axis=1, ascending=get_metric_info(metric).direction == "lower")
    # stable: entries of equal rank stay in the order of the benchmark
    means = ranked.mean().sort_values(kind="stable")
    p = float(friedmanchisquare(*ranked.to_numpy().T).pvalue)
    pairs = _scikit_posthocs().posthoc_nemenyi_friedman(ranked).to_dict()
    return Ranks(
        metric, len(table), p, {str(name): float(mean) for name, mean in means.items()}, pairs
    )


def rank_section(ranks: Ranks) -> Section:
    """Lay out ranks."""
    rows = [
        (name, f"{mean:.2f}", ", ".join(ranks.distinguishable_from(name)) or "-")
        for name, mean in ranks.means.items()
    ]
    title = f"Ranks over {ranks.n_datasets} data sets, {metric_heading(ranks.metric)}"
    title += f"; Friedman p = {ranks.p:.2g}, Nemenyi at 5 %"
    return Section.of(title, ["Method", "Average rank", "Differs from"], rows)


def rank_drawings(metric_ranks: Sequence[Ranks]) -> drawing.Drawings:
    """Draw the ranks as diagrams of critical differences, a figure a metric."""
    return {f"{ranks.metric}-ranks": partial(rank_figure, ranks) for ranks in metric_ranks}


def rank_figure(ranks: Ranks) -> "Figure":
    """Draw a diagram of critical differences."""
    import pandas as pd
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(7.5, 1.4 + 0.22 * len(ranks.means)), layout="constrained", facecolor="white"
    )
    means = dict(ranks.means)
    colours = {entry: look["color"] for entry, look in entry_styles(means).items()}
    _scikit_posthocs().critical_difference_diagram(
        means,
        pd.DataFrame(ranks.pairs),
        ax=figure.subplots(),
        alpha=LEVEL,
        color_palette=colours,
    )
    title = f"{metric_heading(ranks.metric)}: average rank over {ranks.n_datasets} data sets"
    drawing.write_title(figure, title, "lines join what Nemenyi's test does not tell apart")
    return figure


def _means_table(cells: Sequence[TableEntry], metric: str) -> "pd.DataFrame":
    """Lay out means over the points of a sweep, a row a data set and a column an entry.

    The table has the entries with most means, and no gaps.
    """
    import pandas as pd

    means: dict[str, dict[tuple[str, ...], float]] = {}
    for cell in cells:
        if (cell.metric, cell.statistic) == (metric, "mean") and cell.ours is not None:
            means.setdefault(cell.method, {})[cell.dataset, *cell.point.values()] = cell.ours
    max_points = max(map(len, means.values()), default=0)
    complete = {
        entry: by_point for entry, by_point in means.items() if len(by_point) == max_points
    }
    shared_points = list(next(iter(complete.values()), {}))
    for by_point in complete.values():
        shared_points = [point for point in shared_points if point in by_point]
    columns: dict[str, list[float]] = {}
    for entry, by_point in complete.items():
        columns[entry] = [by_point[point] for point in shared_points]
    datasets = [dataset for dataset, *_ in shared_points]
    return pd.DataFrame(columns).groupby(datasets, sort=False).mean()


def _scikit_posthocs() -> Any:
    try:
        import scikit_posthocs
    except ImportError:
        raise InputError("ranks need scikit-posthocs: pip install 'bdl-bench[ranks]'") from None
    return scikit_posthocs


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
    if not log:
        return drawing.bar_ends(value, error)
    factor = math.exp(error / value)
    return value / factor, value * factor
