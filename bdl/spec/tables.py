"""What a benchmark file says about the tables that its numbers go into."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import model_validator

from bdl.spec.fields import Index, NonEmpty, Settings, Text
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
