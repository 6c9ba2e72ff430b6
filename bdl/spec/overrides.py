"""Changes laid over a benchmark: profiles and ``--set path.to.field=value``."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

from bdl.errors import InputError
from bdl.spec.explain import unknown_field
from bdl.spec.schema import Benchmark
from bdl.spec.yaml_text import parse_yaml

Tree = Mapping[str, Any]


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
        tree["entries"][name]["hyper"] = dict.fromkeys(entry.hyper_names)
    return tree


def overlay(base: Tree, changes: Tree, known: Any, source: str, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Merge changes into a file's content, deeply.

    Mappings are merged; lists and other values are replaced, and so is a component whose name changes.

    Parameters
    ----------
    base
        Content of the file.
    changes
        What to change.
    known
        The fields that exist at this place; below a value that is not a mapping anything may be set, to be
        checked by the schema.
    source
        Where the changes come from, for the message.
    path
        Keys that lead to this place.

    Raises
    ------
    InputError
        If a key does not exist; with the keys that do.
    """
    merged = dict(base)
    for key, value in changes.items():
        here = (*path, key)
        if isinstance(known, Mapping) and key not in known:
            place = f"{'.'.join(path)}: " if path else ""
            raise InputError(f"{source}: {place}{unknown_field(key, known)}")
        below = known.get(key) if isinstance(known, Mapping) else None
        if isinstance(value, Mapping) and isinstance(below, Mapping) and not _renamed(value, below):
            inner = merged.get(key)
            merged[key] = overlay(inner if isinstance(inner, Mapping) else {}, value, below, source, here)
        else:
            merged[key] = value
    return merged


def _renamed(changes: Tree, component: Tree) -> bool:
    return "name" in changes and changes["name"] != component.get("name")
