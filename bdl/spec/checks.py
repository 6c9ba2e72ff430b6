"""What a benchmark must satisfy as a whole, and values of a sweep laid over it.

Errors are a ValueError with a place.

The path of an axis begins with ``dataset`` (a setting of data sets that have settings),
``preparation`` or ``evaluation``; any other is a path in the entries.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bdl.errors import unknown
from bdl.spec.fields import Path, canonical, explain, unknown_field, within
from bdl.spec.labels import DatasetName, MetricName, NamedComponent
from bdl.spec.values import Tree, applicable, leaves, nested, overlay, without

if TYPE_CHECKING:
    from bdl.spec.schema import Benchmark


_OF_ENTRIES = ("by_dataset", "datasets")
"""Fields of an entry that say where it runs, not what it does."""


def lay_over(content: Tree, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a benchmark, every field as JSON values, with values at dotted paths.

    Each value is in all places that have its path; where data sets said otherwise for entries,
    they do so no longer.
    """
    changed = dict(content)
    for path, value in values.items():
        scope, *rest = keys = path.split(".")
        if scope == "dataset":
            changed["datasets"] = [
                _laid(component, rest, value) for component in changed["datasets"]
            ]
            continue
        if scope in ("preparation", "evaluation"):
            changed[scope] = _laid(changed[scope], rest, value)
        if scope != "preparation":
            changed["entries"] = {
                name: _entry(entry, keys, value) for name, entry in changed["entries"].items()
            }
            changed["by_dataset"] = _without(changed["by_dataset"], keys)
    return changed


def check_path(content: Tree, path: str) -> None:
    """Raise `ValueError` if there is nothing at the path of an axis, naming what there is."""
    scope, *rest = keys = path.split(".")
    places: list[Any] = list(content["entries"].values())
    allowed = [name for name in next(iter(places)) if name not in _OF_ENTRIES]
    if scope == "dataset" and rest:
        keys, places = (
            rest,
            [component for component in content["datasets"] if isinstance(component, Mapping)],
        )
        allowed = sorted({key for component in places for key in component} - {"name", "label"})
    elif scope in ("preparation", "evaluation") and rest:
        keys, places, allowed = rest, [content[scope]], list(content[scope])
    else:
        allowed += ["dataset", "preparation"]
    for depth, key in enumerate(keys):
        if key not in allowed:
            place = path.split(".")[: len(path.split(".")) - len(keys) + depth]
            raise ValueError(
                (f"{'.'.join(place)}: " if place else "") + unknown_field(key, allowed)
            )
        places = [place[key] for place in places if isinstance(place, Mapping) and key in place]
        allowed = list(
            dict.fromkeys(
                below for place in places if isinstance(place, Mapping) for below in place
            )
        )


def _entry(entry: Tree, keys: Sequence[str], value: Any) -> dict[str, Any]:
    if not _has(entry, keys):
        return dict(entry)
    return {**_laid(entry, keys, value), "by_dataset": _without(entry["by_dataset"], keys)}


def _laid(settings: Any, keys: Sequence[str], value: Any) -> Any:
    return overlay(settings, nested(keys, value)) if _has(settings, keys) else settings


def _has(settings: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(settings, Mapping) or key not in settings:
            return False
        settings = settings[key]
    return True


def _without(by_dataset: Mapping[str, Tree], keys: Sequence[str]) -> dict[str, Any]:
    return {dataset: without(changes, keys) for dataset, changes in by_dataset.items()}


def check_references(benchmark: "Benchmark", labels: frozenset[str] | None) -> None:
    """Refuse an entry, data set or metric that is referred to and that neither the benchmark nor a registry has.

    Further labels may be referred to: a profile may leave out data sets that notes are about. Of a
    part of a benchmark, for which they are None, only entries are looked up.
    """
    for place, kind, label in references(benchmark):
        if kind is None:
            if label not in benchmark.entries:
                raise within(place, ValueError(str(unknown("entry", label, benchmark.entries))))
        elif labels is not None and label not in benchmark.labels | labels:
            registry = kind.registry()
            if label not in registry.targets:
                known = {
                    *registry.names(),
                    *(benchmark.datasets if kind is DatasetName else benchmark.metrics),
                }
                raise within(place, ValueError(str(unknown(registry.kind, label, known))))


def references(benchmark: "Benchmark") -> Iterator[tuple[Path, type[NamedComponent] | None, str]]:
    """Yield the place of each reference, what is referred to, None for an entry, and its name."""
    yield from (
        (("preparation", "splits", label), DatasetName, label)
        for label in benchmark.preparation.splits
    )
    if not isinstance(rows := benchmark.preparation.rows, int):
        yield from ((("preparation", "rows", label), DatasetName, label) for label in rows)
    yield from ((("by_dataset", label), DatasetName, label) for label in benchmark.by_dataset)
    for name, entry in benchmark.entries.items():
        place = ("entries", name)
        yield from (
            ((*place, "datasets", i), DatasetName, label) for i, label in enumerate(entry.datasets)
        )
        yield from (
            ((*place, "by_dataset", label), DatasetName, label) for label in entry.by_dataset
        )
    if benchmark.baseline:
        yield ("baseline",), None, benchmark.baseline
    for i, paper in enumerate(benchmark.papers):
        yield from ((("papers", i, "methods"), None, name) for name in paper.methods)
        yield from (
            (("papers", i, "datasets", label), DatasetName, label) for label in paper.datasets
        )
        yield from (
            (("papers", i, "metrics", label), MetricName, label) for label in paper.metrics
        )
    for i, note in enumerate(benchmark.notes):
        for field, kind in (("entry", None), ("dataset", DatasetName), ("metric", MetricName)):
            if label := getattr(note, field):
                yield ("notes", i, field), kind, label
    for i, claim in enumerate(benchmark.claims):
        yield from (
            (("claims", i, "datasets", j), DatasetName, label)
            for j, label in enumerate(claim.datasets)
        )
        for side, _, metric in claim.sides():
            yield ("claims", i), None, side
            yield ("claims", i), MetricName, metric


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
            raise within(
                ("claims", i, "at"),
                ValueError(str(unknown("axis of the sweep", path, benchmark.sweep))),
            )
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
