"""Sections of a benchmark file: preparation, training, record, limits, tables, notes, claims."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from annotated_types import Gt, Le
from pydantic import Field, TypeAdapter, ValidationInfo, WrapValidator, model_validator

from bdl.spec.components import RateComponent
from bdl.spec.fields import (
    CHECKED_CONTEXT,
    MAX_INTEGER,
    Count,
    Index,
    Items,
    NonEmpty,
    Real,
    SpecSection,
    Text,
)
from bdl.spec.labels import DatasetLabel, MetricLabel
from bdl.training.schedule import Incomplete, Precision, Sampling, Schedule

_COUNT_ADAPTER: TypeAdapter[Any] = TypeAdapter(Count)
_COUNTS_ADAPTER: TypeAdapter[Any] = TypeAdapter(Mapping[DatasetLabel, Count])


def _read_count_or_counts(raw: Any, handler: object) -> Any:
    """Read one number or a mapping.

    Not a union of types: pydantic would report the problems of both forms.
    """
    return (_COUNTS_ADAPTER if isinstance(raw, Mapping) else _COUNT_ADAPTER).validate_python(
        raw, strict=True
    )


class Preparation(SpecSection):
    """Split and standardisation of the data."""

    split: Literal["published", "first", "other-first", "half", "other-half", "gap", "tail"] = (
        "published"
    )
    """The data set's own splits; or replicates of the first of them, of the rows that it tests,
    or of one of two fixed halves of the rows; or, for each input, what is tested lies between
    what trains, or beyond it.
    """
    standardise: Literal["both", "inputs", "none"] = "both"
    """Values that are scaled by the training rows: inputs and targets (but not labels), inputs, or
    nothing.
    """
    rows: Annotated[Count | Mapping[DatasetLabel, Count], WrapValidator(_read_count_or_counts)] = (
        Field(default_factory=dict)
    )
    """Training rows that are kept, the first of each split: one number for all data sets, or data
    set to number; those
    without a number keep all."""

    splits: Mapping[DatasetLabel, Count] = {}
    """Data set to the number of its splits that run, where it has fewer than the benchmark runs
    of the others.
    """

    @property
    def repeats(self) -> bool:
        """Whether all splits are the same one."""
        return self.split in ("first", "other-first", "half", "other-half")

    def rows_of(self, dataset: str) -> int | None:
        """Return the number of training rows that are kept of a data set; None for all."""
        return self.rows if isinstance(self.rows, int) else self.rows.get(dataset)

    def dump_on(self, dataset: str, *, defaults: bool = True) -> dict[str, Any]:
        """Return the settings for one data set as JSON values, with or without defaults.

        Rows are among them where the data set is cut.
        """
        rows = self.rows_of(dataset)
        settings = self.model_dump(
            mode="json", exclude={"rows", "splits"}, exclude_defaults=not defaults
        )
        return settings | ({} if rows is None else {"rows": rows})


def _read_rate_or_rates(raw: Any, handler: object, info: ValidationInfo) -> Any:
    """Read one rate, which has a name, or else a rate for each group.

    Not a union of types: pydantic would report the problems of both forms.
    """
    if isinstance(raw, RateComponent):
        return raw
    is_rate = not isinstance(raw, Mapping) or isinstance(raw.get("name"), str) or not raw
    if is_rate:
        return RateComponent.model_validate(raw, context=info.context)
    return _RATES_ADAPTER.validate_python(raw, context=info.context)


_RATES_ADAPTER: TypeAdapter[Any] = TypeAdapter(Mapping[str, RateComponent])


class Training(SpecSection):
    """Length, minibatches and learning rate of one fit."""

    epochs: Count
    """Passes over the training rows."""
    batch_size: Count
    """Rows of a minibatch."""
    schedule: Annotated[
        RateComponent | Mapping[str, RateComponent], WrapValidator(_read_rate_or_rates)
    ] = Field(
        default_factory=lambda: RateComponent.model_validate(
            {"name": "constant"}, context=CHECKED_CONTEXT
        )
    )
    """Factor of the learning rate, or one for each group of parameters."""
    sampling: Sampling = "without_replacement"
    """Permute the rows in each epoch, or draw every row from all."""
    incomplete: Incomplete = "drop"
    """Last minibatch of an epoch; `keep` needs a method with one minibatch an update."""
    dtype: Precision = "float32"
    """Type of the numbers that are trained."""

    def build(self) -> Schedule:
        """Return the schedule of the engine; a rate for all parameters has the empty name."""
        groups = {"": self.schedule} if isinstance(self.schedule, RateComponent) else self.schedule
        rates = {group: rate.build() for group, rate in groups.items()}
        return Schedule(
            self.epochs, self.batch_size, rates, self.sampling, self.incomplete, self.dtype
        )


class Record(SpecSection):
    """Evaluations of a fit while it runs."""

    unit: Literal["epochs", "updates", "observations"]
    """Unit of the counts; observations are those of a stream."""
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
                "first: evaluations every so often begin with every itself; "
                "remove first, or use log: true"
            )
        return self


class Limits(SpecSection):
    """Limits of each group.

    One that goes beyond them is failed rows with the reason, and the rest goes on.
    """

    minutes: Annotated[float, Gt(0), Le(MAX_INTEGER)] | None = None
    """Wall time; null for as long as it takes."""
    gigabytes: Annotated[float, Gt(0), Le(MAX_INTEGER)] | None = None
    """Memory of the process that it runs in, in GiB, where the system can limit it; null for all
    that there is.
    """


STREAM_RECORD = Record(unit="observations", log=True, first=100)
"""Evaluations of a stream, unless a benchmark has others."""


class PaperTables(SpecSection):
    """Printed tables that the benchmark reproduces."""

    paper: Text
    """Identifier of the paper."""
    tables: NonEmpty[Text]
    """Tables, the preferred first."""
    task: Text
    """The paper's experiment."""
    methods: Mapping[str, Text]
    """Entry to the paper's method; with a space and its setting where the paper has several:
    `vifa latent_dim=1`.
    """
    datasets: Mapping[DatasetLabel, Text] = {}
    """Our data set to the paper's and its setting, `synthetic obs_dim=100`, those listed alone;
    empty where the names
    are the same."""
    metrics: Mapping[MetricLabel, Text] = {}
    """Our metric to the paper's, with a leading `-` for one of opposite sign, those listed alone;
    empty for all
    metrics that have the same name."""
    split: Index | None = None
    """The split whose values are printed, if it is one alone; null where they are statistics over
    splits, or a single
    run that is held against all of ours."""
    uncounted: Items[DatasetLabel] = ()
    """Data sets whose comparisons are shown and not counted, since another one is of the same
    numbers, made as the authors made theirs.
    """
    same_splits: Mapping[DatasetLabel, Text] = {}
    """Data sets whose splits or draws are the source's own, each with how that is known: index
    files, a recipe, seeds.
    """


class Note(SpecSection):
    """A remark shown with the cells it names; null stands for any."""

    dataset: DatasetLabel | None = None
    """Data set of the cells."""
    entry: str | None = None
    """Entry of the cells."""
    metric: MetricLabel | None = None
    """Metric of the cells."""
    statistic: Literal["mean", "median", "max"] | None = None
    """Statistic of the cells."""
    text: Text
    """The remark."""
    verdict: Literal["print in error", "given"] | None = None
    """`print in error`: of differences of these cells from the printed numbers; the text must
    name the errata, which say how the printed numbers come about. `given`: the data or a
    definition give these numbers, whatever the method.
    """
    cause: Literal["known", "settings not printed"] | None = None
    """What is known of the cause of differences of these cells, which the text explains; null
    where it says nothing of a cause.
    """

    @model_validator(mode="after")
    def _verdict_has_a_ground(self) -> Self:
        if self.verdict == "print in error" and "errata" not in self.text:
            raise ValueError(
                f"verdict: '{self.verdict}' needs a text that names docs/errata.md, "
                "where the ground is"
            )
        return self


class Side(SpecSection):
    """One side of a claim: an entry, values of axes, and a metric."""

    entry: Text
    """The entry."""
    at: Mapping[Text, Any] = {}
    """Values of axes of the sweep, in addition to those of the claim."""
    metric: MetricLabel | None = None
    """Its metric; null for that of the claim."""
    dataset: DatasetLabel | None = None
    """Its data set; null for those of the claim."""
    after: Count | None = None
    """Recorded count, in the unit of `record`, at which the metric is read; null for the end."""


class Claim(SpecSection):
    """A sentence that compares: one entry has less than another, or as much, split by split."""

    text: Text
    """The sentence."""
    source: Text
    """Paper with section, table or figure, and the content of the passage; `ours` if no paper
    claims it.
    """
    metric: MetricLabel
    """Metric that is compared."""
    less: Side
    """Side with the lower value."""
    than: Side
    """Side with the higher value."""
    equal: bool = False
    """Whether the sides are said to be alike: their difference is inside the metric's margin."""
    times: Annotated[Real, Field(gt=0)] = 1.0
    """Factor of the higher value: 0.5 for "less than half"."""
    datasets: Items[DatasetLabel] = ()
    """Data sets; empty for all on which both sides run."""
    at: Mapping[Text, Any] = {}
    """Values of sweep axes on both sides; along other axes, points with equal values are
    compared.
    """

    @model_validator(mode="after")
    def _both_sides_have_a_place(self) -> Self:
        for name in set(self.less.at) ^ set(self.than.at):
            if name not in self.at:
                raise ValueError(
                    f"at: only one side has '{name}': give its value on the other, or for both"
                )
        return self

    def sides(self) -> tuple[Side, Side]:
        """Return both sides, that with less first, with all axis values and their metric."""
        return self._fill(self.less), self._fill(self.than)

    def _fill(self, side: Side) -> Side:
        return side.model_copy(
            update={"at": {**self.at, **side.at}, "metric": side.metric or self.metric}
        )
