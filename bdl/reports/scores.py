"""Scores of entries: our means against the printed ones, and differences from the baseline; a row an entry."""

from collections.abc import Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import TYPE_CHECKING, Any

from bdl.metrics import info
from bdl.reports import drawing
from bdl.reports.axes import grouped
from bdl.reports.compare import Cell
from bdl.reports.layout import heading, measure, on_training_rows, repeats
from bdl.reports.paired import PairedDifference
from bdl.reports.swept import TOLD_SEEN, Mark, swept_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

PANEL_WIDTH, ROW_HEIGHT = 2.6, 0.46
OFFSET = 0.14
"""Of ours and the printed one from the line of their row."""
WIDE = 9.0
"""Inches from which on the legend of differences is one line."""
LOOKS: dict[str, dict[str, Any]] = {
    "better": drawing.OURS,
    "worse": drawing.PAPER | {"markerfacecolor": drawing.COLORS[1]},
    "undecided": {**drawing.PAPER, "color": "#8c8c8c", "marker": "o"},
}
"""How a verdict is drawn; told apart by shape as well as by colour."""

Row = tuple[float, float, float | None, Mapping[str, Any]]
"""Height, value, error to either side, and look of a mark."""


def score_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw our mean against the paper's, with standard errors: a panel a dataset, a figure a metric.

    The means of a sweep are drawn along its first axis instead.
    """
    found = {}
    for name in benchmark.metrics:
        own = [cell for cell in cells if cell.metric == name and cell.statistic == "mean"]
        other = on_training_rows(name, benchmark.metrics)
        seen = [cell for cell in cells if cell.metric == other and cell.statistic == "mean"]
        lines = benchmark.title, f"{heading(name)}, mean ± SE" + (f"; {TOLD_SEEN}" if seen else "")
        along = partial(swept_figure, benchmark, name, lines, _marks(own), seen=_marks(seen))
        found[str(name)] = along if benchmark.axes else partial(scores_figure, benchmark, name, own)
    return found


def _marks(cells: Sequence[Cell]) -> list[Mark]:
    return [Mark(cell.dataset, cell.method, cell.point, cell.ours, cell.ours_se) for cell in cells]


def paired_drawings(benchmark: "Benchmark", differences: Sequence[PairedDifference]) -> drawing.Drawings:
    """Draw the paired differences: a panel a dataset, a figure a predictive metric.

    Those of a sweep are drawn along its first axis instead. Datasets without a pair are left out, and so are metrics.
    """
    found = {}
    for metric, own in grouped(differences, lambda each: each.metric).items():
        there = {each.dataset for each in own if each.n}
        own = [each for each in own if each.dataset in there]
        if own:
            marks = [Mark(each.dataset, each.entry, each.point, each.mean, each.half) for each in own]
            what = f"mean difference from {benchmark.baseline} over {repeats(benchmark)}, 95 % intervals"
            lines = benchmark.title, heading(metric), what
            along = partial(swept_figure, benchmark, metric, lines, marks, around_zero=True)
            found[f"{metric}-paired"] = along if benchmark.axes else partial(paired_figure, benchmark, metric, own)
    return found


def scores_figure(benchmark: "Benchmark", metric: str, cells: Sequence[Cell]) -> "Figure":
    """Draw means of ours and of the paper, with standard errors."""
    own = {str(name): [entry for dataset, entry in benchmark.pairs if dataset == name] for name in benchmark.datasets}
    figure, panels = entry_rows(own, measure(metric))
    for dataset, panel in panels.items():
        marks: list[Row] = []
        for cell in (cell for cell in cells if cell.dataset == dataset):
            row = own[dataset].index(cell.method)
            offset = 0.0 if cell.paper is None else OFFSET
            if cell.ours is None:
                centred: dict[str, Any] = {"transform": panel.get_yaxis_transform(), "ha": "center", "va": "center"}
                panel.text(0.5, row - offset, cell.verdict, color=drawing.QUIET, **centred)
            else:
                marks.append((row - offset, cell.ours, cell.ours_se, drawing.OURS))
            if cell.paper is not None:
                marks.append((row + offset, cell.paper, cell.paper_se, drawing.PAPER))
        _mark(panel, marks, drawing.far(metric))
    drawing.title(figure, benchmark.title, heading(metric))
    handles = [drawing.handle("ours, mean ± SE", linestyle="none", **drawing.OURS)]
    if any(cell.paper is not None for cell in cells):
        handles.append(drawing.handle("paper, mean ± SE as printed", linestyle="none", **drawing.PAPER))
    drawing.legend(figure, handles, columns=2)
    return figure


def paired_figure(benchmark: "Benchmark", metric: str, differences: Sequence[PairedDifference]) -> "Figure":
    """Draw mean differences from the baseline, with 95 % intervals and the number of pairs where splits are missing."""
    own = grouped(differences, lambda each: each.dataset)
    rows = {name: [each.entry for each in drawn] for name, drawn in own.items()}
    figure, panels = entry_rows(rows, f"difference in {measure(metric)}")
    for name, panel in panels.items():
        panel.axvline(0, color=drawing.QUIET, linestyle=":", linewidth=1.2, zorder=1)
        known = [(row, each, each.mean) for row, each in enumerate(own[name]) if each.mean is not None]
        _mark(
            panel,
            [(row, mean, each.half, LOOKS[each.verdict]) for row, each, mean in known],
            drawing.far(metric),
            zero=True,
        )
        for row, each in enumerate(own[name]):
            if each.n < benchmark.splits:
                across = panel.get_yaxis_transform()
                panel.text(1.01, row, f"n = {each.n}", transform=across, va="center", color=drawing.QUIET, fontsize=7)
    what = f"mean difference from {benchmark.baseline} over {repeats(benchmark)}"
    drawing.title(figure, benchmark.title, heading(metric), what)
    left, right = ("better", "worse") if info(metric).direction == "lower" else ("worse", "better")
    labels = {
        left: f"left: {left} than {benchmark.baseline}",
        "undecided": "undecided: 95 % interval holds 0, a fit failed, or n < 3",
        right: f"right: {right} than {benchmark.baseline}",
    }
    handles = [drawing.handle(label, linestyle="none", **LOOKS[verdict]) for verdict, label in labels.items()]
    columns = 3 if figure.get_figwidth() > WIDE else 2
    drawing.legend(figure, handles, columns=columns, handlelength=1.2, columnspacing=1.6)
    return figure


def entry_rows(rows: Mapping[str, Sequence[str]], label: str) -> "tuple[Figure, dict[str, Axes]]":
    """Lay out a panel a dataset with a row for each of its entries."""
    from matplotlib.ticker import MaxNLocator

    alike = len({tuple(entries) for entries in rows.values()}) == 1  # then only the first panel names them
    height = ROW_HEIGHT * max(map(len, rows.values())) + 0.75
    figure, panels = drawing.grid(len(rows), (PANEL_WIDTH, height), sharey=alike)
    for panel, (dataset, entries) in zip(panels, rows.items(), strict=True):
        drawing.dress(panel, dataset, "x")
        panel.set_yticks(range(len(entries)), entries)
        panel.set_ylim(len(entries) - 0.5, -0.5)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=4, min_n_ticks=3))
    for panel in panels[-min(len(rows), drawing.MOST) :]:  # those without another below
        panel.set_xlabel(fill(label, 26), loc="left")  # to the right is the power of ten of the ticks
    return figure, dict(zip(rows, panels, strict=True))


def _mark(panel: "Axes", marks: Sequence[Row], factor: float, *, zero: bool = False) -> None:
    """Mark values with their errors; those beyond the axis are written at its end."""
    bars = [value + sign * (error or 0.0) for _, value, error, _ in marks for sign in (-1, 1)] + [0.0] * zero
    values = {number: [value] for number, (_, value, _, _) in enumerate(marks)}
    beyond = drawing.fit(panel, "x", values, bars, factor=factor, scale="linear" if zero else None, say=False)
    low, _ = panel.get_xlim()
    across = panel.get_yaxis_transform()
    bar: dict[str, Any] = {"linestyle": "none", "elinewidth": 1.4, "capsize": 2.5, "capthick": 1.4}
    for number, (row, value, error, look) in enumerate(marks):
        if number in beyond:
            left = value < low
            text = f"← {drawing.brief(value)}" if left else f"{drawing.brief(value)} →"
            side: dict[str, Any] = {
                "ha": "left" if left else "right",
                "va": "center",
                "fontsize": 8,
                "color": look["color"],
            }
            panel.text(0.01 if left else 0.99, row, text, transform=across, **side)
        else:
            panel.errorbar([value], [row], xerr=error, **bar, **look)
