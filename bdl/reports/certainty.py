"""Figures of calibration, of errors of the most certain rows, and of refusals and referrals."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.registry import Label
from bdl.reports import drawing
from bdl.reports.comparison import TableEntry
from bdl.reports.layout import metric_heading, metric_with_unit
from bdl.reports.method_styles import entry_styles
from bdl.reports.statistics import group_by
from bdl.types import Array

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


_DIAGONAL: dict[str, Any] = {
    "color": drawing.QUIET,
    "linestyle": (0, (3, 1.5)),
    "linewidth": 1,
    "label": "calibrated",
}

Shares = Mapping[str, float]
"""Metric to the share of the rows that it keeps."""

BINS = 10
"""Bins of confidence, from 0 to 1."""
SENSITIVITIES = np.linspace(0.8, 1, 41)
SHARES = np.linspace(0.1, 1, 91)
"""Shares of the rows that are kept; of fewer rows, a single error dominates the curve."""
SHADE = 0.12
"""Opacity of a band; up to nine lie over one another."""


def coverage(below: Array, levels: Array) -> Array:
    """Compute the share of targets in the central interval of each probability of `levels`, (m,).

    `below` is the predictive probability F(y) below each target, (n,): the interval of
    probability p has the targets with |2 F(y) - 1| <= p.
    """
    share: Array = (np.abs(2 * below - 1)[:, None] <= levels).mean(0)
    return share


def reliability(
    confidence: Array, hits: NDArray[np.bool_], bins: int
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Compare confidence with accuracy in bins of equal width, each without its lower bound.

    The bins are those of Guo et al. (2017). `confidence` is the probability of the most probable
    class of each row, (n,), and `hits` whether it was the right one. Returned are mean confidence,
    accuracy and number of rows of each bin that has any.
    """
    bin_index = np.clip(np.ceil(confidence * bins).astype(int), 1, bins) - 1
    rows = np.bincount(bin_index, minlength=bins)
    occupied = rows > 0
    means = [
        np.bincount(bin_index, weights, bins)[occupied] / rows[occupied]
        for weights in (confidence, hits.astype(float))
    ]
    return means[0], means[1], rows[occupied]


def coverage_drawings(benchmark: "Benchmark", cells: Sequence[TableEntry]) -> drawing.Drawings:
    """Draw how often intervals cover, where `coverage` is scored at several levels.

    Nothing is drawn of a sweep.
    """
    levels = {
        str(metric): float(metric.settings["level"])
        for metric in benchmark.metrics
        if isinstance(metric, Label) and metric.name == "coverage"
    }
    means = [
        cell
        for cell in cells
        if cell.statistic == "mean" and cell.metric in levels and cell.ours is not None
    ]
    if benchmark.axes or len(levels) < 2 or not means:
        return {}
    return {"calibration": partial(coverage_figure, benchmark, levels, means)}


def coverage_figure(
    benchmark: "Benchmark", levels: Mapping[str, float], cells: Sequence[TableEntry]
) -> "Figure":
    """Draw mean coverage against the level, a panel a data set and a line an entry.

    `levels` maps each metric to its level.
    """
    groups = group_by(cells, lambda cell: cell.dataset)
    figure, panels = drawing.lay_out_panels(len(groups), (2.6, 2.8))
    styles = entry_styles(benchmark.entries)
    for panel, (dataset, dataset_cells) in zip(panels, groups.items(), strict=True):
        drawing.style_panel(panel, dataset)
        panel.plot([0, 1], [0, 1], **_DIAGONAL)
        for entry in benchmark.entries:
            draw_line(panel, entry, styles[entry], levels, dataset_cells)
        panel.set(xlabel="level of the central interval", xlim=(0, 1), ylim=(0, 1))
    lines = benchmark.title, "Coverage of predictive intervals, mean ± SE over splits"
    order = ["calibrated", *styles]
    return drawing.finish_figure(
        figure, panels, "share of targets within", *lines, order=order, columns=3
    )


def calibration_figure(table: "pd.DataFrame", rows: int) -> "Figure":
    """Draw the second column of a table against the first, with the diagonal of calibration."""
    figure, (panel,) = drawing.lay_out_panels(1, (3.4, 3.4))
    x_name, y_name = table.columns[:2]
    panel.plot([0, 1], [0, 1], **_DIAGONAL)
    panel.plot(
        table[x_name],
        table[y_name],
        color=drawing.COLORS[0],
        label="predictions",
        marker="o",
        **drawing.DOTS,
    )
    drawing.style_panel(panel, f"{rows} rows", bold=False)
    panel.set(xlabel=x_name, ylabel=y_name, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    drawing.write_title(figure, "Calibration")
    drawing.draw_legend(figure)
    return figure


def selective_drawings(benchmark: "Benchmark", cells: Sequence[TableEntry]) -> drawing.Drawings:
    """Draw scores that are computed for several shares of the rows.

    Nothing is drawn of a sweep.
    """
    means = [cell for cell in cells if cell.statistic == "mean" and cell.ours is not None]
    scores = metrics_by_order(benchmark.metrics) if means and not benchmark.axes else {}
    return {
        f"selective-{name}": partial(selective_figure, benchmark, name, by_order, means)
        for name, by_order in scores.items()
    }


def metrics_by_order(metrics: Sequence[str]) -> dict[str, dict[str, Shares]]:
    """Group the metrics that are computed for several shares of the rows.

    The keys are the name of the score and the quantity by which rows are ordered.
    """
    selective = [
        metric for metric in metrics if isinstance(metric, Label) and "kept" in metric.settings
    ]
    orders = dict[str, dict[str, Shares]]()
    for name, by in dict.fromkeys(
        (metric.name, metric.settings["by"]) for metric in selective if metric.settings["kept"] < 1
    ):
        # The score of all rows does not depend on their order: it ends the curve of every order.
        shares = {
            str(metric): float(metric.settings["kept"])
            for metric in selective
            if metric.name == name
            and (metric.settings["by"] == by or metric.settings["kept"] == 1)
        }
        if len(shares) > 1:
            orders.setdefault(name, {})[by] = shares
    return orders


def selective_figure(
    benchmark: "Benchmark", name: str, by_order: Mapping[str, Shares], cells: Sequence[TableEntry]
) -> "Figure":
    """Draw means over the splits with standard errors, a line an entry, and the printed values."""
    groups = group_by(cells, lambda cell: cell.dataset)
    facets = [*product(groups, by_order)]
    figure, panels = drawing.lay_out_panels(len(facets), (2.8, 3.0), columns=len(facets))
    styles = entry_styles(benchmark.entries)
    for panel, (dataset, by) in zip(panels, facets, strict=True):
        drawing.style_panel(panel, f"{dataset}, by {by}", "y", bold=False)
        panel.set_xlabel("share of the test rows that is kept")
        shares = by_order[by]
        order_cells = [cell for cell in groups[dataset] if cell.metric in shares]
        values = {
            entry: draw_line(panel, entry, styles[entry], shares, order_cells)
            for entry in benchmark.entries
        }
        drawing.fit_axis(panel, "y", values, scale="linear")
    return drawing.finish_figure(
        figure, panels, metric_with_unit(name), benchmark.title, metric_heading(name), order=styles
    )


def draw_line(
    panel: "Axes", entry: str, look: Mapping[str, Any], shares: Shares, cells: Sequence[TableEntry]
) -> list[float]:
    """Draw an entry's means along the shares of their metrics, with standard errors.

    The printed values are drawn as well. Return all values that the axis has to show.
    """
    entry_cells = sorted(
        (cell for cell in cells if cell.method == entry), key=lambda cell: shares[cell.metric]
    )
    points = [
        (shares[cell.metric], cell.ours, cell.ours_se or 0.0, cell.paper)
        for cell in entry_cells
        if cell.ours is not None
    ]
    if points:
        x, y, errors, _ = zip(*points, strict=True)
        panel.errorbar(x, y, errors, label=entry, capsize=2, **{**look, **drawing.DOTS})
    printed = [(x, paper) for x, _, _, paper in points if paper is not None]
    if printed:
        marks = drawing.PRINTED_MARK | {"color": look["color"]}
        panel.plot(*zip(*printed, strict=True), label=f"paper, {entry}", **marks)
    bars = [end for _, y, error, _ in points for end in drawing.bar_ends(y, error)]
    return bars + [paper for _, paper in printed]


class LabelPredictions(NamedTuple):
    """Predictions of the labels of the test rows, by one fit."""

    dataset: str
    entry: str
    probabilities: Array
    """Of each class, (n, C)."""
    labels: NDArray[np.int64]
    """(n,)."""
    risks: Mapping[str, Array]
    """Mean error of the k most certain rows, k = 1, ..., n, by the quantity that orders them."""


def refusal_drawings(benchmark: "Benchmark", fits: Sequence[LabelPredictions]) -> drawing.Drawings:
    """Draw the error of the rows that are kept, reliability, and for two classes referrals."""
    drawings = {
        "refusal-risk": partial(risk_figure, benchmark, fits),
        "refusal-reliability": partial(reliability_figure, benchmark, fits),
    }
    binary = [fit for fit in fits if fit.probabilities.shape[1] == 2]
    if binary:
        drawings["refusal-referral"] = partial(referral_figure, benchmark, binary)
    return drawings


def risk_figure(benchmark: "Benchmark", fits: Sequence[LabelPredictions]) -> "Figure":
    """Draw the error of the most certain rows along their share, as means over the splits.

    Bands are one standard error wide to either side.
    """
    groups = group_by(fits, lambda fit: fit.dataset)
    facets = [*product(groups, fits[0].risks)]
    figure, panels = drawing.lay_out_panels(
        len(facets), (3.6, 3.0), columns=min(len(facets), 2), sharey=True
    )
    for panel, (dataset, by) in zip(panels, facets, strict=True):
        drawing.style_panel(panel, f"{dataset}, by {by}", bold=False)
        panel.set_xlabel("share of the test rows that is kept")
        _draw_mean_lines(
            panel,
            benchmark,
            SHARES,
            [(fit.entry, errors_at_shares(fit.risks[by])) for fit in groups[dataset]],
        )
    lines = benchmark.title, "Errors of the most certain rows"
    return drawing.finish_figure(figure, panels, "error", *lines, order=benchmark.entries)


def referral_figure(benchmark: "Benchmark", fits: Sequence[LabelPredictions]) -> "Figure":
    """Draw the share of all rows that a threshold refers along its sensitivity on these rows."""
    groups = group_by(fits, lambda fit: fit.dataset)
    figure, panels = drawing.lay_out_panels(len(groups), (4.6, 3.2))
    for panel, (dataset, dataset_fits) in zip(panels, groups.items(), strict=True):
        drawing.style_panel(panel, dataset, bold=False)
        panel.set_xlabel("sensitivity: share of the positive rows that is referred")
        _draw_mean_lines(
            panel,
            benchmark,
            SENSITIVITIES,
            # without positive rows there is no sensitivity
            [(fit.entry, referred_shares(fit)) for fit in dataset_fits if fit.labels.any()],
        )
    lines = benchmark.title, "Referral at a given sensitivity"
    label = "share of all rows that is referred"
    return drawing.finish_figure(figure, panels, label, *lines, order=benchmark.entries)


def reliability_figure(benchmark: "Benchmark", fits: Sequence[LabelPredictions]) -> "Figure":
    """Draw accuracy against confidence in bins, a panel an entry and data set.

    The rows of all splits are pooled.
    """
    groups = group_by(fits, lambda fit: (fit.dataset, fit.entry))
    figure, panels = drawing.lay_out_panels(len(groups), (2.1, 2.1), sharex=True, sharey=True)
    several_datasets = len({dataset for dataset, _ in groups}) > 1
    for panel, (group, group_fits) in zip(panels, groups.items(), strict=True):
        probabilities = np.concatenate([fit.probabilities for fit in group_fits])
        hits = probabilities.argmax(1) == np.concatenate([fit.labels for fit in group_fits])
        confidence, accuracy, _ = reliability(probabilities.max(1), hits, BINS)
        # The most probable of C classes has a probability of at least 1/C.
        lowest = 1 / probabilities.shape[1]
        panel.plot([lowest, 1], [lowest, 1], **_DIAGONAL)
        panel.plot(
            confidence,
            accuracy,
            color=drawing.COLORS[0],
            label="predictions",
            marker="o",
            **drawing.DOTS,
        )
        drawing.style_panel(panel, ", ".join(group) if several_datasets else group[1], bold=False)
        panel.set_xlabel("confidence")
    lines = benchmark.title, "Reliability of the most probable class"
    return drawing.finish_figure(figure, panels, "accuracy", *lines, order=benchmark.entries)


def errors_at_shares(risks: Array) -> Array:
    """Return the error of the most certain rows at each of `SHARES`: (n,) to (91,)."""
    # A share of n rows that is a whole number but for rounding is that number.
    errors: Array = risks[np.maximum(np.floor(SHARES * len(risks) + 1e-9).astype(int), 1) - 1]
    return errors


def referred_shares(fit: LabelPredictions) -> Array:
    """Compute the least share of all rows to refer for each of `SENSITIVITIES`: (41,).

    Rows are referred in the order of their probability of being positive.
    """
    p = fit.probabilities[:, 1]
    positive = np.sort(p[fit.labels == 1])[::-1]
    thresholds = positive[np.ceil(SENSITIVITIES * len(positive) - 1e-9).astype(int) - 1]
    share: Array = (p >= thresholds[:, None]).mean(1)
    return share


def _draw_mean_lines(
    panel: "Axes", benchmark: "Benchmark", x: Array, lines: Sequence[tuple[str, Array]]
) -> None:
    """Draw the mean of the lines of each entry, and a band of one standard error."""
    for entry, look in entry_styles(benchmark.entries).items():
        curves = np.array([line for name, line in lines if name == entry])
        if not len(curves):
            continue
        mean = curves.mean(0)
        panel.plot(x, mean, markevery=0.1, label=entry, **{**drawing.DOTS, **look})
        if len(curves) > 1:
            se = curves.std(0, ddof=1) / np.sqrt(len(curves))
            panel.fill_between(
                x, mean - se, mean + se, color=look["color"], alpha=SHADE, linewidth=0
            )
