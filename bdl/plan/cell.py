"""A cell: one entry of a benchmark on one data set at one point of its sweep."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from bdl.data import Dataset, Split, SplitScheme, Standardise, Stream, load, load_stream, prepare
from bdl.models.base import NoModel
from bdl.models.likelihoods import Categorical, Gaussian
from bdl.models.problem import Problem
from bdl.spec import Benchmark, Entry, Point
from bdl.spec.labels import DatasetName
from bdl.store.rows import CellKey


@dataclass(frozen=True, eq=False)
class Cell:
    """One entry of a benchmark on one data set, with the splits to run.

    Parameters
    ----------
    benchmark
        The spec, overrides and the values of the sweep's axes applied.
    dataset, entry
        Names.
    splits
        Split numbers.
    point
        Values of the sweep's axes.
    device
        ``"cpu"`` or ``"cuda"``.
    compile
        True, False, or None to decide by the amount of work.
    """

    benchmark: Benchmark
    dataset: DatasetName
    entry: str
    splits: tuple[int, ...]
    point: Point = field(default_factory=Point)
    device: str = "cpu"
    compile: bool | None = None

    def __getstate__(self) -> dict[str, object]:
        """Leave what is built behind, as components do."""
        return {own.name: getattr(self, own.name) for own in fields(self)}

    @property
    def key(self) -> CellKey:
        """What the store knows it by."""
        return str(self.dataset), self.entry, self.point.text

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.dataset}/{self.entry}" + (f" {self.point.text}" if self.point else "")

    def with_splits(self, splits: Sequence[int]) -> "Cell":
        """Return the same cell with other splits."""
        return replace(self, splits=tuple(splits))

    @cached_property
    def settings(self) -> Entry:
        """The entry's section of the spec, as it is on the data set."""
        return self.benchmark.entries[self.entry].on(self.dataset)

    @property
    def data(self) -> Dataset:
        """The data set, loaded once, as the benchmark prepares it."""
        preparation = self.benchmark.preparation
        rows = preparation.rows_of(self.dataset)
        return _load(_Keyed(self.dataset), preparation.split, preparation.standardise, rows)

    def rows(self, split: int) -> Split:
        """Return the rows of a split as its final fit sees them: validation rows may train as well."""
        rows, search = self.data.split(split), self.settings.search
        if search is None or not search.refits:
            return rows
        return rows._replace(train=np.concatenate([rows.train, rows.validation]))

    @property
    def stream(self) -> Stream:
        """The stream, cut to the length that the benchmark says, for a method that learns from one."""
        stream = load_stream(self.dataset)
        return replace(stream, length=self.benchmark.preparation.rows_of(self.dataset) or stream.length)

    @property
    def identity(self) -> tuple[object, ...]:
        """Start of the identities of the cell's trials."""
        swept = (self.point.text,) if self.point else ()
        return (self.benchmark.seed, self.benchmark.name, str(self.dataset), self.entry, *swept)

    @cached_property
    def problem(self) -> Problem:
        """Model, likelihood and prior."""
        entry, data = self.settings, self.data
        model = entry.model.build() if entry.model else NoModel()
        likelihood = entry.likelihood.build() if entry.likelihood else Categorical() if data.classes else Gaussian()
        return Problem(model, likelihood, data.d, likelihood.outputs(data.classes), entry.prior.build())


class _Keyed:
    """A data set that is told apart by its settings, too: at points of a sweep they differ under one label."""

    def __init__(self, dataset: DatasetName) -> None:
        self.dataset = dataset

    def __hash__(self) -> int:
        return hash(self.dataset.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and self.dataset.key == other.dataset.key


@lru_cache(maxsize=16)
def _load(keyed: _Keyed, split: SplitScheme, standardise: Standardise, rows: int | None) -> Dataset:
    return prepare(load(keyed.dataset), split, standardise, rows)
