"""The search for hyper-parameters, as a benchmark file describes it."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, Self

from pydantic import model_validator

from bdl.spec.fields import Count, NonEmpty, NonNegative, Real, Settings
from bdl.spec.labels import ScoreName


class Range(Settings):
    """Where a hyper-parameter is searched."""

    low: NonNegative
    """Smallest value; above 0 if `scale` is log."""
    high: NonNegative
    """Largest value."""
    scale: Literal["linear", "log"] = "linear"
    """Uniform in the value, or in its logarithm."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            word = "empty" if self.low == self.high else "reversed"
            raise ValueError(f"range {word}: low {self.low:g} must be below high {self.high:g}")
        if self.scale == "log" and self.low == 0:
            raise ValueError("a log range needs low above 0")
        return self


class Search(Settings):
    """Choice of hyper-parameters by cross-validation on the training rows."""

    sampler: Literal["random", "bayesian", "grid"] = "random"
    """How configurations are chosen."""
    trials: Count = 30
    """Number of configurations, except for a grid."""
    startup: Count = 5
    """Random configurations at the start of a Bayesian search."""
    penalty: Real | None = None
    """Score of a failed fold in a Bayesian search; null for the worst of the split so far."""
    folds: Count
    """Folds of the cross-validation on training rows; 1 uses the data set's validation rows, or all training rows for
    a score of the posterior."""
    refit: bool = False
    """With `folds: 1`, whether the final fit trains on the validation rows as well."""
    metric: ScoreName
    """Score whose lowest mean over the folds wins: of predictions, or of the posterior on the rows of the fit, such as
    `neg_elbo`."""
    space: Mapping[str, Range] = {}
    """Range by hyper-parameter, except for a grid. Values are drawn in this order."""
    grid: Mapping[str, NonEmpty[NonNegative]] = {}
    """Values by hyper-parameter; a grid scores every combination."""

    @property
    def names(self) -> tuple[str, ...]:
        """Hyper-parameters that are searched."""
        return (*self.space, *self.grid)

    @property
    def idle(self) -> set[str]:
        """Fields that the sampler does not heed."""
        idle = {"random": {"startup", "penalty", "grid"}, "bayesian": {"grid"}, "grid": {"startup", "penalty"}}
        return idle[self.sampler] | (set() if self.folds == 1 else {"refit"})

    @property
    def refits(self) -> bool:
        """Whether final fits train on validation rows."""
        return self.refit and self.folds == 1

    def training_rows(self, rows: int) -> int:
        """Count the rows that a fold trains on, of so many training rows."""
        return rows if self.folds == 1 else rows - -(-rows // self.folds)

    @model_validator(mode="before")
    @classmethod
    def _count_grid(cls, raw: Any) -> Any:
        """A grid has as many trials as the product of its sizes."""
        grid = raw.get("grid") if isinstance(raw, Mapping) and raw.get("sampler") == "grid" else None
        if isinstance(grid, Mapping) and all(isinstance(values, Sequence) and values for values in grid.values()):
            return {**raw, "trials": prod(map(len, grid.values()))}
        return raw

    @model_validator(mode="after")
    def _either_space_or_grid(self) -> Self:
        wanted, other = ("grid", "space") if self.sampler == "grid" else ("space", "grid")
        if not getattr(self, wanted):
            raise ValueError(f"{wanted}: should not be empty, a {self.sampler} search needs it")
        if getattr(self, other):
            raise ValueError(f"{other}: a {self.sampler} search does not use it; remove it")
        return self

    @model_validator(mode="after")
    def _startup_within_trials(self) -> Self:
        if "startup" not in self.idle and self.startup > self.trials:
            raise ValueError(
                f"startup: {self.startup} evaluations at random are more than the {self.trials} trials; "
                "lower startup or raise trials"
            )
        return self
