"""A score of your own: the mean absolute error, to be changed. What is here runs.

Name it in a benchmark file by the path of this file:

    metrics: [nmll, {name: score.py:MyScore, scale: 2}]

A score that is added to a finished run needs no training: it is computed from the stored
posteriors.
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

    # A setting is a field with a type and a default; a benchmark file changes it beside the name.
    scale: Annotated[float, Gt(0)] = 1.0

    # Heading and unit in tables; "lower", "higher" or "none" is better; the kind; the task that it
    # is for.
    info: ClassVar[MetricInfo] = MetricInfo(
        "MAE", "target units", "lower", "predictive", "regression"
    )

    def __call__(self, evaluation: Evaluation) -> float:
        """Score one fit.

        `evaluation` has the test rows (`tested.x`, `tested.y`), the predictions for them
        (`predictions.mean`, `predictions.probabilities`) and the `posterior`; each is computed
        when it is first used.
        """
        errors = evaluation.predictions.mean - evaluation.tested.y
        return self.scale * float(errors.abs().mean())
