"""Style, panels, marks, axes without outliers, and legends: shared by all figures."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median_high
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bdl.metrics import get_metric_info
from bdl.reports.layout import format_number

# Matplotlib is imported on use: it is slow to load, and most commands draw nothing.
if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

INK, QUIET, GRID = "#222222", "#666666", "#e3e3e3"
COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    INK,
    "#56b4e9",
    "#6a3d9a",
    "#8c6d1f",
)
"""Palette of Okabe and Ito (2008), which can be told apart under every common colour blindness.

Its yellow, which is too pale for lines, is left out; two more colours make nine.
"""
OUR_MARK: dict[str, Any] = {"color": COLORS[0], "marker": "o", "markersize": 6.5}
PAPER_MARK: dict[str, Any] = {
    "color": COLORS[1],
    "marker": "D",
    "markersize": 6,
    "markerfacecolor": "white",
    "markeredgewidth": 1.4,
}
PRINTED_MARK = PAPER_MARK | {"markersize": 4.5, "markeredgewidth": 1.2, "linestyle": "none"}
"""Printed values in figures with lines; the colour is the entry's."""
DOTS: dict[str, Any] = {"markersize": 3.2, "linewidth": 1.4}
BARS: dict[str, Any] = {"linewidth": 1.4, "elinewidth": 1.2, "markersize": 4.5, "capsize": 2.5}

STYLE: dict[str, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": QUIET,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-3, 4),
    "axes.formatter.use_mathtext": True,
    "xtick.color": QUIET,
    "ytick.color": INK,
    "grid.color": GRID,
    "pdf.fonttype": 42,
}
# No dates and no versions: the same cells give the same bytes.
METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"Creator": None, "Producer": None, "CreationDate": None},
}
MAX_LEGEND = 8
"""Entries of a legend; more are labelled directly."""
PRINTED_LABEL = "paper, "
"""Start of the labels of printed values, which look like the entry that they are of."""
LABEL_WIDTH, LABEL_GAP = 1.2, 0.06
"""Inches to the right of a panel for names, and share of its height from one to the next."""
_LEADER: dict[str, Any] = {
    "arrowstyle": "-",
    "linewidth": 0.5,
    "alpha": 0.6,
    "shrinkA": 1.0,
    "shrinkB": 0.0,
    "relpos": (0.0, 0.5),
}
"""Line from a name to its mark; it begins left of the name, so that it crosses no letters."""
MIN_WIDTH, MAX_COLUMNS = 5.5, 4
"""Width of a figure in inches, and panels in a line."""

LOG_FROM = 30.0
"""An axis of positive values that span more than this factor is logarithmic."""
OUTLIER_FACTOR = 1e4
"""Factor from the next value beyond which a distance or a duration is an outlier.

They differ by orders of magnitude; scores are outliers beyond `LOG_FROM` already.
"""
GAP_FACTOR = 8.0
"""Gap to a value, in ranges of all others, beyond which it is an outlier of a linear axis."""
BAR_STRETCH = 1.0
"""Ranges of the values by which error bars may stretch a linear axis to either side."""
ROUNDING = 1e-9
"""Share of the median below which a value is zero but for rounding.

Such values do not keep an axis from being logarithmic.
"""
POWERS_FROM, THREES_TO = 1e3, 1e2
"""Spans below which ticks are at 0.1, 1, 10 rather than powers of ten, and at 1, 3, 10."""
AXIS_MARGIN = 0.08
"""Share of the range of an axis that is free at either end."""

Drawings = Mapping[str, Callable[[], "Figure"]]
"""Name of a file to the function that draws the figure."""
Styles = Mapping[str, Mapping[str, Any]]


def write_title(figure: "Figure", *lines: str) -> "Text":
    """Write the title of a figure, and break lines that are longer than it is wide."""
    return figure.suptitle(
        "\n".join(line for line in lines if line), fontsize=11, x=0.01, ha="left", wrap=True
    )


def lay_out_panels(
    count: int,
    size: tuple[float, float],
    *,
    columns: int | None = None,
    downwards: bool = False,
    **shared: Any,
) -> "tuple[Figure, list[Axes]]":
    """Lay out panels of one size (width and height in inches).

    There is space for a title above and a legend below. There are at most four in a line, and as
    many in each as can be, unless `columns` says otherwise; `shared` is `sharex` and `sharey` of
    matplotlib.
    """
    from matplotlib.figure import Figure

    columns = columns or math.ceil(count / math.ceil(count / MAX_COLUMNS))
    lines = math.ceil(count / columns)
    inches = max(size[0] * columns + 0.4, MIN_WIDTH), size[1] * lines + 1.1
    figure = Figure(figsize=inches, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, squeeze=False, **shared)
    ordered = list((panels.T if downwards else panels).ravel())
    for panel in ordered[:count]:  # each is read alone
        panel.tick_params(labelbottom=True, labelleft=True)
    for panel in ordered[count:]:
        panel.remove()
    return figure, ordered[:count]


def style_panel(
    panel: "Axes", heading: str, lines: Literal["x", "y", "both"] = "both", *, bold: bool = True
) -> None:
    """Put a heading on a panel, grid lines, and no more frame than it needs."""
    panel.set_title(heading, fontsize=10, fontweight="bold" if bold else "normal", loc="left")
    panel.grid(axis=lines)
    panel.tick_params(which="both", length=0)
    hidden_spines = [*panel.spines] if lines == "both" else ["left", "right", "top"]
    panel.spines[hidden_spines].set_visible(False)


def label_vertical_axes(panels: "Sequence[Axes]", text: str) -> None:
    """Label the vertical axes, each panel for itself."""
    for panel in panels:
        panel.set_ylabel(fill(text, 26))


def draw_legend(
    figure: "Figure",
    handles: "Sequence[Artist]" = (),
    *,
    order: Iterable[str] = (),
    columns: int = 4,
    **legend_options: Any,
) -> None:
    """Describe marks below the panels: `handles`, or else those that the panels have labelled.

    Each label is there once, those of `order` first. There are fewer columns where `columns` of
    them are wider than the figure.
    """
    handle_of = {str(handle.get_label()): handle for handle in handles}
    for panel in () if handles else figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handle_of.setdefault(label, handle)
    labels = [label for label in dict.fromkeys((*order, *handle_of)) if label in handle_of]
    options = {"loc": "outside lower center", "frameon": False} | legend_options
    described = [handle_of[label] for label in labels]
    legend = figure.legend(described, labels, ncols=columns, **options)
    while columns > 1 and legend.get_window_extent().width > figure.bbox.width:
        legend.remove()
        columns -= 1
        legend = figure.legend(described, labels, ncols=columns, **options)


def label_directly(figure: "Figure", panels: "Sequence[Axes]") -> None:
    """Write the name of each mark or line to the right of its panel, with a line that leads there.

    The figure becomes wider by the space of the names.
    """
    columns = {spec.colspan.start for panel in panels if (spec := panel.get_subplotspec())}
    figure.set_figwidth(figure.get_figwidth() + LABEL_WIDTH * len(columns))
    for panel in panels:
        ends: dict[str, tuple[float, float, str]] = {}
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            if label.startswith(PRINTED_LABEL):
                continue
            line = getattr(handle, "lines", [handle])[0]  # of an error bar, its mark
            points = np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float)
            points = points[np.isfinite(points).all(1)]
            if len(points):
                shown = panel.transAxes.inverted().transform(
                    line.get_transform().transform(points[-1])
                )
                x, y = np.clip(shown, 0, 1)
                ends[label] = (float(x), float(y), line.get_color())
        heights = spread_apart([y for _, y, _ in ends.values()])
        for (label, (x, y, color)), height in zip(ends.items(), heights, strict=True):
            panel.annotate(
                label,
                (x, y),
                (1.04, height),
                xycoords="axes fraction",
                textcoords="axes fraction",
                va="center",
                fontsize=7,
                color=color,
                arrowprops=_LEADER | {"color": color},
                annotation_clip=False,
            )


def spread_apart(heights: Sequence[float]) -> list[float]:
    """Move heights between 0 and 1 as far apart as lines of small letters need, in their order."""
    gap = min(LABEL_GAP, 1 / max(len(heights), 1))
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = [heights[i] for i in order]
    for i in range(1, len(moved)):
        moved[i] = max(moved[i], moved[i - 1] + gap)
    overhang = max(moved[-1] - 1, 0.0) if moved else 0.0
    top = 1.0 + gap
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], top - gap) if overhang else moved[i]
        top = moved[i]
    spread = [0.0] * len(heights)
    for i, height in zip(order, moved, strict=True):
        spread[i] = height
    return spread


def legend_handle(label: str, **look: Any) -> "Line2D":
    """Create a mark for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def finish_figure(
    figure: "Figure",
    panels: "Sequence[Axes]",
    vertical_label: str,
    *lines: str,
    handles: "Sequence[Artist]" = (),
    order: Iterable[str] = (),
    **legend_options: Any,
) -> "Figure":
    """Add the label of the vertical axes, the lines of a title, and a legend; return the figure.

    The legend is that of `draw_legend`; more marks than it holds are labelled directly.
    """
    label_vertical_axes(panels, vertical_label)
    write_title(figure, *lines)
    shown: set[str] = set()
    for panel in panels:
        labels = panel.get_legend_handles_labels()[1]
        shown.update(label for label in labels if not label.startswith(PRINTED_LABEL))
    if len(shown) > MAX_LEGEND:
        label_directly(figure, panels)
        handles = [handle for handle in handles if str(handle.get_label()) not in shown]
    if handles or len(shown) <= MAX_LEGEND:
        draw_legend(figure, handles, order=order, **legend_options)
    return figure


def needs_log_scale(values: Sequence[float]) -> bool:
    """Return whether values are positive and span a range that needs a logarithmic axis."""
    return bool(values) and min(values) > 0 and max(values) > LOG_FROM * min(values)


def ordinary_range(values: Sequence[float], factor: float) -> tuple[float, float]:
    """Return the least and the greatest of the values that are no outliers.

    Outliers are more than `factor` times as far from zero as all others, which are more than
    half of all; and of positive values, more than `OUTLIER_FACTOR` times nearer to zero than the
    others, which are half of all or more.
    """
    ordered = sorted(values, key=abs)
    half = len(ordered) / 2
    # The outliers far from zero begin at the first wide gap with more than half of the values
    # before it; those near zero end at the last wide gap with at most half before it.
    first_far = len(ordered)
    for index, (before, after) in enumerate(pairwise(map(abs, ordered)), 1):
        if 0 < before * factor < after and index > half:
            first_far = index
            break
    inliers = ordered[:first_far]
    if inliers and min(inliers) > 0:
        last_near = 0
        for index, (before, after) in enumerate(pairwise(inliers), 1):
            if 0 < before * OUTLIER_FACTOR < after and index <= half:
                last_near = index
        inliers = inliers[last_near:]
    return min(inliers, default=0.0), max(inliers, default=0.0)


def central_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the greatest value without those at either end that flatten the rest.

    Values do that are beyond a gap of more than `GAP_FACTOR` times the range of the others, which
    are four or more and over half of all.
    """
    ordered = sorted(values)
    ordered = ordered[: _count_before_gap(ordered)]
    mirrored = [-value for value in reversed(ordered)]
    ordered = ordered[len(ordered) - _count_before_gap(mirrored) :]
    return (ordered[0], ordered[-1]) if ordered else (0.0, 0.0)


def _count_before_gap(ordered: Sequence[float]) -> int:
    """Return how many values, four or more and over half, are before the first wide gap."""
    for index, (before, after) in enumerate(pairwise(ordered), 1):
        inliers = index >= 4 and index > len(ordered) / 2
        if inliers and after - before > GAP_FACTOR * (before - ordered[0]):
            return index
    return len(ordered)


def fit_axis(
    panel: "Axes",
    side: Literal["x", "y"],
    marks: Mapping[Any, Sequence[float]],
    bars: Sequence[float] = (),
    *,
    factor: float = LOG_FROM,
    scale: Literal["log", "linear"] | None = None,
    write_outliers: bool = True,
) -> dict[Any, float]:
    """Set the scale and the limits of an axis so that outliers do not flatten the rest.

    `marks` has the values of each mark. A mark whose largest value is outside `ordinary_range`
    does not count; it is returned with that value, which is written on the panel if
    `write_outliers`. `bars` are ends of error bars, which are seen whole if they do not stretch
    the axis much. The scale is by default logarithmic for positive values that span a wide range,
    if no error bar goes below zero: bars of a standard error do so only where values have both
    signs.
    """
    finite = {
        name: [value for value in values if math.isfinite(value)] for name, values in marks.items()
    }
    largest = {name: max(values, key=abs) for name, values in finite.items() if values}
    zero = ROUNDING * median_high([abs(value) for value in largest.values()] or [0.0])
    log = False
    if scale != "linear":
        low, high = ordinary_range([value for value in largest.values() if value > zero], factor)
        inliers: list[float] = []
        for name, size in largest.items():
            if abs(size) > zero and low <= size <= high:
                inliers += finite[name]
        log = scale == "log" or (needs_log_scale(inliers) and all(end >= 0 for end in bars))
    if not log:
        low, high = ordinary_range(list(largest.values()), factor)
        low, high = central_range([v for v in largest.values() if low <= v <= high])
    outliers = {name: value for name, value in largest.items() if not low <= value <= high}
    if outliers and write_outliers:
        texts = []
        for name, value in outliers.items():
            texts.append(f"{name} ({format_number(value if abs(value) > zero else 0.0)})")
        text = ", ".join(texts)
        corner: dict[str, Any] = {"transform": panel.transAxes, "ha": "left", "va": "top"}
        panel.text(
            0.02, 0.98, fill(f"beyond the axis: {text}", 36), **corner, fontsize=7, color=QUIET
        )
    visible: list[float] = []
    for name, values in finite.items():
        if name not in outliers:
            visible += [value for value in values if value > 0 or not log]
    if not visible:
        return outliers
    low, high = min(visible), max(visible)
    furthest = LOG_FROM * max(map(abs, visible))
    stretch = BAR_STRETCH * ((high - low) or furthest)
    for end in bars:
        near = end > 0 if log else low - stretch <= end <= high + stretch
        if near and abs(end) <= furthest:
            visible.append(end)
    low, high = min(visible), max(visible)
    if log:
        free = max(high / low, 10.0) ** AXIS_MARGIN
        panel.set(**{f"{side}scale": "log", f"{side}lim": (low / free, high * free)})
        label_log_axis(getattr(panel, f"{side}axis"), high / low)
    else:
        margin = AXIS_MARGIN * ((high - low) or abs(high) or 1.0)
        panel.set(**{f"{side}lim": (low - margin, high + margin)})
    return outliers


def bar_ends(value: float, error: float | None) -> tuple[float, float]:
    """Return both ends of an error bar."""
    return value - (error or 0.0), value + (error or 0.0)


def label_log_axis(axis: Any, span: float) -> None:
    """Label a logarithmic axis whose greatest value is `span` times the least."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_minor_formatter(NullFormatter())
    if span < POWERS_FROM:
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0) if span < THREES_TO else (1.0,)))
        axis.set_major_formatter("{x:g}")


def outlier_factor(metric: str) -> float:
    """Return the factor beyond which a value of a metric is an outlier."""
    return LOG_FROM if get_metric_info(metric).kind == "predictive" else OUTLIER_FACTOR
