"""What profiles and ``--set path.to.field=value`` may change."""

from collections.abc import Mapping
from typing import Any

from bdl.errors import InputError, short
from bdl.spec.entry import Entry, Evaluation
from bdl.spec.merging import nested
from bdl.spec.schema import Benchmark
from bdl.spec.yaml_text import parse_yaml


def parse_override(text: str) -> dict[str, Any]:
    """Turn ``a.b=value`` into ``{a: {b: value}}``; the value is read as YAML.

    What follows ``sweep.`` is the path of one axis.

    Raises
    ------
    InputError
        If the text has no path, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {short(text)}: give path.to.field=value, for example seed=1")
    if keys[0] == "sweep" and len(keys) > 1:
        keys = ["sweep", ".".join(keys[1:])]
    changes: dict[str, Any] = nested(keys, parse_yaml(value, f"--set {short(text)}"))
    return changes


def uncertified(benchmark: Benchmark) -> list[str]:
    """List the overrides that let references be used whose draws broke a rule.

    Raises
    ------
    InputError
        If no entry has such a reference.
    """
    entries = [name for name, entry in benchmark.entries.items() if "uncertified" in _settings(entry)]
    if not entries:
        raise InputError(f"--uncertified: {benchmark.name} has no reference that may break a rule: leave it out")
    return [f"entries.{name}.reference.uncertified=true" for name in entries]


def _settings(entry: Entry) -> Mapping[str, Any]:
    return entry.reference.settings if entry.reference else {}


def fields_of(benchmark: Benchmark) -> dict[str, Any]:
    """Return the tree of everything that can be changed: the fields with defaults filled in."""
    tree = benchmark.model_dump(mode="json", exclude={"profile"})
    tree["preparation"]["rows"] = tree["preparation"]["splits"] = dict.fromkeys(benchmark.datasets)
    tree["sweep"] = None  # replaced as a whole
    everywhere = {*benchmark.datasets, *benchmark.by_dataset}
    tree["by_dataset"] = {dataset: {} for dataset in (*benchmark.datasets, *benchmark.by_dataset)}
    for name, entry in benchmark.entries.items():
        own = {dataset: _fields(entry.on(dataset)) for dataset in (*benchmark.datasets, *entry.by_dataset)}
        evaluation = (entry.evaluation or Evaluation()).model_dump(mode="json")
        several = {"datasets": list(entry.datasets), "by_dataset": own, "evaluation": evaluation}
        tree["entries"][name] = _fields(entry) | several
        for dataset in everywhere:
            tree["by_dataset"][dataset] = _union(tree["by_dataset"][dataset], _fields(entry.on(dataset)))
    return tree


def _fields(entry: Entry) -> dict[str, Any]:
    return entry.dump() | {"hyper": dict.fromkeys(entry.hyper_names)}


def _union(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Join what two entries have; what is a mapping in one of them is one."""
    joined = {**second, **first}
    for key in first.keys() & second.keys():
        mappings = [value for value in (first[key], second[key]) if isinstance(value, Mapping)]
        if mappings:
            joined[key] = _union(mappings[0], mappings[-1])
    joined.pop("name", None)  # of components that may differ
    return joined
