"""What a benchmark file says about the tables that its numbers go into."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bdl.spec.fields import Index, Items, NonEmpty, Real, Settings, Text
from bdl.spec.labels import DatasetLabel, MetricLabel


class PaperTables(Settings):
    """Printed tables that the benchmark reproduces."""

    paper: Text
    """Identifier of the paper."""
    tables: NonEmpty[Text]
    """Tables, the preferred first."""
    task: Text
    """The paper's experiment."""
    methods: Mapping[str, Text]
    """Entry to the paper's method; with a space and its setting where the paper has several: `vifa latent_dim=1`."""
    datasets: Mapping[DatasetLabel, Text] = {}
    """Our data set to the paper's and its setting, `synthetic obs_dim=100`, those listed alone; empty where the names
    are the same."""
    metrics: Mapping[MetricLabel, Text] = {}
    """Our metric to the paper's, with a leading `-` for one of opposite sign, those listed alone; empty for all
    metrics that have the same name."""
    split: Index | None = None
    """The split whose values are printed, if it is one alone; null where they are statistics over splits, or a single
    run that is held against all of ours."""


class Note(Settings):
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
    verdict: Literal["print in error"] | None = None
    """What a difference of these cells from the printed numbers is to be called; the text must name the errata, which
    say how the printed numbers come about."""

    @model_validator(mode="after")
    def _verdict_has_a_ground(self) -> Self:
        if self.verdict and "errata" not in self.text:
            raise ValueError(f"verdict: '{self.verdict}' needs a text that names docs/errata.md, where the ground is")
        return self


class Side(Settings):
    """What a claim says of one entry."""

    entry: Text
    """The entry."""
    at: Mapping[Text, Any] = {}
    """Values of axes of the sweep, beside those of the claim."""
    metric: MetricLabel | None = None
    """Its metric; null for that of the claim."""


class Claim(Settings):
    """A sentence of a paper that compares: one entry has less than another, split by split."""

    text: Text
    """The sentence."""
    source: Text
    """Paper, and section, table or figure."""
    metric: MetricLabel
    """Metric that is compared."""
    less: Side
    """Side with the lower value."""
    than: Side
    """Side with the higher value."""
    times: Annotated[Real, Field(gt=0)] = 1.0
    """Factor of the higher value: 0.5 for "less than half"."""
    datasets: Items[DatasetLabel] = ()
    """Data sets; empty for all on which both sides run."""
    at: Mapping[Text, Any] = {}
    """Values of sweep axes on both sides; along other axes, points with equal values are compared."""

    @model_validator(mode="after")
    def _both_sides_have_a_place(self) -> Self:
        for name in set(self.less.at) ^ set(self.than.at):
            if name not in self.at:
                raise ValueError(f"at: only one side has '{name}': give its value on the other, or for both")
        return self

    def sides(self) -> tuple[tuple[str, Mapping[str, Any], str], ...]:
        """Return entry, values of axes and metric of each side, that with less first."""
        return tuple(
            (side.entry, {**self.at, **side.at}, side.metric or self.metric) for side in (self.less, self.than)
        )
