"""Whether predictions are as certain as they say: calibration, the most certain rows, and what may be refused."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bdl.registry import Label
from bdl.reports import Cell, drawing
from bdl.reports.layout import heading, measure
from bdl.reports.statistics import Array, grouped

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
"""Of confidence, from 0 to 1."""
SENSITIVITIES = np.linspace(0.8, 1, 41)
SHARES = np.linspace(0.1, 1, 91)
"""Of the rows that are kept: with fewer, a single error is seen most."""
SHADE = 0.12
"""How dark a band is; up to nine lie over one another."""


def coverage(below: Array, levels: Array) -> Array:
    """Return the share of targets in the central interval of each probability p of `levels`, (m,): |2 F(y) - 1| <= p.

    `below` is the predictive probability F(y) below each target, (n,).
    """
    share: Array = (np.abs(2 * below - 1)[:, None] <= levels).mean(0)
    return share


def reliability(
    confidence: Array, hits: NDArray[np.bool_], bins: int
) -> tuple[Array, Array, NDArray[np.int64]]:
    """Compare confidence with accuracy in bins of equal width, each without its lower bound (Guo et al. 2017).

    `confidence` is the probability of the most probable class of each row, (n,), and `hits`
    whether it was the right one. Returned are mean confidence, accuracy and number of rows of each
    bin that has any.
    """
    place = np.clip(np.ceil(confidence * bins).astype(int), 1, bins) - 1
    rows = np.bincount(place, minlength=bins)
    some = rows > 0
    means = [
        np.bincount(place, weights, bins)[some] / rows[some]
        for weights in (confidence, hits.astype(float))
    ]
    return means[0], means[1], rows[some]


def coverage_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw how often intervals cover, where `coverage` is scored at several levels: nothing of a sweep."""
    scored = [
        own for own in benchmark.metrics if isinstance(own, Label) and own.name == "coverage"
    ]
    levels = {str(own): float(own.settings["level"]) for own in scored}
    own = [
        cell
        for cell in cells
        if cell.statistic == "mean" and cell.metric in levels and cell.ours is not None
    ]
    if benchmark.axes or len(levels) < 2 or not own:
        return {}
    return {"calibration": partial(coverage_figure, benchmark, levels, own)}


def coverage_figure(
    benchmark: "Benchmark", levels: Mapping[str, float], cells: Sequence[Cell]
) -> "Figure":
    """Draw mean coverage against the level, a panel a data set and a line an entry.

    `levels` are those of metrics.
    """
    groups = grouped(cells, lambda cell: cell.dataset)
    figure, panels = drawing.grid(len(groups), (2.6, 2.8))
    styles = drawing.styles(benchmark.entries)
    for panel, (dataset, own) in zip(panels, groups.items(), strict=True):
        drawing.dress(panel, dataset)
        panel.plot([0, 1], [0, 1], **_DIAGONAL)
        for entry in benchmark.entries:
            draw_line(panel, entry, styles[entry], levels, own)
        panel.set(xlabel="level of the central interval", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    lines = benchmark.title, "Coverage of predictive intervals, mean ± SE over splits"
    order = ["calibrated", *styles]
    return drawing.finished(
        figure, panels, "share of targets within", *lines, order=order, columns=3
    )


def calibration_figure(table: "pd.DataFrame", rows: int) -> "Figure":
    """Draw the second column of a table against the first, beside the diagonal of what is calibrated."""
    figure, (panel,) = drawing.grid(1, (3.4, 3.4))
    across, up = table.columns[:2]
    panel.plot([0, 1], [0, 1], **_DIAGONAL)
    panel.plot(
        table[across], table[up], color=drawing.COLORS[0], label="predictions", **drawing.DOTS
    )
    drawing.dress(panel, f"{rows} rows", bold=False)
    panel.set(xlabel=across, ylabel=up, xlim=(0, 1), ylim=(0, 1), aspect="equal")
    drawing.title(figure, "Calibration")
    drawing.legend(figure)
    return figure


def selective_drawings(benchmark: "Benchmark", cells: Sequence[Cell]) -> drawing.Drawings:
    """Draw scores that keep several shares: nothing of scores with one share, and nothing of a sweep."""
    means = [cell for cell in cells if cell.statistic == "mean" and cell.ours is not None]
    scores = orders(benchmark.metrics) if means and not benchmark.axes else {}
    return {
        f"selective-{name}": partial(selective_figure, benchmark, name, by, means)
        for name, by in scores.items()
    }


def orders(metrics: Sequence[str]) -> dict[str, dict[str, Shares]]:
    """Return the scores that keep several shares: by name, what orders the rows, and the metrics of that order."""
    shared = [
        metric for metric in metrics if isinstance(metric, Label) and "kept" in metric.settings
    ]
    found = dict[str, dict[str, Shares]]()
    for name, by in dict.fromkeys(
        (own.name, own.settings["by"]) for own in shared if own.settings["kept"] < 1
    ):
        # without a choice of rows the order is of no account
        alike = [
            own
            for own in shared
            if own.name == name and (own.settings["by"] == by or own.settings["kept"] == 1)
        ]
        if len(alike) > 1:
            found.setdefault(name, {})[by] = {
                str(own): float(own.settings["kept"]) for own in alike
            }
    return found


def selective_figure(
    benchmark: "Benchmark", name: str, by_order: Mapping[str, Shares], cells: Sequence[Cell]
) -> "Figure":
    """Draw means over the splits with their standard errors, a line an entry, and the printed values."""
    groups = grouped(cells, lambda cell: cell.dataset)
    places = [*product(groups, by_order)]
    figure, panels = drawing.grid(len(places), (2.8, 3.0), columns=len(places))
    styles = drawing.styles(benchmark.entries)
    for panel, (dataset, by) in zip(panels, places, strict=True):
        drawing.dress(panel, f"{dataset}, by {by}", "y", bold=False)
        panel.set_xlabel("share of the test rows that is kept")
        shares = by_order[by]
        own = [cell for cell in groups[dataset] if cell.metric in shares]
        values = {
            entry: draw_line(panel, entry, styles[entry], shares, own)
            for entry in benchmark.entries
        }
        drawing.fit(panel, "y", values, scale="linear")
    return drawing.finished(
        figure, panels, measure(name), benchmark.title, heading(name), order=styles
    )


def draw_line(
    panel: "Axes", entry: str, look: Mapping[str, Any], shares: Shares, cells: Sequence[Cell]
) -> list[float]:
    """Draw an entry's means along numbers by metric, with standard errors, and what is printed.

    Return its values.
    """
    along = sorted(
        (cell for cell in cells if cell.method == entry), key=lambda cell: shares[cell.metric]
    )
    own = [
        (shares[each.metric], each.ours, each.ours_se or 0.0, each.paper)
        for each in along
        if each.ours is not None
    ]
    if own:
        x, y, errors, _ = zip(*own, strict=True)
        panel.errorbar(x, y, errors, label=entry, capsize=2, **{**look, **drawing.DOTS})
    printed = [(x, paper) for x, _, _, paper in own if paper is not None]
    if printed:
        marks = drawing.PRINTED | {"color": look["color"]}
        panel.plot(*zip(*printed, strict=True), label=f"paper, {entry}", **marks)
    return [end for _, y, error, _ in own for end in drawing.ends(y, error)] + [
        paper for _, paper in printed
    ]


class Labelled(NamedTuple):
    """Predictions of the labels of the test rows, by one fit."""

    dataset: str
    entry: str
    probabilities: Array
    """Of each class, (n, C)."""
    labels: NDArray[np.int64]
    """(n,)."""
    risks: Mapping[str, Array]
    """What orders the rows, to the mean error of the k most certain ones, k = 1, ..., n."""


def refusal_drawings(benchmark: "Benchmark", fits: Sequence[Labelled]) -> drawing.Drawings:
    """Draw errors by the share that is kept, reliability, and for two classes what a sensitivity costs."""
    drawings = {
        "refusal-risk": partial(risk_figure, benchmark, fits),
        "refusal-reliability": partial(reliability_figure, benchmark, fits),
    }
    two = [fit for fit in fits if fit.probabilities.shape[1] == 2]
    return drawings | (
        {"refusal-referral": partial(referral_figure, benchmark, two)} if two else {}
    )


def risk_figure(benchmark: "Benchmark", fits: Sequence[Labelled]) -> "Figure":
    """Draw the error of the most certain rows along their share: means over the splits, bands of a standard error."""
    groups = grouped(fits, lambda fit: fit.dataset)
    places = [*product(groups, fits[0].risks)]
    figure, panels = drawing.grid(
        len(places), (3.6, 3.0), columns=min(len(places), 2), sharey=True
    )
    for panel, (dataset, by) in zip(panels, places, strict=True):
        drawing.dress(panel, f"{dataset}, by {by}", bold=False)
        panel.set_xlabel("share of the test rows that is kept")
        _bands(
            panel,
            benchmark,
            SHARES,
            [(fit.entry, at_shares(fit.risks[by])) for fit in groups[dataset]],
        )
    lines = benchmark.title, "Errors of the most certain rows"
    return drawing.finished(figure, panels, "error", *lines, order=benchmark.entries)


def referral_figure(benchmark: "Benchmark", fits: Sequence[Labelled]) -> "Figure":
    """Draw the share of all rows that a threshold refers along the sensitivity that it has on these rows."""
    groups = grouped(fits, lambda fit: fit.dataset)
    figure, panels = drawing.grid(len(groups), (4.6, 3.2))
    for panel, (dataset, own) in zip(panels, groups.items(), strict=True):
        drawing.dress(panel, dataset, bold=False)
        panel.set_xlabel("sensitivity: share of the positive rows that is referred")
        _bands(panel, benchmark, SENSITIVITIES, [(fit.entry, referred(fit)) for fit in own])
    up, lines = (
        "share of all rows that is referred",
        (benchmark.title, "Referral at a given sensitivity"),
    )
    return drawing.finished(figure, panels, up, *lines, order=benchmark.entries)


def reliability_figure(benchmark: "Benchmark", fits: Sequence[Labelled]) -> "Figure":
    """Draw accuracy against confidence in bins, the rows of all splits together: a panel an entry and data set."""
    groups = grouped(fits, lambda fit: (fit.dataset, fit.entry))
    figure, panels = drawing.grid(len(groups), (2.1, 2.1), sharex=True, sharey=True)
    several = len({dataset for dataset, _ in groups}) > 1
    for panel, (place, own) in zip(panels, groups.items(), strict=True):
        probabilities = np.concatenate([fit.probabilities for fit in own])
        hits = probabilities.argmax(1) == np.concatenate([fit.labels for fit in own])
        confidence, accuracy, _ = reliability(probabilities.max(1), hits, BINS)
        least = 1 / probabilities.shape[1]  # of the most probable of so many classes
        panel.plot([least, 1], [least, 1], **_DIAGONAL)
        panel.plot(
            confidence, accuracy, color=drawing.COLORS[0], label="predictions", **drawing.DOTS
        )
        drawing.dress(panel, ", ".join(place) if several else place[1], bold=False)
        panel.set_xlabel("confidence")
    lines = benchmark.title, "Reliability of the most probable class"
    return drawing.finished(figure, panels, "accuracy", *lines, order=benchmark.entries)


def at_shares(risks: Array) -> Array:
    """Return the error of the most certain rows at each of `SHARES`: (n,) to (91,)."""
    kept: Array = risks[np.maximum(np.floor(SHARES * len(risks) + 1e-9).astype(int), 1) - 1]
    return kept


def referred(fit: Labelled) -> Array:
    """Return the least share of all rows that is referred by probability, for each of `SENSITIVITIES`: (41,)."""
    p = fit.probabilities[:, 1]
    positive = np.sort(p[fit.labels == 1])[::-1]
    thresholds = positive[np.ceil(SENSITIVITIES * len(positive) - 1e-9).astype(int) - 1]
    share: Array = (p >= thresholds[:, None]).mean(1)
    return share


def _bands(
    panel: "Axes", benchmark: "Benchmark", x: Array, lines: Sequence[tuple[str, Array]]
) -> None:
    for entry, look in drawing.styles(benchmark.entries).items():
        own = np.array([line for name, line in lines if name == entry])
        if not len(own):
            continue
        mean, line = own.mean(0), {"color": look["color"], "linestyle": look["linestyle"]}
        panel.plot(x, mean, linewidth=1.4, label=entry, **line)
        if len(own) > 1:
            se = own.std(0, ddof=1) / np.sqrt(len(own))
            panel.fill_between(
                x, mean - se, mean + se, color=look["color"], alpha=SHADE, linewidth=0
            )
