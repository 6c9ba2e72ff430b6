"""What a metric's number means: its label, its unit and which way is better."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MetricInfo:
    """How a metric is shown and compared.

    Attributes
    ----------
    name
        Identifier in result columns and in the tables of paper values.
    label
        Heading in tables and figures.
    unit
        Unit of the values.
    direction
        ``"lower"`` or ``"higher"`` is better; ``"ratio"`` marks a duration, compared as paper / ours.
    """

    name: str
    label: str
    unit: str
    direction: Literal["lower", "higher", "ratio"]


INFO: dict[str, MetricInfo] = {
    info.name: info
    for info in (
        MetricInfo("nmll", "NMLL", "nats per test point", "lower"),
        MetricInfo("rmse", "RMSE", "target units", "lower"),
        MetricInfo("runtime", "Runtime", "minutes per split", "ratio"),
    )
}
"""Metrics by identifier."""
