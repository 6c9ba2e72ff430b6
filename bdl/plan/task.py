"""A task: one entry of a benchmark on one data set at one point of its sweep.

Tables and messages call it a cell.

A fit is identified by its part of the spec, by the data, and by the versions of everything that
computes it: the engine, preparation, data set, method, model, likelihood, prior and schedule;
where hyper-parameters are searched, also the search and the score that steers it. A score is
identified by its own settings and version, and by those of the evaluation of posteriors. No source
is hashed: golden trials see to it that numbers do not move under one version.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bdl.data import (
    DATASETS,
    Dataset,
    Split,
    SplitScheme,
    Standardise,
    Stream,
    load_dataset,
    load_stream,
    prepare_dataset,
)
from bdl.metrics import METRICS
from bdl.records.row import CellKey, Row
from bdl.registry import outside_file
from bdl.spec import Benchmark, Entry, SweepPoint, sha256
from bdl.spec.labels import DatasetName, MetricName
from bdl.versions import (
    ENGINE_VERSION,
    PREPARATION_VERSION,
    SCORING_VERSION,
    SEARCH_VERSION,
    version_of,
)

if TYPE_CHECKING:
    from bdl.models.problem import Problem


@dataclass(frozen=True, eq=False)
class Task:
    """One entry of a benchmark on one data set, with the splits to run.

    The benchmark has overrides and the values of the sweep's axes, `point`, applied. The device is
    ``"cpu"`` or ``"cuda"``; `compile` is None where the amount of work decides.
    """

    benchmark: Benchmark
    dataset: DatasetName
    entry: str
    splits: tuple[int, ...]
    point: SweepPoint = field(default_factory=SweepPoint)
    device: str = "cpu"
    compile: bool | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the fields alone: another process builds the components anew."""
        return {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}

    @property
    def key(self) -> CellKey:
        """Data set, entry and point: its key in the store."""
        return str(self.dataset), self.entry, self.point.text

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.dataset}/{self.entry}" + (f" {self.point.text}" if self.point else "")

    def with_splits(self, splits: Sequence[int]) -> "Task":
        """Return the same task with other splits."""
        return replace(self, splits=tuple(splits))

    @cached_property
    def settings(self) -> Entry:
        """The entry's section of the spec, with the changes that concern the data set."""
        return self.benchmark.entries[self.entry].on(self.dataset)

    @property
    def data(self) -> Dataset:
        """The data set, loaded once, as the benchmark prepares it."""
        preparation = self.benchmark.preparation
        rows = preparation.rows_of(self.dataset)
        return _load_prepared(
            self.dataset, self.dataset.key, preparation.split, preparation.standardise, rows
        )

    def rows(self, split: int) -> Split:
        """Return the rows of a split for its final fit; validation rows may train as well."""
        # the search itself takes its rows from `data`, where validation rows stay apart
        split_rows, search = self.data.split(split), self.settings.search
        if search is None or not search.refits:
            return split_rows
        return split_rows._replace(train=np.concatenate([split_rows.train, split_rows.validation]))

    @property
    def stream(self) -> Stream:
        """The stream that the method learns from, cut to the length that the benchmark says."""
        stream = load_stream(self.dataset)
        return replace(
            stream, length=self.benchmark.preparation.rows_of(self.dataset) or stream.length
        )

    @property
    def identity(self) -> tuple[object, ...]:
        """Start of the identities of the task's trials."""
        point = (self.point.text,) if self.point else ()
        return (self.benchmark.seed, self.benchmark.name, str(self.dataset), self.entry, *point)

    @cached_property
    def problem(self) -> "Problem":
        """Model, likelihood and prior."""
        # with PyTorch, which those do without who only list tasks
        from bdl.models.base import NoModel
        from bdl.models.likelihoods import Categorical, GaussianLikelihood
        from bdl.models.problem import Problem

        entry, data = self.settings, self.data
        model = entry.model.build() if entry.model else NoModel()
        if entry.likelihood:
            likelihood = entry.likelihood.build()
        else:
            likelihood = Categorical() if data.classes else GaussianLikelihood()
        return Problem(
            model, likelihood, data.d, likelihood.outputs(data.classes), entry.prior.build()
        )

    @property
    def fit_hash(self) -> str:
        """Hash spec, data and versions, which identify the task's fits: SHA-256 (hex)."""
        spec = self.benchmark.fit_part(self.dataset, self.entry)
        return sha256([spec, self._data_checksum, self.fit_versions])

    def is_fit_hash(self, recorded: object) -> bool:
        """Return whether a recorded hash is that of the task's fits.

        Version 0.1 wrote for some time every setting of the score that steers a search into the
        hash, defaults included: hashes made then count as those of the same fits.
        """
        if recorded == self.fit_hash:
            return True
        search = self.settings.search
        if recorded is None or search is None:
            return False
        spec = self.benchmark.fit_part(self.dataset, self.entry)
        spec["entry"][1]["search"]["metric"] = search.metric.file_form
        return recorded == sha256([spec, self._data_checksum, self.fit_versions])

    @property
    def fit_versions(self) -> dict[str, Any]:
        """Return the versions that the task's fits rest on, by kind of component."""
        entry = self.settings
        versions: dict[str, Any] = {
            "engine": ENGINE_VERSION,
            "preparation": PREPARATION_VERSION,
            "dataset": version_of(self.dataset.build()),
            "method": version_of(entry.method.build()),
        }
        if entry.model and entry.likelihood:
            for name in ("model", "likelihood", "prior"):
                versions[name] = version_of(getattr(entry, name).build())
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

    @property
    def fit_metrics(self) -> list[MetricName]:
        """Metrics of the benchmark that are computed from a fit, rather than timed."""
        return [metric for metric in self.benchmark.metrics if metric.info.kind != "time"]

    def select_refusals(self, row: Row) -> dict[str, str]:
        """Return why scores could not be computed, by metric, of this benchmark's alone."""
        metrics = {str(metric) for metric in self.fit_metrics}
        return {metric: reason for metric, reason in row.refusals.items() if metric in metrics}

    def score_hashes(self, names: Iterable[str]) -> dict[str, str]:
        """Return the hash of each metric, and of the further values that it returns."""
        hashes = {metric: self.score_hash(metric) for metric in self.fit_metrics}
        hash_by_name: dict[str, str] = {}
        for name in names:
            metric = self.find_metric(name)
            if metric is not None:
                hash_by_name[name] = hashes[metric]
        return hash_by_name

    def find_metric(self, score_name: str) -> MetricName | None:
        """Find the metric that returns a score, such as ``sym_kl`` for ``sym_kl_mcse``."""
        metrics = [
            metric
            for metric in self.fit_metrics
            if score_name == str(metric) or score_name.startswith(f"{metric}_")
        ]
        # the longest that fits: one metric's name may be the beginning of another's
        return max(metrics, key=lambda metric: len(str(metric)), default=None)

    def score_hash(self, metric: MetricName) -> str:
        """Hash everything that identifies a score except the fit: SHA-256 (hex)."""
        spec = self.benchmark.score_part(self.dataset, self.entry)
        # A score is soon computed again, so the digest of a metric's own file counts. Fits take
        # long: a changed file of theirs is reported instead (`outside_files`).
        outside = outside_file(METRICS.get(metric.name))
        digest = list(outside[1:]) if outside else []
        return sha256(
            [spec, metric.name, metric.nondefault_settings, self.score_versions(metric), *digest]
        )

    def score_versions(self, metric: MetricName) -> dict[str, Any]:
        """Return the versions that a score rests on besides the fit, by kind of component."""
        from bdl.methods.base import list_posterior_families  # with PyTorch, as in `problem`

        reference = self.settings.reference
        family_versions: dict[str, int] = {}
        for family in list_posterior_families(self.settings.method.build()):
            family_versions[family.__name__] = version_of(family)
        return {
            "scoring": SCORING_VERSION,
            "preparation": PREPARATION_VERSION,
            "score": version_of(METRICS.get(metric.name)),
            "reference": version_of(reference.build()) if reference else None,
            "posterior": family_versions,
        }

    @property
    def outside_files(self) -> dict[str, str]:
        """Return the files outside the package that decide the task's fits: name to digest.

        They are recorded with the fits, whose hash leaves them out: a change of such a file is
        noticed and reported.
        """
        entry = self.settings
        reference = entry.reference if entry.from_reference else None
        sections = (entry.method, entry.model, entry.likelihood, entry.prior, reference)
        components: list[object] = [section.build() for section in sections if section is not None]
        for component in list(components):
            components.extend(getattr(component, "sources", ()))
        if entry.search:
            components.append(METRICS.get(entry.search.metric.name))
        return dict(filter(None, map(outside_file, components)))

    @property
    def recorded_files(self) -> dict[str, str]:
        """Return `outside_files`, and the file of a data set that is code: name to digest."""
        if self.settings.streams:
            return self.outside_files
        data_file = outside_file(DATASETS.get(self.dataset.name))
        return self.outside_files | dict([data_file] if data_file else [])

    @property
    def _data_checksum(self) -> str:
        """Return the checksum of the data.

        Simulated data, which their settings and version identify, have the word "simulated"
        instead.
        """
        return "simulated" if self.settings.streams or self.data.simulated else self.data.checksum


@lru_cache(maxsize=16)
def _load_prepared(
    dataset: DatasetName, key: str, split: SplitScheme, standardise: Standardise, rows: int | None
) -> Dataset:
    """Load a data set.

    The key distinguishes data sets of the same label, which have other settings at other points
    of a sweep.
    """
    return prepare_dataset(load_dataset(dataset), split, standardise, rows)


def forget_loaded_data() -> None:
    """Forget data that were loaded, so that files that have changed since are read again."""
    _load_prepared.cache_clear()


def joint_hash(hashes: Iterable[str]) -> str:
    """Hash a set of hashes, SHA-256 (hex)."""
    return sha256(sorted(set(hashes)))
