"""Changes laid over settings, deeply: by a profile, by ``--set``, or by an entry for one data set."""

from collections.abc import Iterator, Mapping
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
    return "name" in changes and changes["name"] != component.get("name")


def leaves(settings: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of everything that is not a mapping."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
