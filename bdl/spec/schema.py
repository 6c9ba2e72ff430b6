"""Schema of a benchmark file. Every field is described in ``docs/spec.md``."""

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby, product
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from bdl.errors import InputError, unknown_name_error
from bdl.spec.checks import (
    check_changes,
    check_claims,
    check_distances,
    check_labels,
    check_sweep,
    set_sweep_values,
)
from bdl.spec.entry import Entry, EvaluationSettings
from bdl.spec.fields import (
    CHECKED_CONTEXT,
    Count,
    Index,
    Items,
    NonEmpty,
    Slug,
    SpecSection,
    SweepPoint,
    Text,
    Unique,
    error_at,
    is_checked,
    select_names,
    sha256,
)
from bdl.spec.labels import DatasetLabel, DatasetName, MetricName
from bdl.spec.sections import STREAM_RECORD, Claim, Limits, Note, PaperTables, Preparation, Record

PART_CONTEXT = {"part": True}
"""Context of the validation of a part, or of a point, of a benchmark that was checked as a whole.
"""


def _select_keys(mapping: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Select some keys of a mapping, in the order of the mapping."""
    return {key: value for key, value in mapping.items() if key in keys}


class Benchmark(SpecSection):
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
    evaluation: EvaluationSettings = EvaluationSettings()
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
    _was_checked: bool = PrivateAttr(default=False)
    """Whether it was checked before, and so were its points."""

    @model_validator(mode="after")
    def _check_fields_together(self, info: ValidationInfo) -> Self:
        self._was_checked = is_checked(info)
        if self._was_checked:
            self._apply_changes()
            return self
        context = info.context or {}
        is_complete = "part" not in context
        check_labels(self, context.get("labels", frozenset()) if is_complete else None)
        for label in self.datasets:
            if not any(entry.runs_on(label) for entry in self.entries.values()):
                raise ValueError(
                    f"datasets: no entry runs on '{label}': remove it, "
                    "or name it in an entry's datasets"
                )
        if is_complete:
            check_changes(self)
        self._apply_changes()
        check_distances(self)
        if is_complete:
            check_claims(self)
            check_sweep(self)
        return self

    def _apply_changes(self) -> None:
        """Apply the changes of single data sets to the entries.

        Now, and not when they are first used: a wrong change is reported with its path.
        """
        for name, entry in self.entries.items():
            for dataset in dict.fromkeys((*self.by_dataset, *entry.by_dataset)):
                changes = self.by_dataset.get(dataset, {})
                try:
                    entry.apply_changes_on(dataset, changes, checked=self._was_checked)
                except ValueError as error:
                    scope = ("entries", name) if dataset in entry.by_dataset else ()
                    raise error_at((*scope, "by_dataset", dataset), error) from None

    @property
    def pairs(self) -> tuple[tuple[DatasetName, str], ...]:
        """(Data set, entry): each entry on the data sets that it runs on, in table order."""
        pairs = []
        for dataset in self.datasets:
            for name, entry in self.entries.items():
                if entry.runs_on(dataset):
                    pairs.append((dataset, name))
        return tuple(pairs)

    @property
    def axes(self) -> tuple[str, ...]:
        """Paths of the sweep."""
        return tuple(self.sweep)

    @property
    def points(self) -> tuple[SweepPoint, ...]:
        """Every combination of the values of the sweep, the last axis fastest.

        One empty point without a sweep.
        """
        return tuple(
            SweepPoint(dict(zip(self.sweep, values, strict=True)))
            for values in product(*self.sweep.values())
        )

    @property
    def cells(self) -> tuple[tuple[DatasetName, str, SweepPoint], ...]:
        """(Data set, entry, point) in table order: by data set, then by point, then by entry."""
        cells = []
        for _, pairs in groupby(self.pairs, key=lambda pair: pair[0]):
            for point, pair in product(self.points, pairs):
                cells.append((*pair, point))
        return tuple(cells)

    def at(self, point: SweepPoint) -> "Benchmark":
        """Return the benchmark at a point of its sweep, without a sweep and with the same labels.

        It is checked, unless the benchmark was before. An entry or a data set that lacks the
        setting of an axis stays as it is.
        """
        if not point:
            return self.model_copy(update={"sweep": {}}) if self.sweep else self
        if point.text not in self._at:
            # claims speak of the axes, which a point does not have
            content = set_sweep_values(
                self.model_dump(mode="json", exclude={"sweep", "claims"}), point
            )
            context = CHECKED_CONTEXT if self._was_checked else PART_CONTEXT
            self._at[point.text] = Benchmark.model_validate(content, context=context)
        return self._at[point.text]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy, with changes that are not checked."""
        copy = super().model_copy(update=update, deep=deep)
        # pydantic copies private attributes: the points of the original have other settings
        copy._at = {}
        return copy

    def dataset(self, label: str) -> DatasetName:
        """Return a data set with its settings by its label.

        `InputError` if the benchmark has none.
        """
        for dataset in self.datasets:
            if dataset == label:
                return dataset
        raise unknown_name_error("dataset", label, self.datasets)

    @property
    def labels(self) -> frozenset[str]:
        """Labels of its data sets and metrics."""
        return frozenset(map(str, (*self.datasets, *self.metrics)))

    @property
    def measures_distances(self) -> bool:
        """Whether posteriors are compared with references."""
        return any(metric.info.kind == "distance" for metric in self.metrics)

    def select(self, datasets: Sequence[str] = (), entries: Sequence[str] = ()) -> Self:
        """Narrow the benchmark to data sets and entries, as `select_names` takes them.

        The order stays that of the benchmark.

        Entries that run on none of the data sets are left out, and so are data sets on which no
        entry runs; papers, notes, claims and baseline name only entries that remain. `InputError`
        if the benchmark has no such data set or entry, or none of the entries runs on one of the
        data sets.
        """
        dataset_names = select_names("dataset", datasets, self.datasets)
        entry_names = select_names("method", entries, self.entries)
        run_datasets: set[str] = set()
        run_entries: set[str] = set()
        for dataset, entry in self.pairs:
            if dataset in dataset_names and entry in entry_names:
                run_datasets.add(dataset)
                run_entries.add(entry)
        if not run_datasets:
            raise InputError(
                f"{', '.join(entries)} does not run on {', '.join(datasets)}; "
                "choose another data set"
            )
        if len(run_entries) == len(self.entries) and len(run_datasets) == len(self.datasets):
            return self  # a copy would lose its points, which took time
        papers = []
        for paper in self.papers:
            methods = _select_keys(paper.methods, run_entries)
            papers.append(paper.model_copy(update={"methods": methods}))
        claims = [
            claim
            for claim in self.claims
            if run_entries.issuperset(side.entry for side in claim.sides())
            and run_datasets.issuperset(side.dataset for side in claim.sides() if side.dataset)
        ]
        changes = {
            "datasets": tuple(name for name in self.datasets if name in run_datasets),
            "entries": _select_keys(self.entries, run_entries),
            "baseline": self.baseline if self.baseline in run_entries else None,
            "papers": tuple(papers),
            "notes": tuple(
                note for note in self.notes if note.entry is None or note.entry in run_entries
            ),
            "claims": tuple(claims),
        }
        return self.model_copy(update=changes)

    def splits_of(self, dataset: str) -> range:
        """Return the split numbers of a data set."""
        return range(min(self.splits, self.preparation.splits.get(dataset, self.splits)))

    def evaluation_of(self, entry: str) -> EvaluationSettings:
        """Return the settings by which the posterior of an entry is scored."""
        return self.entries[entry].evaluation or self.evaluation

    def record_of(self, dataset: str, entry: str) -> Record | None:
        """Return when fits of an entry are evaluated while they run; None for at their end alone.

        A method that learns from a stream heeds a benchmark's record of observations, the others
        one of epochs or updates.
        """
        settings = self.entries[entry].on(dataset)
        record = settings.record or self.record
        if record and settings.streams != (record.unit == "observations"):
            record = None
        if settings.streams:
            return record or STREAM_RECORD
        return record if settings.course else None

    def fit_part(self, dataset: str, entry: str) -> dict[str, Any]:
        """Return the part of the benchmark that decides the fits of an entry on a data set.

        It has, as JSON values and without a sweep, name and seed, data set, entry, preparation and
        record; evaluation where there is a search, and the reference where it estimates
        hyper-parameters. Settings that have their default value are left out, so that a setting
        that is added later leaves the parts as they were. Splits, other entries and fields about
        other data sets are left out as well. `InputError` if the benchmark has no such data set.
        """
        label, entry_section = self.dataset(dataset), self.entries[entry]
        settings = entry_section.dump_on(dataset, defaults=False)
        settings.pop("record", None)
        if not entry_section.on(dataset).from_reference:
            settings.pop("reference", None)
        search = settings.get("search")
        if search:
            # The order of hyper-parameters decides the draws and the order of a grid's points;
            # canonical JSON sorts the keys of mappings, and would hide it.
            for name in {"space", "grid"} & search.keys():
                search[name] = list(search[name].items())
        record = self.record_of(dataset, entry)
        return {
            "benchmark": self.name,
            "seed": self.seed,
            "dataset": [str(label), label.name, label.nondefault_settings],
            "entry": [entry, settings],
            "preparation": self.preparation.dump_on(dataset, defaults=False),
            "record": record and record.model_dump(mode="json", exclude_defaults=True),
            "evaluation": self._evaluation(entry) if search else None,
        }

    def score_part(self, dataset: str, entry: str) -> dict[str, Any]:
        """Return the part of the benchmark that decides the scores of a posterior.

        It has evaluation and reference, as JSON values.
        """
        reference = self.entries[entry].on(dataset).reference
        return {
            "evaluation": self._evaluation(entry),
            "reference": reference and reference.model_dump(mode="json", exclude_defaults=True),
        }

    @property
    def content_hash(self) -> str:
        """SHA-256 (hex) of everything that decides the numbers, whatever the order of the cells.

        These are the number of splits and the parts for fits and scores of all cells.
        """
        cells = []
        for point in self.points:
            benchmark = self.at(point)
            for dataset, entry in benchmark.pairs:
                fit_part = benchmark.fit_part(dataset, entry)
                score_part = benchmark.score_part(dataset, entry)
                cells.append(sha256([point.text, fit_part, score_part]))
        # no key without them: hashes from before the setting stay those of the same content
        fewer = {"fewer": dict(self.preparation.splits)} if self.preparation.splits else {}
        return sha256({"splits": self.splits, "cells": sorted(cells)} | fewer)

    def _evaluation(self, entry: str) -> dict[str, Any]:
        return self.evaluation_of(entry).model_dump(mode="json", exclude_defaults=True)
