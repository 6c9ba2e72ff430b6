"""Whether an axis is logarithmic, and how it is labelled then."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axis import Axis

Scale = Literal["log", "linear"]
LOG_FROM = 30.0
"""An axis whose values span more than this factor is logarithmic."""
POWERS_FROM = 1e3
"""Logarithmic axes that span less than this factor are labelled 0.1, 1, 10 rather than with powers of ten."""
THREES_TO = 1e2
"""Those that span less than this factor are labelled 1, 3, 10."""


def scale(values: Iterable[float]) -> Scale:
    """Choose a logarithmic axis for positive values that span a wide range."""
    return "log" if span(values) > LOG_FROM else "linear"


def span(values: Iterable[float]) -> float:
    """Return the factor from the least to the greatest value; 1 unless all of them are positive."""
    ordered = sorted(values)
    return ordered[-1] / ordered[0] if ordered and ordered[0] > 0 else 1.0


def label_logs(axis: "Axis", span: float) -> None:
    """Label a logarithmic axis whose greatest value is `span` times the least."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_minor_formatter(NullFormatter())
    if span < POWERS_FROM:
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0) if span < THREES_TO else (1.0,)))
        axis.set_major_formatter("{x:g}")
