"""What a benchmark must satisfy as a whole; every problem is a ValueError that says where it lies."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bdl.errors import unknown
from bdl.spec.canonical import canonical
from bdl.spec.explain import Path, explain, within
from bdl.spec.labels import DatasetName, MetricName, NamedComponent
from bdl.spec.merging import applicable, leaves
from bdl.spec.sweep import check_path

if TYPE_CHECKING:
    from bdl.spec.schema import Benchmark


def labels_of(benchmark: "Benchmark") -> frozenset[str]:
    """Collect what the data sets and metrics of a benchmark are called."""
    return frozenset(map(str, (*benchmark.datasets, *benchmark.metrics)))


def check_references(benchmark: "Benchmark", labels: frozenset[str]) -> None:
    """Refuse a data set or metric that is referred to and that neither the benchmark nor a registry has.

    Parameters
    ----------
    benchmark
        The benchmark.
    labels
        Labels that may be referred to beside its own: a profile may leave out data sets that notes are about.
    """
    own = labels_of(benchmark) | labels
    for place, kind, label in _references(benchmark):
        if label in own:
            continue
        registry = kind.registry()
        if label not in registry.targets:
            known = {*registry.names(), *(benchmark.datasets if kind is DatasetName else benchmark.metrics)}
            raise within(place, ValueError(str(unknown(registry.kind, label, known))))


def _references(benchmark: "Benchmark") -> Iterator[tuple[Path, type[NamedComponent], str]]:
    yield from ((("preparation", "splits", label), DatasetName, label) for label in benchmark.preparation.splits)
    if not isinstance(rows := benchmark.preparation.rows, int):
        yield from ((("preparation", "rows", label), DatasetName, label) for label in rows)
    yield from ((("by_dataset", label), DatasetName, label) for label in benchmark.by_dataset)
    for name, entry in benchmark.entries.items():
        place = ("entries", name)
        yield from (((*place, "datasets", i), DatasetName, label) for i, label in enumerate(entry.datasets))
        yield from (((*place, "by_dataset", label), DatasetName, label) for label in entry.by_dataset)
    for i, paper in enumerate(benchmark.papers):
        yield from ((("papers", i, "datasets", label), DatasetName, label) for label in paper.datasets)
        yield from ((("papers", i, "metrics", label), MetricName, label) for label in paper.metrics)
    for i, note in enumerate(benchmark.notes):
        if note.dataset:
            yield ("notes", i, "dataset"), DatasetName, note.dataset
        if note.metric:
            yield ("notes", i, "metric"), MetricName, note.metric
    for i, claim in enumerate(benchmark.claims):
        yield from ((("claims", i, "datasets", j), DatasetName, label) for j, label in enumerate(claim.datasets))
        yield from ((("claims", i), MetricName, label) for _, _, label in claim.sides())


def check_changes(benchmark: "Benchmark") -> None:
    """Refuse changes of `by_dataset` that concern no entry."""
    entries = [entry.dump() for entry in benchmark.entries.values()]
    for dataset, changes in benchmark.by_dataset.items():
        concerned = {path for entry in entries for path, _ in leaves(applicable(changes, entry))}
        for path, _ in leaves(changes):
            if path not in concerned:
                raise ValueError(
                    f"by_dataset.{dataset}: no entry has '{path}': correct it, or use the by_dataset of an entry"
                )


def check_distances(benchmark: "Benchmark") -> None:
    """Refuse distances of entries without a reference."""
    for dataset, name in benchmark.pairs if benchmark.measures_distances else ():
        entry = benchmark.entries[name].on(dataset)
        if entry.reference is None and not entry.streams:
            own = f".by_dataset.{dataset}" if benchmark.entries[name].reference else ""
            raise ValueError(f"entries.{name}{own}.reference is missing: distances need one")


def check_sweep(benchmark: "Benchmark") -> None:
    """Refuse a sweep of what does not exist, a value that comes twice, forbidden points, claims about other axes."""
    for i, claim in enumerate(benchmark.claims):
        for path in {path for _, place, _ in claim.sides() for path in place} - {*benchmark.sweep}:
            raise within(("claims", i, "at"), ValueError(str(unknown("axis of the sweep", path, benchmark.sweep))))
    if not benchmark.sweep:
        return
    content = benchmark.model_dump(mode="json")
    for path, values in benchmark.sweep.items():
        try:
            check_path(content, path)
        except ValueError as error:
            raise within(("sweep",), error) from None
        (text, count), *_ = Counter(map(canonical, values)).most_common(1)
        if count > 1:
            raise within(("sweep", path), ValueError(f"{text} comes twice: remove one"))
    for point in benchmark.points:
        try:
            benchmark.at(point)
        except ValidationError as error:
            raise within(("sweep",), ValueError(f"at {point.text}: {explain(error)}")) from None
