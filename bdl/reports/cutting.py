"""Values out of all proportion: an axis ends before them, with an arrow and the number."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from bdl.metrics import MetricInfo
from bdl.reports.scales import LOG_FROM

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAR = 1e4
"""Distances and durations differ by orders of magnitude: only beyond this factor from the next is one out of all
proportion; scores already beyond `LOG_FROM`."""
PART = 0.12
"""Of the range that is shown, left free at either end."""


class Range(NamedTuple):
    """Where the values lie that an axis shows; what is outside has an arrow."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], factor: float) -> "Range":
        """Leave out what is more than `factor` times as far from zero as all of the others, at least half of all.

        So many times nearer to zero, where all values are positive, is out of proportion as well.
        """
        ordered = sorted(values, key=abs)
        half = (len(ordered) + 1) // 2
        jumps = [i for i, (a, b) in enumerate(pairwise(ordered), 1) if 0 < abs(a) * factor < abs(b)]
        last = min((i for i in jumps if i > len(ordered) / 2), default=len(ordered))
        positive = ordered and min(ordered) > 0
        first = max((i for i in jumps if i < half and i < last), default=0) if positive else 0
        shown = ordered[first:last] or [0.0]
        return cls(min(shown), max(shown))

    def beyond(self, value: float) -> bool:
        """Return whether a value has an arrow in place of a mark."""
        return not self.low <= value <= self.high


def factor(about: MetricInfo) -> float:
    """Return how many times the others a value may be before it is out of all proportion."""
    return LOG_FROM if about.kind == "predictive" else FAR


def limit(panel: "Axes", shown: Range, ends: Sequence[float]) -> None:
    """End the horizontal axis around what it shows; of bars, those are seen whole that do not stretch it much.

    Parameters
    ----------
    panel
        With its scale, linear or logarithmic.
    shown
        Of the values.
    ends
        Of their bars.
    """
    logs = panel.get_xscale() == "log"
    reach = LOG_FROM * max(abs(shown.low), abs(shown.high))
    near = [end for end in ends if abs(end) <= reach and (end > 0 or not logs)]
    low, high = min([shown.low, *near]), max([shown.high, *near])
    if logs:
        way = max(high / low, 1.1) ** PART
        panel.set_xlim(low / way, high * way)
    else:
        way = PART * ((high - low) or abs(high) or 1.0)
        panel.set_xlim(low - way, high + way)


def arrow(panel: "Axes", row: float, value: float, shown: Range, style: dict[str, Any]) -> None:
    """Point to a value that is beyond the axis, and write it."""
    right = value > shown.high
    edge, inner = (1.0, 0.9) if right else (0.0, 0.1)
    across = panel.get_yaxis_transform()
    look = {"arrowstyle": "-|>", "color": style["color"], "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    panel.annotate("", (edge, row), (inner, row), xycoords=across, textcoords=across, arrowprops=look)
    side = {"ha": "right" if right else "left", "va": "center", "color": style["color"]}
    panel.text(2 * inner - edge + (0.08 if right else -0.08), row, brief(value), transform=across, fontsize=8, **side)


def brief(value: float) -> str:
    """Write a number with two digits: ``4.2e17``, ``1500``."""
    mantissa, e, exponent = f"{value:.2g}".partition("e")
    if e and 0 <= int(exponent) < 5:
        return f"{float(value):.0f}"
    return f"{mantissa}e{int(exponent)}" if e else mantissa
