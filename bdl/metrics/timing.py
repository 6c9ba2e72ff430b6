"""The metric that the runner measures."""

from dataclasses import dataclass
from typing import ClassVar

from bdl.errors import InputError
from bdl.metrics.base import MetricInfo
from bdl.metrics.evaluation import Evaluation


@dataclass(frozen=True)
class Runtime:
    """Wall time of a split, search included, in minutes; a share where splits are fitted together."""

    info: ClassVar = MetricInfo("Runtime", "minutes per split", "ratio", "time")

    def __call__(self, evaluation: Evaluation) -> float:
        """Raise `InputError`: a fit that is over cannot be timed."""
        raise InputError("runtime is measured while a fit runs: leave it out here")
