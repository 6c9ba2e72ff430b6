"""Standings of entries: average ranks over data sets, and scores by what they cost."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bdl.errors import InputError
from bdl.metrics import info
from bdl.reports import Cell, drawing
from bdl.reports.layout import Section, heading, measure
from bdl.reports.statistics import named, panel_heading
from bdl.reports.verdicts import LEVEL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


FEWEST = 3
"""Entries that the test takes."""


class Ranks(NamedTuple):
    """Ranks of entries by the means of one metric; 1 is the best."""

    metric: str
    places: int
    """Data sets on which all of the entries have a mean."""
    p: float
    """Of Friedman's test that all entries are alike."""
    means: Mapping[str, float]
    """Entry to its average rank, the best first."""
    pairs: Mapping[str, Mapping[str, float]]
    """p of each pair by Nemenyi's test."""

    def apart(self, entry: str) -> list[str]:
        """List the other entries that Nemenyi's test tells from this one at 5 %."""
        return [name for name in self.means if name != entry and self.pairs[entry][name] < LEVEL]


def ranks(cells: Sequence[Cell], metric: str) -> Ranks | None:
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

    table = _table(cells, metric)
    if table.shape[1] < FEWEST or len(table) < 2:
        return None
    ranked = table.rank(axis=1, ascending=info(metric).direction == "lower")
    means = ranked.mean().sort_values(kind="stable")
    p = float(friedmanchisquare(*ranked.to_numpy().T).pvalue)
    pairs = _posthocs().posthoc_nemenyi_friedman(ranked).to_dict()
    return Ranks(
        metric, len(table), p, {str(name): float(mean) for name, mean in means.items()}, pairs
    )


def rank_section(found: Ranks) -> Section:
    """Lay out ranks."""
    rows = [
        (name, f"{mean:.2f}", ", ".join(found.apart(name)) or "-")
        for name, mean in found.means.items()
    ]
    title = f"Ranks over {found.places} data sets, {heading(found.metric)}; Friedman p = {found.p:.2g}, Nemenyi at 5 %"
    return Section.of(title, ["Method", "Average rank", "Told from"], rows)


def rank_drawings(found: Sequence[Ranks]) -> drawing.Drawings:
    """Draw the ranks as diagrams of critical differences, a figure a metric."""
    return {f"{each.metric}-ranks": partial(_figure, each) for each in found}


def _figure(found: Ranks) -> "Figure":
    import pandas as pd
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(7.5, 1.4 + 0.22 * len(found.means)), layout="constrained", facecolor="white"
    )
    _posthocs().critical_difference_diagram(
        dict(found.means), pd.DataFrame(found.pairs), ax=figure.subplots(), alpha=LEVEL
    )
    what = f"{heading(found.metric)}: average rank over {found.places} data sets"
    drawing.title(figure, what, "lines join what Nemenyi's test does not tell apart")
    return figure


def _table(cells: Sequence[Cell], metric: str) -> "pd.DataFrame":
    """Lay out means over the points of a sweep, a row a data set and a column an entry, without gaps."""
    import pandas as pd

    means: dict[str, dict[tuple[str, ...], float]] = {}
    for cell in cells:
        if (cell.metric, cell.statistic) == (metric, "mean") and cell.ours is not None:
            means.setdefault(cell.method, {})[cell.dataset, *cell.point.values()] = cell.ours
    most = max((len(own) for own in means.values()), default=0)
    kept = {entry: own for entry, own in means.items() if len(own) == most}
    places = [
        place
        for place in next(iter(kept.values()), {})
        if all(place in own for own in kept.values())
    ]
    table = pd.DataFrame({entry: [own[place] for place in places] for entry, own in kept.items()})
    return table.groupby([dataset for dataset, *_ in places], sort=False).mean()


def _posthocs() -> Any:
    try:
        import scikit_posthocs
    except ImportError:
        raise InputError("ranks need scikit-posthocs: pip install 'bdl-bench[ranks]'") from None
    return scikit_posthocs


SECONDS = 60.0
"""In the unit of durations, which is minutes."""


class Price(NamedTuple):
    """Score of an entry on one dataset at one point of a sweep, and what it is held against.

    Means over its trials.
    """

    entry: str
    score: float
    score_se: float
    """Zero where it is not known."""
    against: float
    """Seconds, or a distance."""
    against_se: float


def cost_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw scores against durations: a panel a dataset (and point of a sweep), a mark an entry, a figure a score.

    Scores are the distances, and of a benchmark with a baseline the first of predictions. Nothing
    without a duration.
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
    scores, distances = (
        [name for name in benchmark.metrics if info(name).kind == kind]
        for kind in ("predictive", "distance")
    )
    if not (scores and distances and (found := prices(cells, scores[0], distances[0]))):
        return {}
    what = f"against {measure(distances[0])}; mean ± SE"
    draw = partial(
        cost_figure, benchmark, scores[0], found, across=info(distances[0]).label, what=what
    )
    return {f"{scores[0]}-distance": draw}


def prices(
    cells: Sequence[Cell], metric: str, other: str, unit: float = 1.0
) -> dict[str, list[Price]]:
    """List what entries have both numbers, the other one times `unit`, by the title of their panel."""
    means = {
        (cell.dataset, named(cell.point), cell.method, cell.metric): cell
        for cell in cells
        if cell.statistic == "mean"
    }
    found: dict[str, list[Price]] = {}
    for (dataset, point, entry, name), cell in means.items():
        cost = means.get((dataset, point, entry, other)) if name == metric else None
        if cost is not None and cell.ours is not None and cost.ours is not None and cost.ours > 0:
            price = Price(
                entry,
                cell.ours,
                cell.ours_se or 0.0,
                unit * cost.ours,
                unit * (cost.ours_se or 0.0),
            )
            found.setdefault(panel_heading(dataset, point), []).append(price)
    return found


def cost_figure(
    benchmark: "Benchmark",
    metric: str,
    found: Mapping[str, Sequence[Price]],
    across: str,
    what: str,
) -> "Figure":
    """Draw durations and distances on logarithmic axes, where bars are one standard error of the logarithm.

    That is the standard error of the mean over the mean. What is far from all others stands at the
    edge, a distance of zero at the lower one.
    """
    figure, panels = drawing.grid(
        len(found), (3.4, 3.1), columns=2 if len(found) == 4 else min(len(found), 3)
    )
    styles = drawing.styles(benchmark.entries)
    for panel, (name, own) in zip(panels, found.items(), strict=True):
        drawing.dress(panel, name)
        _fill(panel, own, styles, metric)
        panel.set_xlabel(across)
    return drawing.finished(
        figure, panels, measure(metric), benchmark.title, heading(metric), what, order=styles
    )


def _fill(panel: "Axes", own: Sequence[Price], styles: drawing.Styles, metric: str) -> None:
    log = info(metric).kind == "distance"
    across = [end for price in own for end in _ends(price.against, price.against_se, log=True)]
    along = [
        end
        for price in own
        if price.score > 0 or not log
        for end in _ends(price.score, price.score_se, log)
    ]
    times = {price.entry: [price.against] for price in own}
    scores = {price.entry: [price.score] for price in own}
    drawing.fit(panel, "x", times, across, factor=drawing.FAR, scale="log")
    scale: Literal["log", "linear"] = "log" if log else "linear"
    beyond = drawing.fit(panel, "y", scores, along, factor=drawing.far(metric), scale=scale)
    for price in own:
        x, y = price.against, price.score
        look: dict[str, Any] = {
            **drawing.BARS,
            **styles[price.entry],
            "linestyle": "none",
            "label": price.entry,
        }
        if price.entry in beyond:
            edge = 0.02 if y < panel.get_ylim()[0] else 0.98
            panel.errorbar([x], [edge], transform=panel.get_xaxis_transform(), **look)
        else:
            (left, right), (lower, upper) = (
                _ends(x, price.against_se, log=True),
                _ends(y, price.score_se, log),
            )
            panel.errorbar([x], [y], [[y - lower], [upper - y]], [[x - left], [right - x]], **look)


def _ends(value: float, error: float, log: bool) -> tuple[float, float]:
    if not log:
        return drawing.ends(value, error)
    factor = math.exp(error / value)
    return value / factor, value * factor
