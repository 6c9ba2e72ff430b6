"""Scores of the most certain rows along the share that is kept: one figure a score, a panel a data set and order."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from bdl.registry import Label
from bdl.reports import drawing
from bdl.reports.compare import Cell
from bdl.reports.layout import heading, measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

Shares = Mapping[str, float]
"""Metric to the share of the rows that it keeps."""


def selective_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw scores that keep several shares: nothing of scores with one share, and nothing of a sweep."""
    means = [cell for cell in cells if cell.statistic == "mean" and cell.ours is not None]
    scores = orders(benchmark.metrics) if means and not benchmark.axes else {}
    return {f"selective-{name}": partial(selective_figure, benchmark, name, by, means) for name, by in scores.items()}


def orders(metrics: Sequence[str]) -> dict[str, dict[str, Shares]]:
    """Return the scores that keep several shares: by name, what orders the rows, and the metrics of that order."""
    shared = [metric for metric in metrics if isinstance(metric, Label) and "kept" in metric.settings]
    found = dict[str, dict[str, Shares]]()
    for name, by in dict.fromkeys((own.name, own.settings["by"]) for own in shared if own.settings["kept"] < 1):
        # without a choice of rows the order is of no account
        alike = [own for own in shared if own.name == name and (own.settings["by"] == by or own.settings["kept"] == 1)]
        if len(alike) > 1:
            found.setdefault(name, {})[by] = {str(own): float(own.settings["kept"]) for own in alike}
    return found


def selective_figure(
    benchmark: "Benchmark", name: str, by_order: Mapping[str, Shares], cells: Sequence[Cell]
) -> "Figure":
    """Draw means over the splits with their standard errors, a line an entry, and the printed values."""
    datasets = [dataset for dataset in benchmark.datasets if any(cell.dataset == dataset for cell in cells)]
    places = [*product(datasets, by_order)]
    figure, panels = drawing.grid(len(places), (2.8, 3.0), columns=len(places))
    styles = drawing.styles(benchmark.entries)
    for panel, (dataset, by) in zip(panels, places, strict=True):
        drawing.dress(panel, f"{dataset}, by {by}", "y", bold=False)
        panel.set_xlabel("share of the test rows that is kept")
        shares = by_order[by]
        own = [cell for cell in cells if cell.dataset == dataset and cell.metric in shares]
        own.sort(key=lambda cell: shares[cell.metric])
        values = {entry: draw_line(panel, entry, styles[entry], shares, own) for entry in benchmark.entries}
        drawing.fit(panel, "y", values, scale="linear")
    drawing.label_left(panels, measure(name))
    drawing.title(figure, benchmark.title, heading(name))
    drawing.legend(figure, order=styles)
    return figure


def draw_line(panel: "Axes", entry: str, look: Mapping[str, Any], shares: Shares, cells: Sequence[Cell]) -> list[float]:
    """Draw an entry's means along numbers by metric, with standard errors, and what is printed; return its values."""
    known = [
        (shares[cell.metric], cell.ours, cell.ours_se or 0.0, cell.paper) for cell in cells if cell.method == entry
    ]
    own = [(x, y, error, paper) for x, y, error, paper in known if y is not None]
    if own:
        x, y, errors, _ = zip(*own, strict=True)
        panel.errorbar(x, y, errors, label=entry, capsize=2, **{**look, **drawing.DOTS})
    printed = [(x, paper) for x, _, _, paper in own if paper is not None]
    if printed:
        marks = drawing.PRINTED | {"color": look["color"]}
        panel.plot(*zip(*printed, strict=True), label=f"paper, {entry}", **marks)
    return [y + sign * error for _, y, error, _ in own for sign in (-1, 1)] + [paper for _, paper in printed]
