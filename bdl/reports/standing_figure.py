"""Figure of the overall standing: ranks, wins of each method over each other, and time."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bdl.reports import drawing
from bdl.reports.layout import metric_name
from bdl.reports.method_styles import entry_styles
from bdl.reports.standing_tables import Standing, standing_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark

_ROW_HEIGHT = 0.24
"""Inches of a method."""
_GROUP_GAP = 0.03
"""Share of the range of ranks from the line of one group of methods to the next."""


def standing_drawings(benchmark: "Benchmark", standings: Sequence[Standing]) -> drawing.Drawings:
    """Draw the overall standing, a figure a score."""
    return {
        f"{standing.metric}-standing": partial(standing_figure, benchmark, standing)
        for standing in standings
    }


def standing_figure(benchmark: "Benchmark", standing: Standing) -> "Figure":
    """Draw average ranks with their intervals, win rates, and ranks against seconds.

    Methods are in the order of their ranks in the first two panels. Grey lines beside the ranks
    join methods that Nemenyi's test does not tell apart. Methods without a rank are hollow, at the
    rank that they would have.
    """
    from matplotlib.figure import Figure

    styles = entry_styles(benchmark.entries)
    unranked = [each for each in standing.unranked if each.rank is not None]
    height = 2.0 + _ROW_HEIGHT * (len(standing.ranks) + len(unranked) + bool(unranked))
    widths = [1.15, 1.0, 1.1] if standing.seconds else [1.15, 1.0]
    figure = Figure(
        figsize=(4.6 * sum(widths), max(height, 4.0)), layout="constrained", facecolor="white"
    )
    panels = figure.subplots(1, len(widths), width_ratios=widths)
    _draw_ranks(panels[0], standing, styles)
    _draw_wins(panels[1], standing, len(unranked) + bool(unranked))
    if standing.seconds:
        searched = any(entry and entry.search for entry in benchmark.entries.values())
        _draw_front(panels[2], standing, styles, searched)
    lines = [benchmark.title, standing_title(standing)]
    drawing.write_title(figure, *lines)
    return figure


def _draw_ranks(panel: "Axes", standing: Standing, styles: drawing.Styles) -> None:
    drawing.style_panel(panel, "Average rank, 95 % interval", "x")
    names = list(standing.ranks)
    for row, (entry, rank) in enumerate(standing.ranks.items()):
        _draw_rank(panel, row, rank, styles[entry])
    hollow = [each for each in standing.unranked if each.rank is not None]
    for row, each in enumerate(hollow, start=len(names) + 1):
        _draw_rank(panel, row, each.rank, {**styles[each.entry], "markerfacecolor": "white"})
        names.append(each.entry)
    rows = [*range(len(standing.ranks))]
    rows += [*range(len(rows) + 1, len(rows) + 1 + len(hollow))]
    panel.set_yticks(rows, names)
    count = len(standing.ranks)
    if hollow:
        panel.text(
            0.0, count, "not ranked", transform=panel.get_yaxis_transform(), fontsize=8,
            color=drawing.QUIET, va="center",
        )  # fmt: skip
    step = _GROUP_GAP * count
    for number, group in enumerate(standing.groups, start=1):
        at = count + 0.5 + number * step
        ends = [names.index(group[0]) - 0.3, names.index(group[-1]) + 0.3]
        panel.plot([at, at], ends, color=drawing.QUIET, linewidth=2.2, solid_capstyle="butt")
    panel.set_xlim(0.5, count + 0.5 + (len(standing.groups) + 1) * step)
    panel.set_ylim(rows[-1] + 0.7, -0.7)
    _set_rank_ticks(panel.xaxis, count)
    panel.set_xlabel(
        f"rank among {count} methods; bars join methods less than "
        f"{standing.critical_difference:.1f} apart"
    )


def _set_rank_ticks(axis: "Axis", count: int) -> None:
    axis.set_ticks([1, *range(5, count + 1, 5)] if count > 5 else range(1, count + 1))


def _draw_rank(panel: "Axes", row: int, rank: Any, style: Any) -> None:
    look = {**drawing.BARS, **style, "linestyle": "none", "capsize": 0}
    # an interval of a bootstrap need not hold the value, and a bar has no negative length
    left, right = max(rank.value - rank.low, 0.0), max(rank.high - rank.value, 0.0)
    panel.errorbar([rank.value], [row], xerr=[[left], [right]], **look)


def _draw_wins(panel: "Axes", standing: Standing, empty_rows: int) -> None:
    names = list(standing.ranks)
    heading = "Splits won, %: row against column"
    panel.set_title(heading, fontsize=10, fontweight="bold", loc="left")
    percent = 100 * standing.win_rates
    panel.imshow(percent, cmap="RdBu", vmin=0, vmax=100, aspect="auto", interpolation="none")
    for row in range(len(names)):
        for column in range(len(names)):
            if row != column:
                share = percent[row, column]
                color = "white" if abs(share - 50) > 32 else drawing.INK
                panel.text(
                    column, row, f"{share:.0f}", ha="center", va="center", fontsize=6, color=color
                )
    # right below the matrix, which leaves the rows of the panel of ranks free below it
    for column, name in enumerate(names):
        panel.text(
            column,
            len(names) - 0.3,
            name,
            color=drawing.QUIET,
            ha="center",
            va="top",
            rotation=90,
            fontsize=8,
        )
    panel.set(xticks=[], yticks=[])
    panel.set_ylim(len(names) + empty_rows - 0.3, -0.7)
    panel.set_xlim(-0.5, len(names) - 0.5)
    panel.spines[:].set_visible(False)


def _draw_front(panel: "Axes", standing: Standing, styles: drawing.Styles, searched: bool) -> None:
    drawing.style_panel(panel, "Rank against time")
    points = {
        entry: (standing.seconds[entry], rank.value)
        for entry, rank in standing.ranks.items()
        if entry in standing.seconds
    }
    front = sorted(points[entry] for entry in standing.front)
    panel.step(
        [seconds for seconds, _ in front],
        [rank for _, rank in front],
        where="post",
        color=drawing.QUIET,
        linewidth=1.0,
        linestyle=":",
        zorder=1,
    )
    for entry, (seconds, rank) in points.items():
        look = {**drawing.BARS, **styles[entry], "linestyle": "none", "label": entry}
        del look["capsize"], look["elinewidth"]
        panel.plot([seconds], [rank], **look)
    for each in standing.unranked:
        if each.rank is not None and each.entry in standing.seconds:
            point = standing.seconds[each.entry], each.rank.value
            points[each.entry] = point
            panel.plot(
                [point[0]],
                [point[1]],
                color=styles[each.entry]["color"],
                marker=styles[each.entry]["marker"],
                markerfacecolor="white",
                markersize=drawing.BARS["markersize"],
                linestyle="none",
            )
    panel.set_xscale("log")
    times = [seconds for seconds, _ in points.values()]
    panel.set_xlim(min(times) / 1.6, max(times) * 1.6)
    drawing.label_log_axis(panel.xaxis, max(times) / min(times))
    panel.set_ylim(len(standing.ranks) + 0.7, 0.3)
    _set_rank_ticks(panel.yaxis, len(standing.ranks))
    search = ", its search included" if searched else ""
    panel.set_xlabel(f"seconds of a fit{search}; geometric mean")
    panel.set_ylabel(f"average rank by {metric_name(standing.metric)}")
    _name_points(panel, points, styles)


def _name_points(
    panel: "Axes", points: dict[str, tuple[float, float]], styles: drawing.Styles
) -> None:
    """Write names to the right of the panel, in the order of ranks, with a line to each mark."""
    entries = list(points)
    low, high = panel.get_ylim()
    heights = drawing.spread_apart([(points[entry][1] - low) / (high - low) for entry in entries])
    for entry, height in zip(entries, heights, strict=True):
        color = styles[entry]["color"]
        panel.annotate(
            entry,
            points[entry],
            (1.05, height),
            textcoords="axes fraction",
            va="center",
            fontsize=7,
            color=color,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "linewidth": 0.4, "alpha": 0.5, "color": color,
                "shrinkA": 1.0, "shrinkB": 2.0, "relpos": (0.0, 0.5),
            },
        )  # fmt: skip
