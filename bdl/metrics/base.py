"""What a metric's number means: its label, its unit and which way is better."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bdl.data import Task


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
    kind
        What it is computed from: predictions, posterior and reference posterior, or the clock.
    task
        What the data set must ask for; None if anything will do.
    """

    name: str
    label: str
    unit: str
    direction: Literal["lower", "higher", "ratio"]
    kind: Literal["predictive", "distance", "time"]
    task: "Task | None" = None


INFO: dict[str, MetricInfo] = {
    info.name: info
    for info in (
        MetricInfo("nmll", "NMLL", "nats per test point", "lower", "predictive", "regression"),
        MetricInfo("joint_nll", "Joint NLL", "nats per test point", "lower", "predictive", "regression"),
        MetricInfo("rmse", "RMSE", "target units", "lower", "predictive", "regression"),
        MetricInfo("rel_mean_dist", "Distance of means", "relative to the reference's norm", "lower", "distance"),
        MetricInfo("rel_cov_dist", "Distance of covariances", "relative to the reference's norm", "lower", "distance"),
        MetricInfo("scaled_w2", "2-Wasserstein", "per parameter", "lower", "distance"),
        MetricInfo("runtime", "Runtime", "minutes per split", "ratio", "time"),
    )
}
"""Metrics by identifier."""
