"""What a benchmark file may say. Every field is described in ``docs/spec.md``."""

from collections.abc import Mapping, Sequence
from itertools import groupby, product
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from bdl.errors import InputError, unknown
from bdl.spec.checks import check_changes, check_distances, check_references, check_sweep, lay_over
from bdl.spec.entry import Entry, Evaluation
from bdl.spec.fields import (
    Count,
    Index,
    Items,
    NonEmpty,
    Point,
    Settings,
    Slug,
    Text,
    Unique,
    keep,
    sha256,
    within,
)
from bdl.spec.labels import DatasetLabel, DatasetName, MetricName
from bdl.spec.sections import STREAM_RECORD, Claim, Limits, Note, PaperTables, Preparation, Record

PART = {"part": True}
"""Context of the validation of a part, or of a point, of a benchmark that was checked as a whole.
"""


class Benchmark(Settings):
    """A benchmark with one of its profiles applied."""

    name: Slug
    """Identifier; part of the seeds of all trials."""
    title: Text
    """Heading."""
    profile: str = "paper"
    """The profile that was applied; not a field of the file."""
    seed: Index = 0
    """Base seed of all random numbers."""
    datasets: Unique[DatasetName]
    """Data sets, in table order."""
    splits: Count
    """Number of splits of each data set."""
    entries: Mapping[Slug, Entry] = Field(min_length=1)
    """Entries by name, in table order."""
    by_dataset: Mapping[DatasetLabel, Mapping[str, Any]] = {}
    """Changes of all entries on one data set, before their own `by_dataset`."""
    sweep: Mapping[Text, NonEmpty[Any]] = {}
    """Values by path of a setting."""
    baseline: Slug | None = None
    """Entry that paired differences compare with."""
    preparation: Preparation = Preparation()
    """How data are split and standardised."""
    evaluation: Evaluation = Evaluation()
    """Posterior samples of a predictive distribution, unless an entry has its own."""
    record: Record | None = None
    """When a fit is scored while it runs, unless an entry has its own."""
    limits: Limits = Limits()
    """`minutes` and `gigabytes` of a group of fits."""
    metrics: Unique[MetricName]
    """Metrics, in table order."""
    papers: Items[PaperTables] = ()
    """Printed tables that the benchmark reproduces, the preferred first."""
    elsewhere: Items[Literal["gal2018", "lakshminarayanan2017"]] = ()
    """Papers whose numbers for the same data are shown below the tables, without verdicts."""
    notes: Items[Note] = ()
    """Remarks about cells."""
    claims: Items[Claim] = ()
    """Comparisons that the papers claim, tested with the rows."""
    _at: dict[str, "Benchmark"] = PrivateAttr(default_factory=dict)
    """The benchmark at points of its sweep."""

    @model_validator(mode="after")
    def _valid_as_a_whole(self, info: ValidationInfo) -> Self:
        context = info.context or {}
        whole = "part" not in context
        check_references(self, context.get("labels", frozenset()) if whole else None)
        idle = [
            name
            for name in self.datasets
            if not any(entry.runs_on(name) for entry in self.entries.values())
        ]
        if idle:
            raise ValueError(
                f"datasets: no entry runs on '{idle[0]}': remove it, or name it in an entry's datasets"
            )
        if whole:
            check_changes(self)
        for name, entry in self.entries.items():
            for dataset in dict.fromkeys((*self.by_dataset, *entry.by_dataset)):
                try:
                    entry.lay(dataset, self.by_dataset.get(dataset, {}))
                except ValueError as error:
                    own = ("entries", name) if dataset in entry.by_dataset else ()
                    raise within((*own, "by_dataset", dataset), error) from None
        check_distances(self)
        if whole:
            check_sweep(self)
        return self

    @property
    def pairs(self) -> tuple[tuple[DatasetName, str], ...]:
        """(Data set, entry): each entry on the data sets that it runs on, in table order."""
        return tuple(
            (dataset, name)
            for dataset in self.datasets
            for name, entry in self.entries.items()
            if entry.runs_on(dataset)
        )

    @property
    def axes(self) -> tuple[str, ...]:
        """Paths of the sweep."""
        return tuple(self.sweep)

    @property
    def points(self) -> tuple[Point, ...]:
        """Every combination of the values of the sweep, the last axis fastest.

        One empty point without a sweep.
        """
        every = product(*self.sweep.values())
        return tuple(Point(dict(zip(self.sweep, values, strict=True))) for values in every)

    @property
    def cells(self) -> tuple[tuple[DatasetName, str, Point], ...]:
        """(Data set, entry, point) in table order: by data set, then by point, then by entry."""
        by_dataset = groupby(self.pairs, key=lambda pair: pair[0])
        return tuple(
            (*pair, point)
            for _, pairs in by_dataset
            for point, pair in product(self.points, pairs)
        )

    def at(self, point: Point) -> "Benchmark":
        """Return the benchmark at a point of its sweep: checked, without a sweep, with the same labels.

        An entry or a data set that lacks the setting of an axis stays as it is.
        """
        if not point:
            return self.model_copy(update={"sweep": {}}) if self.sweep else self
        if point.text not in self._at:
            content = lay_over(self.model_dump(mode="json", exclude={"sweep", "claims"}), point)
            self._at[point.text] = Benchmark.model_validate(content, context=PART)
        return self._at[point.text]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with changes that are not checked."""
        copy = super().model_copy(update=update, deep=deep)
        copy._at = {}
        return copy

    def dataset(self, label: str) -> DatasetName:
        """Return a data set with its settings by its label.

        `InputError` if the benchmark has none.
        """
        for dataset in self.datasets:
            if dataset == label:
                return dataset
        raise unknown("dataset", label, self.datasets)

    @property
    def labels(self) -> frozenset[str]:
        """What its data sets and metrics are called."""
        return frozenset(map(str, (*self.datasets, *self.metrics)))

    @property
    def measures_distances(self) -> bool:
        """Whether posteriors are held against references."""
        return any(metric.info.kind == "distance" for metric in self.metrics)

    def select(self, datasets: Sequence[str] = (), entries: Sequence[str] = ()) -> Self:
        """Narrow the benchmark to data sets and entries, as `keep` takes them.

        The order stays that of the benchmark.

        Entries that run on none of the data sets are gone, and so are data sets on which no entry
        runs; its papers, notes, claims and baseline name only entries that are kept. `InputError`
        if the benchmark has no such data set or entry, or none of the entries runs on one of the
        data sets.
        """
        wanted = keep("dataset", datasets, self.datasets), keep("method", entries, self.entries)
        pairs = [
            (dataset, entry)
            for dataset, entry in self.pairs
            if dataset in wanted[0] and entry in wanted[1]
        ]
        if not pairs:
            raise InputError(
                f"{', '.join(entries)} does not run on {', '.join(datasets)}; choose another data set"
            )
        left, running = ({pair[i] for pair in pairs} for i in (0, 1))
        kept = {name: entry for name, entry in self.entries.items() if name in running}
        if len(kept) == len(self.entries) and len(left) == len(self.datasets):
            return self  # with its points, which took time
        papers = (
            paper.model_copy(
                update={"methods": {e: m for e, m in paper.methods.items() if e in kept}}
            )
            for paper in self.papers
        )
        changes = {
            "datasets": tuple(name for name in self.datasets if name in left),
            "entries": kept,
            "baseline": self.baseline if self.baseline in kept else None,
            "papers": tuple(papers),
            "notes": tuple(
                note for note in self.notes if note.entry is None or note.entry in kept
            ),
            "claims": tuple(
                each for each in self.claims if all(entry in kept for entry, _, _ in each.sides())
            ),
        }
        return self.model_copy(update=changes)

    def splits_of(self, dataset: str) -> range:
        """Number the splits of a data set."""
        return range(min(self.splits, self.preparation.splits.get(dataset, self.splits)))

    def evaluation_of(self, entry: str) -> Evaluation:
        """How the posterior of an entry is scored."""
        return self.entries[entry].evaluation or self.evaluation

    def record_of(self, dataset: str, entry: str) -> Record | None:
        """When fits of an entry are looked at while they run; None if only their end counts.

        A method that learns from a stream heeds a benchmark's record of observations, the others
        one of epochs or updates.
        """
        settings = self.entries[entry].on(dataset)
        given = settings.record or self.record
        if given and settings.streams != (given.unit == "observations"):
            given = None
        if settings.streams:
            return given or STREAM_RECORD
        return given if settings.course else None

    def fit_part(self, dataset: str, entry: str) -> dict[str, Any]:
        """List everything, as JSON values and without a sweep, that decides the fits of an entry on a data set.

        These are name and seed, data set, entry, preparation and record; evaluation where there is
        a search, and the reference where it estimates hyper-parameters. Settings that have their
        default value are left out, so that one that is added later leaves the parts as they were.
        Splits, other entries and what concerns other data sets have no part. `InputError` if the
        benchmark has no such data set.
        """
        label, own = self.dataset(dataset), self.entries[entry]
        settings = own.dump_on(dataset, defaults=False)
        settings.pop("record", None)
        if not own.on(dataset).from_reference:
            settings.pop("reference", None)
        if search := settings.get("search"):
            # The order matters, of draws and of the grid's points; the sorted keys of canonical
            # JSON would hide it.
            for name in {"space", "grid"} & search.keys():
                search[name] = list(search[name].items())
        record = self.record_of(dataset, entry)
        return {
            "benchmark": self.name,
            "seed": self.seed,
            "dataset": [str(label), label.name, label.given],
            "entry": [entry, settings],
            "preparation": self.preparation.dump_on(dataset, defaults=False),
            "record": record and record.model_dump(mode="json", exclude_defaults=True),
            "evaluation": self._evaluation(entry) if search else None,
        }

    def score_part(self, dataset: str, entry: str) -> dict[str, Any]:
        """List everything that decides the scores of a posterior: evaluation and reference, as JSON values."""
        reference = self.entries[entry].on(dataset).reference
        return {
            "evaluation": self._evaluation(entry),
            "reference": reference and reference.model_dump(mode="json", exclude_defaults=True),
        }

    @property
    def content_hash(self) -> str:
        """SHA-256 (hex) of the number of splits and what decides the numbers of all cells, whatever their order."""
        cells = [
            sha256([point.text, at.fit_part(dataset, entry), at.score_part(dataset, entry)])
            for point in self.points
            for at in (self.at(point),)
            for dataset, entry in at.pairs
        ]
        fewer = {"fewer": dict(self.preparation.splits)} if self.preparation.splits else {}
        return sha256({"splits": self.splits, "cells": sorted(cells)} | fewer)

    def _evaluation(self, entry: str) -> dict[str, Any]:
        return self.evaluation_of(entry).model_dump(mode="json", exclude_defaults=True)
