"""Axes for values around 0 of which a few are out of all proportion."""

import math
from collections.abc import Sequence
from statistics import median_low
from typing import TYPE_CHECKING

from bdl.reports.scales import LOG_FROM

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADE = "#f4f4f4"
"""Background where the axis is logarithmic."""


def widen(panel: "Axes", reaches: Sequence[float]) -> None:
    """Make the horizontal axis logarithmic, and shade it, beyond the rows of ordinary size, if any row goes beyond.

    Parameters
    ----------
    panel
        With everything drawn that has a place on the axis.
    reaches
        Largest distance from 0 that each row has, > 0. Ordinary are those of at most 30 times the (lower) median.
    """
    usual = LOG_FROM * median_low(reaches or [0.0])
    last = max(reaches, default=0.0)
    if last <= usual:
        return
    edge = _round_up(max(reach for reach in reaches if reach <= usual))
    if last <= edge:
        return
    far = 10.0 ** math.floor(math.log10(last))
    # As wide as the logarithms on one side, so that the linear part keeps half of the panel or more.
    panel.set_xscale("symlog", linthresh=edge, linscale=max(1.0, math.log10(last / edge)))
    limits = panel.get_xlim()
    ticks = sorted({-far, -edge, 0.0, edge, far})
    panel.set_xticks(ticks, [_label(tick) for tick in ticks], fontsize=8)
    panel.axvspan(limits[0], -edge, color=SHADE, zorder=0)
    panel.axvspan(edge, limits[1], color=SHADE, zorder=0)
    panel.set_xlim(limits)  # spans and ticks outside of what is drawn are not shown


def _round_up(value: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    size = 10.0 ** math.floor(math.log10(value))
    return size * next(step for step in (1, 2, 5, 10) if value <= step * size)


def _label(value: float) -> str:
    """Write a number of one digit, with a power of ten if it is very small or large."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:g}".replace("-", "\N{MINUS SIGN}")
    digit, exponent = f"{value:.0e}".split("e")
    return f"${digit}{{\\times}}10^{{{int(exponent)}}}$".replace("1{\\times}", "")
