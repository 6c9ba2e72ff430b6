"""What a benchmark file may say. Every field is described in ``docs/spec.md``."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from bdl.errors import unknown
from bdl.metrics.base import INFO
from bdl.spec.entry import Entry
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


class Evaluation(Settings):
    """How a posterior is scored."""

    samples: Count = 100
    """Posterior samples of a predictive distribution."""


class Preparation(Settings):
    """How data are split and standardised."""

    split: Literal["published", "half"] = "published"
    """The data set's own splits, or one fixed half of the rows whose replicates are the splits."""
    standardise: Literal["both", "inputs", "none"] = "both"
    """What is scaled by the training rows: inputs and targets, inputs alone, or nothing."""


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
    preparation: Preparation = Preparation()
    """How data are split and standardised."""
    evaluation: Evaluation = Evaluation()
    """How a posterior is scored."""
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
        for place, name in named:
            if name not in self.entries:
                raise ValueError(f"{place}: {unknown('entry', name, self.entries)}")
        return self

    @property
    def measures_distances(self) -> bool:
        """Whether posteriors are held against references, rather than predictions against targets."""
        return any(INFO[name].kind == "distance" for name in self.metrics)

    @model_validator(mode="after")
    def _distances_have_references(self) -> Self:
        if self.measures_distances and any(INFO[name].kind == "predictive" for name in self.metrics):
            raise ValueError("metrics: distances and predictive scores cannot be mixed; make two benchmarks")
        for name, entry in self.entries.items():
            if self.measures_distances and entry.reference is None:
                raise ValueError(f"entries.{name}.reference is missing: distances need one")
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
            Its papers and notes name only entries that are kept.

        Raises
        ------
        InputError
            If the benchmark has no such data set or entry.
        """
        kept = _keep("entry", entries, self.entries)
        papers = (
            paper.model_copy(update={"methods": {e: m for e, m in paper.methods.items() if e in kept}})
            for paper in self.papers
        )
        changes = {
            "datasets": _keep("dataset", datasets, self.datasets),
            "entries": {name: self.entries[name] for name in kept},
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
            entry with its name and every default, preparation and evaluation. Splits and other entries have no part.
        """
        settings = self.entries[entry].on(dataset).model_dump(mode="json")
        if settings["search"]:
            # The draws depend on the order of the space, which the sorted keys of canonical JSON would hide.
            settings["search"]["space"] = list(settings["search"]["space"].items())
        return _sha256(
            {
                "benchmark": self.name,
                "seed": self.seed,
                "dataset": dataset,
                "entry": [entry, settings],
                "preparation": self.preparation.model_dump(mode="json"),
                "evaluation": self.evaluation.model_dump(mode="json"),
            }
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 (hex) of the number of splits and the hashes of all cells, whatever their order."""
        cells = [self.cell_hash(dataset, entry) for dataset in self.datasets for entry in self.entries]
        return _sha256({"splits": self.splits, "cells": sorted(cells)})


def _keep(kind: str, wanted: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    known = tuple(known)
    for name in wanted:
        if name not in known:
            raise unknown(kind, name, known)
    return tuple(name for name in known if name in wanted or not wanted)


def _sha256(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
