"""Values of a sweep laid over a benchmark.

The path of an axis begins with ``dataset`` (a setting of data sets that have settings), ``preparation`` or
``evaluation``; any other is a path in the entries.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bdl.spec.explain import unknown_field
from bdl.spec.merging import Tree, nested, overlay, without

_OF_ENTRIES = ("by_dataset", "datasets")
"""Fields of an entry that say where it runs, not what it does."""


def lay_over(content: Tree, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a benchmark at a point.

    Parameters
    ----------
    content
        Every field of the benchmark with its defaults, as JSON values.
    values
        Dotted path to its value.

    Returns
    -------
    dict
        The content with each value in all places that have its path; where data sets said otherwise for entries, they
        do so no longer.
    """
    changed = dict(content)
    for path, value in values.items():
        scope, *rest = keys = path.split(".")
        if scope == "dataset":
            changed["datasets"] = [_laid(component, rest, value) for component in changed["datasets"]]
            continue
        if scope in ("preparation", "evaluation"):
            changed[scope] = _laid(changed[scope], rest, value)
        if scope != "preparation":
            changed["entries"] = {name: _entry(entry, keys, value) for name, entry in changed["entries"].items()}
            changed["by_dataset"] = _without(changed["by_dataset"], keys)
    return changed


def check_path(content: Tree, path: str) -> None:
    """Raise `ValueError` if there is nothing at the path of an axis, naming what there is."""
    scope, *rest = keys = path.split(".")
    places: list[Any] = list(content["entries"].values())
    allowed = [name for name in next(iter(places)) if name not in _OF_ENTRIES]
    if scope == "dataset" and rest:
        keys, places = rest, [component for component in content["datasets"] if isinstance(component, Mapping)]
        allowed = sorted({key for component in places for key in component} - {"name", "label"})
    elif scope in ("preparation", "evaluation") and rest:
        keys, places, allowed = rest, [content[scope]], list(content[scope])
    else:
        allowed += ["dataset", "preparation"]
    for depth, key in enumerate(keys):
        if key not in allowed:
            place = path.split(".")[: len(path.split(".")) - len(keys) + depth]
            raise ValueError((f"{'.'.join(place)}: " if place else "") + unknown_field(key, allowed))
        places = [place[key] for place in places if isinstance(place, Mapping) and key in place]
        allowed = list(dict.fromkeys(below for place in places if isinstance(place, Mapping) for below in place))


def _entry(entry: Tree, keys: Sequence[str], value: Any) -> dict[str, Any]:
    if not _has(entry, keys):
        return dict(entry)
    return {**_laid(entry, keys, value), "by_dataset": _without(entry["by_dataset"], keys)}


def _laid(settings: Any, keys: Sequence[str], value: Any) -> Any:
    if not _has(settings, keys):
        return settings
    return overlay(settings, nested(keys, value), settings)


def _has(settings: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(settings, Mapping) or key not in settings:
            return False
        settings = settings[key]
    return True


def _without(by_dataset: Mapping[str, Tree], keys: Sequence[str]) -> dict[str, Any]:
    return {dataset: without(changes, keys) for dataset, changes in by_dataset.items()}
