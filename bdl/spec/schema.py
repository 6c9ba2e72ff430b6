"""What a benchmark file may say. Every field is described in ``docs/spec.md``."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from bdl.errors import InputError, unknown
from bdl.metrics.base import INFO
from bdl.spec.entry import Entry, Evaluation
from bdl.spec.fields import (
    Count,
    DatasetName,
    Index,
    Items,
    MetricName,
    NonEmpty,
    Settings,
    Slug,
    Text,
    Unique,
)


class Preparation(Settings):
    """How data are split and standardised."""

    split: Literal["published", "first", "half"] = "published"
    """The data set's own splits; or replicates of the first of them, or of one fixed half of the rows."""
    standardise: Literal["both", "inputs", "none"] = "both"
    """What is scaled by the training rows: inputs and targets (but not labels), inputs alone, or nothing."""
    rows: Mapping[DatasetName, Count] = {}
    """Data set to the number of training rows that are kept, the first of each split; the others keep all."""

    def dump_on(self, dataset: str) -> dict[str, Any]:
        """List the settings for one data set as JSON values; rows only where some are left out."""
        rows = {"rows": self.rows[dataset]} if dataset in self.rows else {}
        return self.model_dump(mode="json", exclude={"rows"}) | rows


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
    datasets: Mapping[DatasetName, Text] = {}
    """Our data set to the paper's and its setting, `synthetic obs_dim=100`, those listed alone; empty where the names
    are the same."""
    metrics: Mapping[MetricName, Text] = {}
    """Our metric to the paper's, with a leading `-` for one of opposite sign, those listed alone; empty for all
    metrics that have the same name."""


class Note(Settings):
    """A remark shown with the cells it names; null stands for any."""

    dataset: DatasetName | None = None
    """Data set of the cells."""
    entry: str | None = None
    """Entry of the cells."""
    metric: MetricName | None = None
    """Metric of the cells."""
    statistic: Literal["mean", "median"] | None = None
    """Statistic of the cells."""
    text: Text
    """The remark."""


class Benchmark(Settings):
    """A benchmark with one of its profiles applied."""

    name: Slug
    """Identifier; takes part in the seeds of the trials."""
    title: Text
    """Heading for people."""
    profile: str = "paper"
    """The profile that was applied; not a field of the file."""
    seed: Index = 0
    """Base seed of every random number."""
    datasets: Unique[DatasetName]
    """Data sets, in table order."""
    splits: Count
    """Splits of each data set, numbered from 0."""
    entries: Mapping[Slug, Entry] = Field(min_length=1)
    """Entries by name, in table order."""
    baseline: Slug | None = None
    """Entry that the others are held against, split by split, in figures of their own; null for no such figures."""
    preparation: Preparation = Preparation()
    """How data are split and standardised."""
    evaluation: Evaluation = Evaluation()
    """How a posterior is scored, unless its entry says otherwise."""
    metrics: Unique[MetricName]
    """Metrics, in table order."""
    papers: Items[PaperTables] = ()
    """Printed tables that the benchmark reproduces, the preferred first."""
    notes: Items[Note] = ()
    """Remarks about cells."""

    @model_validator(mode="after")
    def _entries_exist(self) -> Self:
        named = [(f"papers.{i}.methods", name) for i, paper in enumerate(self.papers) for name in paper.methods]
        named += [(f"notes.{i}.entry", note.entry) for i, note in enumerate(self.notes) if note.entry]
        named += [("baseline", self.baseline)] if self.baseline else []
        for place, name in named:
            if name not in self.entries:
                raise ValueError(f"{place}: {unknown('entry', name, self.entries)}")
        return self

    @model_validator(mode="after")
    def _entries_have_datasets(self) -> Self:
        idle = [name for name in self.datasets if not any(entry.runs_on(name) for entry in self.entries.values())]
        if idle:
            raise ValueError(f"datasets: no entry runs on '{idle[0]}': remove it, or name it in an entry's datasets")
        return self

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The cells, (data set, entry): each entry on the data sets that it runs on, in table order."""
        return tuple(
            (dataset, name)
            for dataset in self.datasets
            for name, entry in self.entries.items()
            if entry.runs_on(dataset)
        )

    @property
    def measures_distances(self) -> bool:
        """Whether posteriors are held against references, rather than predictions against targets."""
        return any(INFO[name].kind == "distance" for name in self.metrics)

    @model_validator(mode="after")
    def _distances_have_references(self) -> Self:
        if self.measures_distances and any(INFO[name].kind == "predictive" for name in self.metrics):
            raise ValueError("metrics: distances and predictive scores cannot be mixed; make two benchmarks")
        for dataset, name in self.pairs if self.measures_distances else ():
            entry = self.entries[name].on(dataset)
            if entry.reference is None and not entry.streams:
                own = f".by_dataset.{dataset}" if self.entries[name].reference else ""
                raise ValueError(f"entries.{name}{own}.reference is missing: distances need one")
        return self

    def select(self, datasets: Sequence[str] = (), entries: Sequence[str] = ()) -> Self:
        """Narrow the benchmark; an empty argument keeps everything of its kind.

        Parameters
        ----------
        datasets, entries
            Names to keep; the order stays that of the benchmark.

        Returns
        -------
        Benchmark
            Entries that run on none of the data sets are gone, and so are data sets on which no entry runs; its
            papers, notes and baseline name only entries that are kept.

        Raises
        ------
        InputError
            If the benchmark has no such data set or entry, or none of the entries runs on one of the data sets.
        """
        wanted = _keep("dataset", datasets, self.datasets), _keep("entry", entries, self.entries)
        pairs = [(dataset, entry) for dataset, entry in self.pairs if dataset in wanted[0] and entry in wanted[1]]
        if not pairs:
            raise InputError(f"{', '.join(entries)} does not run on {', '.join(datasets)}; choose another data set")
        left, running = ({pair[i] for pair in pairs} for i in (0, 1))
        kept = {name: entry for name, entry in self.entries.items() if name in running}
        papers = (
            paper.model_copy(update={"methods": {e: m for e, m in paper.methods.items() if e in kept}})
            for paper in self.papers
        )
        changes = {
            "datasets": tuple(name for name in self.datasets if name in left),
            "entries": kept,
            "baseline": self.baseline if self.baseline in kept else None,
            "papers": tuple(papers),
            "notes": tuple(note for note in self.notes if note.entry is None or note.entry in kept),
        }
        return self.model_copy(update=changes)

    def cell_hash(self, dataset: str, entry: str) -> str:
        """Identify everything here that changes the numbers of one (dataset, entry) cell.

        Returns
        -------
        str
            SHA-256 (hex) of the canonical JSON of the benchmark's name and seed, the data set's name, the
            entry with its name and every default, preparation and evaluation. Splits, other entries and what
            concerns other data sets have no part.
        """
        settings, preparation = self.entries[entry].dump_on(dataset), self.preparation.dump_on(dataset)
        if settings["search"]:
            # The order matters, of draws and of the grid's points; the sorted keys of canonical JSON would hide it.
            for name in {"space", "grid"} & settings["search"].keys():
                settings["search"][name] = list(settings["search"][name].items())
        return _sha256(
            {
                "benchmark": self.name,
                "seed": self.seed,
                "dataset": dataset,
                "entry": [entry, settings],
                "preparation": preparation,
                "evaluation": self.evaluation_of(entry).model_dump(mode="json"),
            }
        )

    def evaluation_of(self, entry: str) -> Evaluation:
        """How the posterior of an entry is scored."""
        return self.entries[entry].evaluation or self.evaluation

    @property
    def content_hash(self) -> str:
        """SHA-256 (hex) of the number of splits and the hashes of all cells, whatever their order."""
        return _sha256({"splits": self.splits, "cells": sorted(self.cell_hash(*pair) for pair in self.pairs)})


def _keep(kind: str, wanted: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    known = tuple(known)
    for name in wanted:
        if name not in known:
            raise unknown(kind, name, known)
    return tuple(name for name in known if name in wanted or not wanted)


def _sha256(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
