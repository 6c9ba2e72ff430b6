"""Scores of the most certain rows along the share that is kept: one figure a score, a panel a data set and order."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bdl.registry import Label
from bdl.reports.compare import Cell
from bdl.reports.curves import DOTS, HEIGHT, MIN_WIDTH, PRINTED, WIDTH
from bdl.reports.figures import save
from bdl.reports.inputs import Benchmark
from bdl.reports.layout import heading
from bdl.reports.swept import COLORS, DASHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Shares = Mapping[str, float]
"""Metric to the share of the rows that it keeps."""


def selective_figures(benchmark: Benchmark, cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Draw what benchmarks with several shares of a score have found.

    Parameters
    ----------
    benchmark
        Gives the order of data sets, entries and metrics.
    cells
        As `bdl.reports.compare` returns them.
    folder
        Where the files go; created if need be.

    Returns
    -------
    list of Path
        ``<benchmark>-selective-<score>.png`` (200 dpi) and ``.pdf``: means over the splits with their standard errors,
        a line an entry, and the printed values; the rows in the order of their entropy and of the disagreement. Nothing
        of scores with one share, and nothing of a sweep.
    """
    means = [cell for cell in cells if cell.statistic == "mean" and cell.ours is not None]
    scores = _orders(benchmark.metrics) if means and not benchmark.axes else {}
    drawings = {name: partial(_figure, benchmark, name, orders, means) for name, orders in scores.items()}
    return save({f"{benchmark.name}-selective-{name}": draw for name, draw in drawings.items()}, folder)


def _orders(metrics: Sequence[str]) -> dict[str, dict[str, Shares]]:
    """Return the scores that keep several shares: by name, what orders the rows, and the metrics of that order."""
    shared = [metric for metric in metrics if isinstance(metric, Label) and "kept" in metric.settings]
    found = dict[str, dict[str, Shares]]()
    for name, by in dict.fromkeys((own.name, own.settings["by"]) for own in shared if own.settings["kept"] < 1):
        # without a choice of rows the order is of no account
        alike = [own for own in shared if own.name == name and (own.settings["by"] == by or own.settings["kept"] == 1)]
        if len(alike) > 1:
            found.setdefault(name, {})[by] = {str(own): float(own.settings["kept"]) for own in alike}
    return found


def _figure(benchmark: Benchmark, name: str, orders: Mapping[str, Shares], cells: Sequence[Cell]) -> "Figure":
    from matplotlib.figure import Figure

    datasets = [dataset for dataset in benchmark.datasets if any(cell.dataset == dataset for cell in cells)]
    places = [*product(datasets, orders)]
    size = max(MIN_WIDTH, WIDTH * len(places)), HEIGHT + 2.2
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    axes = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
    for panel, (dataset, by) in zip(axes, places, strict=True):
        panel.set_title(f"{dataset}, by {by}", fontsize=10, loc="left")
        panel.set_xlabel("share of the test rows that is kept")
        panel.grid(axis="y")
        panel.tick_params(which="both", length=0)
        panel.spines[["left", "right", "top"]].set_visible(False)
        for entry, color, dash in zip(benchmark.entries, cycle(COLORS), DASHES, strict=False):
            own = [cell for cell in cells if (cell.dataset, cell.method) == (dataset, entry)]
            _line(panel, entry, {"color": color, "linestyle": dash}, orders[by], own)
    figure.suptitle(f"{benchmark.title}\n{heading(name)}", fontsize=11, x=0.01, ha="left")
    found = [pair for panel in axes for pair in zip(*panel.get_legend_handles_labels(), strict=True)]
    handles = {label: handle for handle, label in found}
    figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=4, frameon=False)
    return figure


def _line(panel: "Axes", entry: str, style: Mapping[str, Any], shares: Shares, cells: Sequence[Cell]) -> None:
    """Draw an entry's means with their standard errors, and what is printed of it."""
    own = sorted((cell for cell in cells if cell.metric in shares), key=lambda cell: shares[cell.metric])
    if not own:
        return
    x, y, errors = zip(*((shares[cell.metric], cell.ours, cell.ours_se or 0) for cell in own), strict=True)
    panel.errorbar(x, y, errors, label=entry, capsize=2, **DOTS, **style)
    if printed := [(place, cell.paper) for place, cell in zip(x, own, strict=True) if cell.paper is not None]:
        marks = PRINTED | {"color": style["color"], "linestyle": "none"}
        panel.plot(*zip(*printed, strict=True), label=f"paper, {entry}", **marks)
