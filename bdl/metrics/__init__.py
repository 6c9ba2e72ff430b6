"""Numbers from a posterior or its predictions."""

from bdl.metrics.base import INFO, MetricInfo
from bdl.registry import Registry

METRICS = Registry(
    "metric",
    {
        "nmll": "bdl.metrics.predictive:nmll",
        "joint_nll": "bdl.metrics.predictive:joint_nll",
        "rmse": "bdl.metrics.predictive:rmse",
        "rel_mean_dist": "bdl.metrics.distances:rel_mean_dist",
        "rel_cov_dist": "bdl.metrics.distances:rel_cov_dist",
        "scaled_w2": "bdl.metrics.distances:scaled_w2",
    },
)
"""Functions of saved predictions, or of moments (`mean`, `cov`, `reference_mean`, `reference_cov`, asked for by name).

``runtime`` is measured by the runner and is not among them.
"""

__all__ = ["INFO", "METRICS", "MetricInfo"]
