"""Sections of a benchmark file: preparation of data, training and when it is scored, search of settings."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Annotated, Any, Literal, Self

from annotated_types import Gt, Le
from pydantic import Field, TypeAdapter, WrapValidator, model_validator

from bdl.spec.components import RateComponent
from bdl.spec.fields import MOST, Count, NonEmpty, NonNegative, Real, Settings
from bdl.spec.labels import DatasetLabel, ScoreName
from bdl.training.schedule import Incomplete, Precision, Sampling, Schedule

_ALL: TypeAdapter[Any] = TypeAdapter(Count)
_EACH: TypeAdapter[Any] = TypeAdapter(Mapping[DatasetLabel, Count])


def _all_or_each(raw: Any, handler: object) -> Any:
    """Read one number or a mapping; problems are those of the form that is meant."""
    return (_EACH if isinstance(raw, Mapping) else _ALL).validate_python(raw, strict=True)


class Preparation(Settings):
    """How data are split and standardised."""

    split: Literal["published", "first", "half", "other-half", "gap", "tail"] = "published"
    """The data set's own splits; or replicates of the first of them, or of one of two fixed halves of the rows; or, for
    each input, what is tested lies between what trains, or beyond it."""
    standardise: Literal["both", "inputs", "none"] = "both"
    """What is scaled by the training rows: inputs and targets (but not labels), inputs alone, or nothing."""
    rows: Annotated[Count | Mapping[DatasetLabel, Count], WrapValidator(_all_or_each)] = Field(default_factory=dict)
    """Training rows that are kept, the first of each split: one number for all data sets, or data set to number; those
    without a number keep all."""

    splits: Mapping[DatasetLabel, Count] = {}
    """Data set to the number of its splits that run, where it has fewer than the benchmark runs of the others."""

    @property
    def repeats(self) -> bool:
        """Whether all splits are the same one."""
        return self.split in ("first", "half", "other-half")

    def rows_of(self, dataset: str) -> int | None:
        """Return the number of training rows that are kept of a data set; None for all."""
        return self.rows if isinstance(self.rows, int) else self.rows.get(dataset)

    def dump_on(self, dataset: str, *, defaults: bool = True) -> dict[str, Any]:
        """List the settings for one data set as JSON values; rows only where some are left out.

        Parameters
        ----------
        dataset
            Its label.
        defaults
            Whether settings that have their default value are listed, too.
        """
        rows = self.rows_of(dataset)
        settings = self.model_dump(mode="json", exclude={"rows", "splits"}, exclude_defaults=not defaults)
        return settings | ({} if rows is None else {"rows": rows})


def _rate_or_groups(raw: Any, handler: object) -> Any:
    """Read one rate, which has a name, or else a rate for each group; problems are those of the form that is meant."""
    if isinstance(raw, RateComponent):
        return raw
    named = not isinstance(raw, Mapping) or isinstance(raw.get("name"), str) or not raw
    return RateComponent.model_validate(raw) if named else _GROUPS.validate_python(raw)


_GROUPS: TypeAdapter[Any] = TypeAdapter(Mapping[str, RateComponent])


class Training(Settings):
    """How long one fit trains, and on what."""

    epochs: Count
    """Passes over the training rows."""
    batch_size: Count
    """Rows of a minibatch."""
    schedule: Annotated[RateComponent | Mapping[str, RateComponent], WrapValidator(_rate_or_groups)] = Field(
        default_factory=lambda: RateComponent.model_validate({"name": "constant"})
    )
    """Factor of the learning rate, or one for each group of parameters."""
    sampling: Sampling = "without_replacement"
    """Permute the rows in each epoch, or draw every row from all."""
    incomplete: Incomplete = "drop"
    """Last minibatch of an epoch; `keep` needs a method with one minibatch an update."""
    dtype: Precision = "float32"
    """Type of the numbers that are trained."""

    def build(self) -> Schedule:
        """Make what the engine trains by; a rate for all parameters is under the empty name."""
        groups = {"": self.schedule} if isinstance(self.schedule, RateComponent) else self.schedule
        rates = {group: rate.build() for group, rate in groups.items()}
        return Schedule(self.epochs, self.batch_size, rates, self.sampling, self.incomplete, self.dtype)


class Record(Settings):
    """When a fit is looked at while it runs."""

    unit: Literal["epochs", "updates", "observations"]
    """What is counted; observations are those of a stream."""
    every: Count | None = None
    """Interval between evaluations; null with `log`."""
    log: bool = False
    """Evaluate at 1, 2, 5, 10, 20, 50 and so on instead."""
    first: Count = 1
    """First evaluation with `log`."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.log == (self.every is not None):
            raise ValueError("give either every, or log: true")
        if self.first != 1 and not self.log:
            raise ValueError(
                "first: evaluations every so often begin with every itself; remove first, or use log: true"
            )
        return self


class Limits(Settings):
    """Limits of each group; one that goes beyond them is failed rows with the reason, and the rest goes on."""

    minutes: Annotated[float, Gt(0), Le(MOST)] | None = None
    """Wall time; null for as long as it takes."""
    gigabytes: Annotated[float, Gt(0), Le(MOST)] | None = None
    """Memory of the process that it runs in, in GiB, where the system can limit it; null for all that there is."""


STREAM_RECORD = Record(unit="observations", log=True, first=100)
"""When a stream is looked at, unless a benchmark says otherwise."""


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
