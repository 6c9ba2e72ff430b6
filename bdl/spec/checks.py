"""Checks of a benchmark as a whole, and values of a sweep laid over it.

Errors are a `ValueError` with the path of the field.

The path of an axis begins with ``dataset`` (a setting of data sets that have settings),
``preparation`` or ``evaluation``; any other is a path in the entries.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bdl.errors import unknown_name_error
from bdl.spec.fields import FieldPath, describe_unknown_field, error_at, explain, to_canonical_json
from bdl.spec.labels import DatasetName, MetricName, NamedComponent
from bdl.spec.values import Tree, iterate_leaves, nest, overlay, remove_nested, select_applicable

if TYPE_CHECKING:
    from bdl.spec.schema import Benchmark
    from bdl.spec.sections import Record


_PLACEMENT_FIELDS = ("by_dataset", "datasets")
"""Fields of an entry that say where it runs, not what it does."""


def set_sweep_values(content: Tree, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a benchmark, every field as JSON values, with values at dotted paths.

    Each value is set wherever its path exists, and what `by_dataset` has at that path is removed.
    """
    changed = dict(content)
    for path, value in values.items():
        scope, *rest = keys = path.split(".")
        if scope == "dataset":
            changed["datasets"] = [
                _set_existing(component, rest, value) for component in changed["datasets"]
            ]
            continue
        if scope in ("preparation", "evaluation"):
            changed[scope] = _set_existing(changed[scope], rest, value)
        if scope != "preparation":
            entries = {}
            for name, entry in changed["entries"].items():
                entries[name] = _set_entry_value(entry, keys, value)
            changed["entries"] = entries
            # or a data set would keep its own value at every point of the axis
            changed["by_dataset"] = _remove_overrides(changed["by_dataset"], keys)
    return changed


def check_path(content: Tree, path: str) -> None:
    """Raise `ValueError` if the path of an axis does not exist, with the fields that do."""
    scope, *rest = keys = path.split(".")
    nodes: list[Any] = list(content["entries"].values())
    allowed = [name for name in nodes[0] if name not in _PLACEMENT_FIELDS]
    if scope == "dataset" and rest:
        keys = rest
        nodes = [component for component in content["datasets"] if isinstance(component, Mapping)]
        allowed = sorted({*_iterate_keys(nodes)} - {"name", "label"})
    elif scope in ("preparation", "evaluation") and rest:
        keys, nodes, allowed = rest, [content[scope]], list(content[scope])
    else:
        allowed += ["dataset", "preparation"]
    # Go down the path in all entries, or data sets, that have it.
    for depth, key in enumerate(keys):
        if key not in allowed:
            parent = path.split(".")[: len(path.split(".")) - len(keys) + depth]
            raise ValueError(
                (f"{'.'.join(parent)}: " if parent else "") + describe_unknown_field(key, allowed)
            )
        nodes = [node[key] for node in nodes if isinstance(node, Mapping) and key in node]
        allowed = list(dict.fromkeys(_iterate_keys(nodes)))


def _iterate_keys(nodes: Sequence[Any]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, Mapping):
            yield from node


def _set_entry_value(entry: Tree, keys: Sequence[str], value: Any) -> dict[str, Any]:
    if not _has_path(entry, keys):
        return dict(entry)
    by_dataset = _remove_overrides(entry["by_dataset"], keys)
    return {**_set_existing(entry, keys, value), "by_dataset": by_dataset}


def _set_existing(settings: Any, keys: Sequence[str], value: Any) -> Any:
    return overlay(settings, nest(keys, value)) if _has_path(settings, keys) else settings


def _has_path(settings: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(settings, Mapping) or key not in settings:
            return False
        settings = settings[key]
    return True


def _remove_overrides(by_dataset: Mapping[str, Tree], keys: Sequence[str]) -> dict[str, Any]:
    return {dataset: remove_nested(changes, keys) for dataset, changes in by_dataset.items()}


def check_labels(benchmark: "Benchmark", labels: frozenset[str] | None) -> None:
    """Refuse the label of an entry, data set or metric that does not exist.

    An entry must be in the benchmark, a data set or metric in the benchmark or a registry. Further
    `labels` are allowed: a profile may leave out data sets that notes are about. Of a part of a
    benchmark, for which they are None, only entries are looked up.
    """
    for path, kind, label in iterate_labels(benchmark):
        if kind is None:
            if label not in benchmark.entries:
                error = unknown_name_error("entry", label, benchmark.entries)
                raise error_at(path, ValueError(str(error)))
        elif labels is not None and label not in benchmark.labels | labels:
            registry = kind.registry()
            for dataset in benchmark.datasets:
                # settings by the name of a component that has another label here would be ignored
                if kind is DatasetName and dataset.name == label:
                    reason = f"'{label}' is called '{dataset}' here: use that"
                    raise error_at(path, ValueError(reason))
            if label not in registry.targets:
                members = benchmark.datasets if kind is DatasetName else benchmark.metrics
                names = {*registry.names(), *members}
                error = unknown_name_error(registry.kind, label, names)
                raise error_at(path, ValueError(str(error)))


def iterate_labels(
    benchmark: "Benchmark",
) -> Iterator[tuple[FieldPath, type[NamedComponent] | None, str]]:
    """Yield the path of each field that refers to something by its label, the kind, and the label.

    The kind is the class of a data set or metric, None for an entry.
    """
    for label in benchmark.preparation.splits:
        yield ("preparation", "splits", label), DatasetName, label
    rows = benchmark.preparation.rows
    for label in () if isinstance(rows, int) else rows:
        yield ("preparation", "rows", label), DatasetName, label
    for label in benchmark.by_dataset:
        yield ("by_dataset", label), DatasetName, label
    for name, entry in benchmark.entries.items():
        for i, label in enumerate(entry.datasets):
            yield ("entries", name, "datasets", i), DatasetName, label
        for label in entry.by_dataset:
            yield ("entries", name, "by_dataset", label), DatasetName, label
    if benchmark.baseline:
        yield ("baseline",), None, benchmark.baseline
    for i, paper in enumerate(benchmark.papers):
        for name in paper.methods:
            yield ("papers", i, "methods"), None, name
        for label in paper.datasets:
            yield ("papers", i, "datasets", label), DatasetName, label
        for label in paper.metrics:
            yield ("papers", i, "metrics", label), MetricName, label
    for i, note in enumerate(benchmark.notes):
        for field, kind in (("entry", None), ("dataset", DatasetName), ("metric", MetricName)):
            label = getattr(note, field)
            if label:
                yield ("notes", i, field), kind, label
    for i, claim in enumerate(benchmark.claims):
        for j, label in enumerate(claim.datasets):
            yield ("claims", i, "datasets", j), DatasetName, label
        for side in claim.sides():
            yield ("claims", i), None, side.entry
            yield ("claims", i), MetricName, str(side.metric)
            if side.dataset:
                yield ("claims", i), DatasetName, side.dataset


def check_changes(benchmark: "Benchmark") -> None:
    """Refuse changes of `by_dataset` that concern no entry."""
    entries = [entry.dump() for entry in benchmark.entries.values()]
    for dataset, changes in benchmark.by_dataset.items():
        applicable_paths: set[str] = set()
        for entry in entries:
            applicable = select_applicable(changes, entry)
            applicable_paths.update(path for path, _ in iterate_leaves(applicable))
        for path, _ in iterate_leaves(changes):
            if path not in applicable_paths:
                raise ValueError(
                    f"by_dataset.{dataset}: no entry has '{path}': "
                    "correct it, or use the by_dataset of an entry"
                )


def check_distances(benchmark: "Benchmark") -> None:
    """Refuse distances of entries without a reference."""
    for dataset, name in benchmark.pairs if benchmark.measures_distances else ():
        entry = benchmark.entries[name].on(dataset)
        if entry.reference is None and not entry.streams:
            scope = f".by_dataset.{dataset}" if benchmark.entries[name].reference else ""
            raise ValueError(f"entries.{name}{scope}.reference is missing: distances need one")


def check_claims(benchmark: "Benchmark") -> None:
    """Refuse claims about axes that the sweep lacks, or about scores that are not recorded."""
    for i, claim in enumerate(benchmark.claims):
        claimed_axes: set[str] = set()
        for side in claim.sides():
            claimed_axes.update(side.at)
            records: set[Record | None] = set()
            for dataset, entry in benchmark.pairs:
                if entry == side.entry:
                    records.add(benchmark.record_of(str(dataset), entry))
            if side.after and records == {None}:
                problem = f"after: {side.entry} records no scores during its fits: add a record"
                raise error_at(("claims", i), ValueError(problem))
        for path in claimed_axes - {*benchmark.sweep}:
            problem = str(unknown_name_error("axis of the sweep", path, benchmark.sweep))
            raise error_at(("claims", i, "at"), ValueError(problem))


def check_sweep(benchmark: "Benchmark") -> None:
    """Refuse a sweep that cannot be run.

    An axis must exist, its values must differ, and the benchmark must be allowed at every point.
    """
    if not benchmark.sweep:
        return
    content = benchmark.model_dump(mode="json")
    for path, values in benchmark.sweep.items():
        try:
            check_path(content, path)
        except ValueError as error:
            raise error_at(("sweep",), error) from None
        for position, value in enumerate(values):
            if value in values[:position]:  # 1 and 1.0 are one number, and would give equal points
                text = to_canonical_json(value)
                raise error_at(("sweep", path), ValueError(f"{text} comes twice: remove one"))
    for point in benchmark.points:
        try:
            benchmark.at(point)
        except ValidationError as error:
            raise error_at(("sweep",), ValueError(f"at {point.text}: {explain(error)}")) from None
