"""Changes laid over settings, deeply: by a profile, by ``--set``, or by an entry for one data set."""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from bdl.errors import InputError
from bdl.spec.explain import unknown_field

Tree = Mapping[str, Any]


def overlay(
    base: Tree, changes: Tree, known: Any, source: str | None = None, path: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Merge changes into settings, deeply.

    Mappings are merged; lists and other values are replaced, and so is a component whose name changes.

    Parameters
    ----------
    base
        What is there.
    changes
        What to change.
    known
        The fields that exist at this place; below a value that is not a mapping anything may be set, to be
        checked by the schema.
    source
        Where the changes come from, for the message; None leaves unknown keys to the schema too.
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
        if source is not None and isinstance(known, Mapping) and key not in known:
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
    if "name" in changes:
        return bool(changes["name"] != component.get("name"))
    # A mapping of components takes the place of one component.
    return "name" in component and any(isinstance(value, Mapping) and "name" in value for value in changes.values())


def applicable(changes: Tree, settings: Tree) -> dict[str, Any]:
    """Keep the changes of what the settings have.

    Parameters
    ----------
    changes
        What to change. A mapping with a name concerns components of that name.
    settings
        All that there is, defaults included.

    Returns
    -------
    dict
        The part of the changes whose leaves exist; values that are not mappings are leaves.
    """
    found: dict[str, Any] = {}
    for key in changes.keys() & settings.keys():
        value, there = changes[key], settings[key]
        if not isinstance(value, Mapping):
            found[key] = value
        elif isinstance(there, Mapping) and value.get("name") in (None, there.get("name")):
            found |= {key: inner} if (inner := applicable(value, there)) else {}
    return {key: found[key] for key in changes if key in found}


def nested(keys: Sequence[str], value: Any) -> Any:
    """Put a value under keys, the first outermost: a, b and 1 give ``{a: {b: 1}}``."""
    return reduce(lambda inner, key: {key: inner}, reversed(keys), value)


def without(settings: Tree, keys: Sequence[str]) -> dict[str, Any]:
    """Leave out what lies under keys, and the mappings that are empty then."""
    first, *rest = keys
    if first not in settings or (rest and not isinstance(settings[first], Mapping)):
        return dict(settings)
    inner = without(settings[first], rest) if rest else {}
    return {key: inner if key == first else value for key, value in settings.items() if key != first or inner}


def leaves(settings: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of everything that is not a mapping."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
