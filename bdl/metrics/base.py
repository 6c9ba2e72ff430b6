"""What a metric is: a score of one fit, and what its number means."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from bdl.errors import InputError

if TYPE_CHECKING:
    from bdl.data import Task
    from bdl.metrics.evaluation import Evaluation


RELATIVE = 0.1
"""Share of the printed number by which errors, distances and counts may differ and still match it."""


@dataclass(frozen=True)
class MetricInfo:
    """How a metric is shown and compared.

    Attributes
    ----------
    label
        Heading in tables and figures.
    unit
        Unit of the values.
    direction
        ``"lower"`` or ``"higher"`` is better; ``"none"`` if neither is; ``"ratio"`` marks a duration, compared as
        paper / ours.
    kind
        What it is computed from: predictions, the posterior, posterior and reference posterior, or the counters.
    task
        What the data set must ask for; None if anything will do.
    margin
        Largest difference from a printed number that does not matter, in the unit; None if it is the share `RELATIVE`
        of the printed number. ``docs/verdicts.md`` has the reasons.
    """

    label: str
    unit: str
    direction: Literal["lower", "higher", "none", "ratio"]
    kind: Literal["predictive", "posterior", "distance", "time"]
    task: "Task | None" = None
    margin: float | None = None

    def margin_of(self, printed: float) -> float:
        """Return the margin about a printed number, in the unit."""
        return RELATIVE * abs(printed) if self.margin is None else self.margin


class Score(Protocol):
    """What a metric must say about itself; a frozen dataclass whose fields are its YAML settings."""

    @property
    def info(self) -> MetricInfo:
        """What its numbers mean; a class attribute, since it does not depend on settings."""
        ...

    def __call__(self, evaluation: "Evaluation") -> float | Mapping[str, float]:
        """Score a fit.

        Returns
        -------
        float or mapping
            The score; or the score under ``""`` and what belongs to it, such as its Monte-Carlo standard error
            ``"mcse"``, by the suffix that the metric's name gets.
        """
        ...


@dataclass(frozen=True)
class Runtime:
    """Wall time of a split, search included, in minutes; a share where splits are fitted together."""

    info: ClassVar = MetricInfo("Runtime", "minutes per split", "ratio", "time")

    def __call__(self, evaluation: "Evaluation") -> float:
        """Raise `InputError`: a fit that is over cannot be timed."""
        raise InputError("runtime is measured while a fit runs: leave it out here")
