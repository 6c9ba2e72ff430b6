"""Numbers from a posterior or its predictions."""

from bdl.metrics.base import INFO, MetricInfo
from bdl.registry import Registry

METRICS = Registry(
    "metric",
    {
        "nmll": "bdl.metrics.predictive:nmll",
        "rmse": "bdl.metrics.predictive:rmse",
    },
)
"""Functions of saved predictions; ``runtime`` is measured by the runner and is not among them."""

__all__ = ["INFO", "METRICS", "MetricInfo"]
