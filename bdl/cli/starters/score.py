"""A score of your own to start from: the mean absolute error. It runs as it is.

Name it in a benchmark file by the path of this file:

    metrics: [nmll, {name: score.py:MyScore, scale: 2}]

Adding a score to a finished run needs no training: the stored posteriors are evaluated again.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt

from bdl.metrics import MetricInfo
from bdl.metrics.evaluation import Evaluation


@dataclass(frozen=True)
class MyScore:
    """Mean absolute error of the predictive mean.

    Parameters
    ----------
    scale
        Factor of the errors.
    """

    # A setting is a field with a type and a default; a benchmark file sets it after the name.
    scale: Annotated[float, Gt(0)] = 1.0

    # Heading and unit in tables, the better direction ("lower", "higher" or "none"), the kind, and
    # the task that it scores.
    info: ClassVar[MetricInfo] = MetricInfo(
        "MAE", "target units", "lower", "predictive", "regression"
    )

    def __call__(self, evaluation: Evaluation) -> float:
        """Return the score of one fit.

        `evaluation` has the test rows (`tested.x`, `tested.y`), the predictions for them
        (`predictions.mean`, `predictions.probabilities`) and the `posterior`; each is computed
        when it is first used.
        """
        errors = evaluation.predictions.mean - evaluation.tested.y
        return self.scale * float(errors.abs().mean())
