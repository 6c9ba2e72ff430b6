"""What all figures share: style, panels, styles of entries, axes that fit what is ordinary, and legends."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, pairwise
from statistics import median_high
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from bdl.metrics import info
from bdl.reports.layout import quantity

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
"""Palette of Okabe and Ito (2008), told apart under every common colour blindness, without its
yellow, too pale for
lines; two more, that nine entries have colours of their own."""
MARKERS = "osD^v"
DASHES: tuple[Any, ...] = tuple(line for line in ("-", (0, (3, 1.5)), ":") for _ in COLORS)
"""Lines of the first entries, which have the colours once, and of those that have them again."""
OURS: dict[str, Any] = {"color": COLORS[0], "marker": "o", "markersize": 6.5}
PAPER: dict[str, Any] = {
    "color": COLORS[1],
    "marker": "D",
    "markersize": 6,
    "markerfacecolor": "white",
}
PAPER["markeredgewidth"] = 1.4
PRINTED = PAPER | {"markersize": 4.5, "markeredgewidth": 1.2, "linestyle": "none"}
"""Printed values beside lines; the colour is the entry's."""
DOTS: dict[str, Any] = {"marker": "o", "markersize": 2.4, "linewidth": 1.4}
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
MIN_WIDTH, MOST = 5.5, 4  # of a figure, in inches; panels in a line

LOG_FROM = 30.0
"""An axis of positive values that span more than this factor is logarithmic."""
FAR = 1e4
"""Distances and durations differ by orders of magnitude: only beyond this factor from the next is
one out of all
proportion; scores already beyond `LOG_FROM`."""
ROUNDING = 1e-9
"""Values that are smaller, in medians, are zero but for rounding, and do not keep an axis from
being logarithmic.
"""
POWERS_FROM, THREES_TO = 1e3, 1e2
"""Logarithmic axes that span less are labelled 0.1, 1, 10 rather than with powers of ten; still
less, 1, 3, 10.
"""
FREE = 0.08  # share of the range that is shown, at either end

Drawings = Mapping[str, Callable[[], "Figure"]]
"""Name of a file to what draws it."""
Styles = Mapping[str, Mapping[str, Any]]


def title(figure: "Figure", *lines: str) -> "Text":
    """Write the title of a figure; lines that are longer than it is wide are broken."""
    return figure.suptitle(
        "\n".join(line for line in lines if line), fontsize=11, x=0.01, ha="left", wrap=True
    )


def grid(
    count: int,
    size: tuple[float, float],
    *,
    columns: int | None = None,
    downwards: bool = False,
    **shared: Any,
) -> "tuple[Figure, list[Axes]]":
    """Lay out panels of one size (width and height in inches), with space for a title above and a legend below.

    There are at most four in a line unless `columns` says otherwise; `shared` is `sharex` and
    `sharey` of matplotlib.
    """
    from matplotlib.figure import Figure

    columns = columns or min(count, MOST)
    lines = math.ceil(count / columns)
    inches = max(size[0] * columns + 0.4, MIN_WIDTH), size[1] * lines + 1.1
    figure = Figure(figsize=inches, layout="constrained", facecolor="white")
    panels = figure.subplots(lines, columns, squeeze=False, **shared)
    ordered = list((panels.T if downwards else panels).ravel())
    for above, panel in zip(panels[:-1].ravel(), panels[1:].ravel(), strict=True):
        if panel in ordered[count:]:
            above.tick_params(labelbottom=True)  # nothing is below
    for panel in ordered[count:]:
        panel.remove()
    return figure, ordered[:count]


def dress(
    panel: "Axes", heading: str, lines: Literal["x", "y", "both"] = "both", *, bold: bool = True
) -> None:
    """Put a heading on a panel, grid lines, and no more frame than it needs."""
    panel.set_title(heading, fontsize=10, fontweight="bold" if bold else "normal", loc="left")
    panel.grid(axis=lines)
    panel.tick_params(which="both", length=0)
    panel.spines[["left", "right", "top"] if lines != "both" else [*panel.spines]].set_visible(
        False
    )


def label_left(panels: "Sequence[Axes]", text: str) -> None:
    """Write what the vertical axes show on the panels that have none to their left."""
    for panel in panels:
        place = panel.get_subplotspec()
        if place is not None and place.colspan.start == 0:
            panel.set_ylabel(fill(text, 26))


def styles(entries: Sequence[str] | Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the colour, marker and line of each entry, alike in all figures.

    The first 27 differ.
    """
    return {
        name: {"color": color, "marker": marker, "linestyle": line}
        for name, color, marker, line in zip(
            entries, cycle(COLORS), cycle(MARKERS), cycle(DASHES), strict=False
        )
    }


def legend(
    figure: "Figure",
    handles: "Sequence[Artist]" = (),
    *,
    order: Iterable[str] = (),
    columns: int = 4,
    **place: Any,
) -> None:
    """Describe marks below the panels: `handles`, or else what the panels have labelled, each label once, in order."""
    labelled = {str(handle.get_label()): handle for handle in handles}
    for panel in () if handles else figure.axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            labelled.setdefault(label, handle)
    labels = [label for label in dict.fromkeys((*order, *labelled)) if label in labelled]
    options = {"loc": "outside lower center", "ncols": columns, "frameon": False} | place
    figure.legend([labelled[label] for label in labels], labels, **options)


def handle(label: str, **look: Any) -> "Line2D":
    """Return a mark for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, **look)


def finished(
    figure: "Figure",
    panels: "Sequence[Axes]",
    up: str,
    *lines: str,
    handles: "Sequence[Artist]" = (),
    order: Iterable[str] = (),
    **place: Any,
) -> "Figure":
    """Return a figure with what its vertical axes show, its title in lines, and its legend, as `legend` takes it."""
    label_left(panels, up)
    title(figure, *lines)
    legend(figure, handles, order=order, **place)
    return figure


def log_scale(values: Sequence[float]) -> bool:
    """Return whether values need a logarithmic axis: positive ones that span a wide range."""
    return bool(values) and min(values) > 0 and max(values) > LOG_FROM * min(values)


def ordinary(values: Sequence[float], factor: float) -> tuple[float, float]:
    """Return the least and the greatest value that are not out of all proportion.

    Left out is what is more than `factor` times as far from zero as all of the others, more than
    half of all; and of positive values what is more than `FAR` times nearer to zero than the
    others, half of all or more.
    """
    ordered = sorted(values, key=abs)
    sizes = [abs(value) for value in ordered]
    above = [
        i
        for i, (a, b) in enumerate(pairwise(sizes), 1)
        if 0 < a * factor < b and 2 * i > len(sizes)
    ]
    kept = ordered[: min(above, default=len(ordered))]
    below = [
        i for i, (a, b) in enumerate(pairwise(kept), 1) if 0 < a * FAR < b and 2 * i <= len(sizes)
    ]
    shown = kept[max(below, default=0) if kept and min(kept) > 0 else 0 :] or [0.0]
    return min(shown), max(shown)


def fit(
    panel: "Axes",
    side: Literal["x", "y"],
    marks: Mapping[Any, Sequence[float]],
    bars: Sequence[float] = (),
    *,
    factor: float = LOG_FROM,
    scale: Literal["log", "linear"] | None = None,
    say: bool = True,
) -> dict[Any, float]:
    """Set the scale and the limits of an axis so that what is out of all proportion does not flatten the rest.

    `marks` has the values of what is drawn; one whose largest value is not `ordinary` does not
    count, and is returned with that value, which is written on the panel if it is to `say` so.
    `bars` are ends of error bars, which are seen whole if they do not stretch the axis much. The
    scale is by default logarithmic for positive values that span a wide range, if no error bar
    goes below zero: bars of a standard error do so only where values have both signs.
    """
    finite = {
        name: [value for value in values if math.isfinite(value)] for name, values in marks.items()
    }
    largest = {name: max(values, key=abs) for name, values in finite.items() if values}
    zero = ROUNDING * median_high([abs(value) for value in largest.values()] or [0.0])
    log = False
    if scale != "linear":
        low, high = ordinary([value for value in largest.values() if value > zero], factor)
        clear = [
            v
            for name, size in largest.items()
            if abs(size) > zero and low <= size <= high
            for v in finite[name]
        ]
        log = scale == "log" or (log_scale(clear) and all(end >= 0 for end in bars))
    if not log:
        low, high = ordinary(list(largest.values()), factor)
    beyond = {name: value for name, value in largest.items() if not low <= value <= high}
    if beyond and say:
        text = ", ".join(f"{name} ({quantity(value)})" for name, value in beyond.items())
        place: dict[str, Any] = {"transform": panel.transAxes, "ha": "left", "va": "top"}
        panel.text(
            0.02, 0.98, fill(f"beyond the axis: {text}", 36), **place, fontsize=7, color=QUIET
        )
    kept = [value for name, values in finite.items() if name not in beyond for value in values]
    kept = [value for value in kept if value > 0 or not log]
    if not kept:
        return beyond
    most = LOG_FROM * max(map(abs, kept))
    kept += [end for end in bars if abs(end) <= most and (end > 0 or not log)]
    low, high = min(kept), max(kept)
    if log:
        free = max(high / low, 10.0) ** FREE
        panel.set(**{f"{side}scale": "log", f"{side}lim": (low / free, high * free)})
        label_logs(getattr(panel, f"{side}axis"), high / low)
    else:
        way = FREE * ((high - low) or abs(high) or 1.0)
        panel.set(**{f"{side}lim": (low - way, high + way)})
    return beyond


def ends(value: float, error: float | None) -> tuple[float, float]:
    """Return both ends of an error bar."""
    return value - (error or 0.0), value + (error or 0.0)


def label_logs(axis: Any, span: float) -> None:
    """Label a logarithmic axis whose greatest value is `span` times the least."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_minor_formatter(NullFormatter())
    if span < POWERS_FROM:
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0) if span < THREES_TO else (1.0,)))
        axis.set_major_formatter("{x:g}")


def far(metric: str) -> float:
    """Return the factor from which on a value of a metric is out of all proportion to the others."""
    return LOG_FROM if info(metric).kind == "predictive" else FAR
