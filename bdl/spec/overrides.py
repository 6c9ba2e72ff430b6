"""What profiles and ``--set path.to.field=value`` may change."""

from functools import reduce
from typing import Any

from bdl.errors import InputError
from bdl.spec.entry import Entry
from bdl.spec.schema import Benchmark
from bdl.spec.yaml_text import parse_yaml


def parse_override(text: str) -> dict[str, Any]:
    """Turn ``a.b=value`` into ``{a: {b: value}}``; the value is read as YAML.

    Raises
    ------
    InputError
        If the text has no path, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise InputError(f"--set {text}: give path.to.field=value, for example seed=1")
    changes: Any = parse_yaml(value, f"--set {text}")
    return reduce(lambda inner, key: {key: inner}, reversed(keys), changes)


def fields_of(benchmark: Benchmark) -> dict[str, Any]:
    """Give the tree of everything that can be changed: the fields with defaults filled in."""
    tree = benchmark.model_dump(mode="json", exclude={"profile"})
    tree["preparation"]["rows"] = dict.fromkeys(benchmark.datasets)
    for name, entry in benchmark.entries.items():
        own = {dataset: _fields(entry.on(dataset)) for dataset in (*benchmark.datasets, *entry.by_dataset)}
        tree["entries"][name] = _fields(entry) | {"datasets": list(entry.datasets), "by_dataset": own}
    return tree


def _fields(entry: Entry) -> dict[str, Any]:
    return entry.dump() | {"hyper": dict.fromkeys(entry.hyper_names)}
