"""A cell, one entry of a benchmark on one data set at one point of its sweep, and what identifies its fits and scores.

A fit is identified by its part of the spec, by the data, and by the versions of what makes it: the
engine, preparation, data set, method, model, likelihood, prior and schedule; where
hyper-parameters are searched, also the search and the score that steers it. A score is identified
by its own settings and version, and by those of how posteriors are evaluated. No source is hashed:
golden trials see to it that numbers do not move under one version.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, get_args, get_type_hints

import numpy as np

from bdl.data import Dataset, Split, SplitScheme, Standardise, Stream, load, load_stream, prepare
from bdl.methods.base import Direct, Method, MinibatchMethod, StreamMethod
from bdl.metrics import METRICS
from bdl.models.base import NoModel
from bdl.models.likelihoods import Categorical, Gaussian
from bdl.models.problem import Problem
from bdl.registry import outside_file
from bdl.spec import Benchmark, Entry, Point, sha256
from bdl.spec.labels import DatasetName, MetricName
from bdl.store import CellKey
from bdl.versions import (
    ENGINE_VERSION,
    PREPARATION_VERSION,
    SCORING_VERSION,
    SEARCH_VERSION,
    version_of,
)


@dataclass(frozen=True, eq=False)
class Cell:
    """One entry of a benchmark on one data set, with the splits to run.

    The benchmark has overrides and the values of the sweep's axes, `point`, applied. The device is
    ``"cpu"`` or ``"cuda"``; `compile` is None where the amount of work decides.
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
        return _load(
            self.dataset, self.dataset.key, preparation.split, preparation.standardise, rows
        )

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
        return replace(
            stream, length=self.benchmark.preparation.rows_of(self.dataset) or stream.length
        )

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
        likelihood = (
            entry.likelihood.build()
            if entry.likelihood
            else Categorical()
            if data.classes
            else Gaussian()
        )
        return Problem(
            model, likelihood, data.d, likelihood.outputs(data.classes), entry.prior.build()
        )


@lru_cache(maxsize=16)
def _load(
    dataset: DatasetName, key: str, split: SplitScheme, standardise: Standardise, rows: int | None
) -> Dataset:
    """Load a data set.

    Its key tells it apart from others of that label, which it has at other points of a sweep.
    """
    return prepare(load(dataset), split, standardise, rows)


def fit_hash(cell: Cell, versions: Mapping[str, Any] | None = None) -> str:
    """Hash what identifies the cell's fits: spec, data and versions, SHA-256 (hex).

    Today's versions by default.
    """
    spec = cell.benchmark.fit_part(cell.dataset, cell.entry)
    return sha256(
        [spec, data_checksum(cell), fit_versions(cell) if versions is None else versions]
    )


def is_fit_hash(cell: Cell, recorded: object) -> bool:
    """Return whether a recorded hash is that of the cell's fits.

    Version 0.1 wrote for some time every setting of the score that steers a search into the hash,
    defaults included: hashes made then count as those of the same fits.
    """
    if recorded == fit_hash(cell):
        return True
    search = cell.settings.search
    if recorded is None or search is None:
        return False
    spec = cell.benchmark.fit_part(cell.dataset, cell.entry)
    spec["entry"][1]["search"]["metric"] = search.metric.plain
    return recorded == sha256([spec, data_checksum(cell), fit_versions(cell)])


def fit_versions(cell: Cell) -> dict[str, Any]:
    """Return the version of everything that the cell's fits rest on, by kind."""
    entry = cell.settings
    versions: dict[str, Any] = {
        "engine": ENGINE_VERSION,
        "preparation": PREPARATION_VERSION,
        "dataset": version_of(cell.dataset.build()),
        "method": version_of(entry.method.build()),
    }
    if entry.model and entry.likelihood:
        versions |= {
            name: version_of(getattr(entry, name).build())
            for name in ("model", "likelihood", "prior")
        }
    if entry.training:
        rates = entry.training.build().rates
        versions["rates"] = {name: version_of(rate) for name, rate in rates.items()}
    if entry.reference and entry.from_reference:
        versions["reference"] = version_of(entry.reference.build())
    if entry.search:
        versions |= {
            "search": SEARCH_VERSION,
            "steered_by": version_of(METRICS.get(entry.search.metric.name)),
        }
    return versions


def score_hash(cell: Cell, metric: MetricName) -> str:
    """Hash what identifies a score but for the fit, SHA-256 (hex)."""
    spec = cell.benchmark.score_part(cell.dataset, cell.entry)
    outside = outside_file(
        METRICS.get(metric.name)
    )  # a score is soon computed again: its file decides as well
    digest = list(outside[1:]) if outside else []
    return sha256([spec, metric.name, metric.given, score_versions(cell, metric), *digest])


def score_versions(cell: Cell, metric: MetricName) -> dict[str, Any]:
    """Return the version of everything that a score rests on but for the fit, by kind."""
    reference = cell.settings.reference
    return {
        "scoring": SCORING_VERSION,
        "preparation": PREPARATION_VERSION,
        "score": version_of(METRICS.get(metric.name)),
        "reference": version_of(reference.build()) if reference else None,
        "posterior": {
            family.__name__: version_of(family)
            for family in _families(cell.settings.method.build())
        },
    }


def outside_files(cell: Cell) -> dict[str, str]:
    """Return the files of the cell's components that live outside the package, and decide its fits: name to digest.

    They are recorded with the fits, whose hash they are no part of: a change of such a file is
    noticed and told.
    """
    entry = cell.settings
    reference = entry.reference if entry.from_reference else None
    parts = (entry.method, entry.model, entry.likelihood, entry.prior, reference)
    components: list[object] = [part.build() for part in parts if part is not None]
    components += [source for own in list(components) for source in getattr(own, "sources", ())]
    components += [METRICS.get(entry.search.metric.name)] if entry.search else []
    return dict(filter(None, map(outside_file, components)))


def joint_hash(hashes: Iterable[str]) -> str:
    """Hash a set of hashes, SHA-256 (hex)."""
    return sha256(sorted(set(hashes)))


def data_checksum(cell: Cell) -> str:
    """Return the checksum of the data.

    Of simulated ones, which their settings and version identify, the word.
    """
    return "simulated" if cell.settings.streams or cell.data.simulated else cell.data.checksum


def _families(method: Method) -> list[type]:
    """List the families of posteriors that a method says it gives, by the annotation of what returns them."""
    if isinstance(method, Direct):
        maker: Callable[..., Any] = type(method).fit
    elif isinstance(method, MinibatchMethod | StreamMethod):
        maker = type(method).posterior
    else:
        return []
    returned = get_type_hints(maker).get("return")
    found = get_args(returned) or (returned,)
    return sorted(
        (kind for kind in found if isinstance(kind, type)), key=lambda kind: kind.__name__
    )
