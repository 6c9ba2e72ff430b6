"""Numbers along the axis of a sweep."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.reports import drawing
from bdl.reports.axes import grouped, named, number, panel_heading, short, words
from bdl.reports.layout import measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bdl.spec import Benchmark


SEEN: dict[str, Any] = {"linestyle": (0, (1, 1.2)), "linewidth": 1.2, "marker": ""}
"""Scores of training rows, in the colours of those of new rows."""
TOLD_SEEN = "dotted: training rows"


class Mark(NamedTuple):
    """A number with its error at one point of a sweep."""

    dataset: str
    entry: str
    point: Mapping[str, str]
    """Path of each axis to the JSON of its value."""
    value: float | None
    error: float | None
    """Half the length of its bar."""


def swept_figure(
    benchmark: "Benchmark",
    metric: str,
    lines: Sequence[str],
    marks: Sequence[Mark],
    *,
    seen: Sequence[Mark] = (),
    around_zero: bool = False,
) -> "Figure":
    """Draw the first axis of the sweep from left to right.

    Parameters
    ----------
    benchmark
        Whose sweep.
    metric, lines
        What the vertical axes show, and the title of the figure.
    marks
        Each data set, and each combination of the other axes' values, has a panel; a few of these combinations stand
        side by side on one scale, a data set a line. Each entry has a line of values with their errors, with a gap
        where there is none.
    seen
        The same of training rows: dotted lines.
    around_zero
        Whether the values are differences: 0 has a line, and no scale is logarithmic.
    """
    axis, *_ = benchmark.axes
    by_panel, below = _by_panel(marks, axis), _by_panel(seen, axis)
    beside = len({others for _, others in by_panel})
    alike = 1 < beside <= drawing.MOST
    figure, panels = drawing.grid(
        len(by_panel), (3.0, 2.4), columns=beside if alike else None, sharey="row" if alike else "none"
    )
    styles = drawing.styles(benchmark.entries)
    for panel, (place, own) in zip(panels, by_panel.items(), strict=True):
        drawing.dress(panel, panel_heading(*place))
        if around_zero:
            panel.axhline(0, color=drawing.QUIET, linestyle=":", linewidth=1.2, zorder=1)
        places = _places(own, axis)
        for entry in dict.fromkeys(mark.entry for mark in own):
            x, y, errors = _line(own, entry, places, axis)
            panel.errorbar(x, y, yerr=errors, label=entry, **{**drawing.BARS, **styles[entry]})
            if place in below:
                x, y, _ = _line(below[place], entry, places, axis)
                panel.plot(x, y, **{**styles[entry], **SEEN})
        _horizontal(panel, own, axis)
        level = (
            [mark for mark in (*marks, *seen) if mark.dataset == place[0]] if alike else [*own, *below.get(place, ())]
        )
        _vertical(panel, level, drawing.far(metric), around_zero)
    label = f"difference in {measure(metric)}" if around_zero else measure(metric)
    drawing.label_left(panels, label)
    drawing.title(figure, *lines)
    drawing.legend(figure, order=styles)
    return figure


def _by_panel(marks: Sequence[Mark], axis: str) -> dict[tuple[str, str], list[Mark]]:
    """Group marks by data set and the values of the other axes."""

    def place(mark: Mark) -> tuple[str, str]:
        return mark.dataset, named({path: text for path, text in mark.point.items() if path != axis})

    return grouped(marks, place)


def _line(
    marks: Sequence[Mark], entry: str, places: Mapping[str, float], axis: str
) -> tuple[list[float], list[float], list[float]]:
    """Return places, values and errors of an entry, from left to right; NaN where there is none."""
    line = sorted((mark for mark in marks if mark.entry == entry), key=lambda mark: places[mark.point[axis]])
    values = [math.nan if mark.value is None else mark.value for mark in line]
    errors = [math.nan if mark.error is None else mark.error for mark in line]
    return [places[mark.point[axis]] for mark in line], values, errors


def _horizontal(panel: "Axes", marks: Sequence[Mark], axis: str) -> None:
    """Put a tick at each value of the sweep."""
    places = _places(marks, axis)
    if _geometric(sorted(places.values())):
        panel.set_xscale("log")
    panel.set_xticks(list(places.values()), [short(text) for text in places])
    panel.minorticks_off()
    panel.margins(x=0.08)
    panel.set_xlabel(words(axis))


def _vertical(panel: "Axes", marks: Sequence[Mark], factor: float, around_zero: bool) -> None:
    """Choose scale and limits so that no line flattens the others."""
    values: dict[str, list[float]] = {}
    for mark in marks:
        values.setdefault(mark.entry, []).extend([mark.value] if mark.value is not None else [])
    bars = [mark.value + sign * (mark.error or 0) for mark in marks if mark.value is not None for sign in (-1, 1)]
    zero = [0.0] if around_zero else []
    drawing.fit(panel, "y", values, bars + zero, factor=factor, scale="linear" if around_zero else None)


def _places(marks: Sequence[Mark], axis: str) -> dict[str, float]:
    """Put values where their numbers are, or side by side in the order of the sweep if one of them is no number."""
    texts = list(dict.fromkeys(mark.point[axis] for mark in marks))
    known = {text: place for text in texts if (place := number(text)) is not None}
    return known if len(known) == len(texts) else {text: float(i) for i, text in enumerate(texts)}


def _geometric(places: Sequence[float]) -> bool:
    """Return whether a logarithmic axis sets the two closest of ascending places further apart than a linear one."""
    if len(places) < 3 or places[0] <= 0:
        return False
    logs = [math.log(place) for place in places]
    closest, closest_logs = (
        min(b - a for a, b in pairwise(found)) / (found[-1] - found[0]) for found in (places, logs)
    )
    return closest_logs > closest
