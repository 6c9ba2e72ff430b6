"""Parse YAML strictly, and merge, nest and remove values of nested mappings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from math import isfinite
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from bdl.errors import InputError, abbreviate

_MAX_DEPTH, _MAX_VALUES = 50, 200_000
"""Levels of a document, and its values with anchors written out; a benchmark has a dozen levels
and some thousands of values.
"""
_TAG = "tag:yaml.org,2002:"


class _StrictConstructor(yaml.constructor.SafeConstructor):
    """Reads ``1e-3`` as a number and ``no`` as text, as YAML 1.2 says and YAML 1.1 does not.

    ``<<`` merges mappings.
    """

    def get_single_node(self) -> yaml.Node | None:
        """Read the document, and refuse with its position a value that benchmarks do not have."""
        # of the parser, which is the next base class of a loader
        node: yaml.Node | None = super().get_single_node()  # type: ignore[misc]
        if node is not None:
            _count_values(node, {}, 0)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Build a value; any exception becomes an error with its position."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            kind = node.tag.removeprefix(_TAG)
            raise _error_at_node(
                f"{abbreviate(node.value)!r} is no {kind}: correct it, or remove the tag", node
            ) from None

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        """Read an integer of 64 bits; a larger one is an error with its position."""
        digits = node.value.lstrip("+-")
        if not digits.isdecimal():
            raise ValueError
        if len(digits) > len(str(_MAX_INTEGER)) or int(digits) > _MAX_INTEGER:
            raise _error_at_node(
                f"{abbreviate(node.value)} is too large: integers go to {_MAX_INTEGER:,}", node
            )
        return int(node.value)

    def construct_finite(self, node: yaml.ScalarNode) -> float:
        """Read a number; one that is too large for a double is an error with its position."""
        value = float(node.value)
        if not isfinite(value):
            raise _error_at_node(f"{abbreviate(node.value)} is not a finite number", node)
        return value

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """Read a text; characters that no file and no database takes are an error."""
        if "\0" in node.value or (
            not node.value.isascii() and any("\ud800" <= c <= "\udfff" for c in node.value)
        ):
            raise _error_at_node(
                "a text has a character that is none: a NUL or half of a pair; remove it", node
            )
        return str(node.value)


_MAX_INTEGER = 2**63 - 1


def _error_at_node(problem: str, node: yaml.Node) -> ConstructorError:
    return ConstructorError(None, None, problem, node.start_mark)


def _count_values(node: yaml.Node, counts: dict[yaml.Node, int], depth: int) -> int:
    """Count the values of a document with anchors written out.

    Values that a benchmark cannot have are refused. `counts` has the nodes that were counted, 0
    for those that are being counted.
    """
    # before anything is built: a few nested anchors may stand for more values than memory holds
    if depth > _MAX_DEPTH:
        raise _error_at_node("too many levels, one within another; a benchmark has a dozen", node)
    if node.tag not in _StrictConstructor.yaml_constructors and node.tag != f"{_TAG}merge":
        raise _error_at_node(
            f"{abbreviate(node.tag.replace(_TAG, '!!'))} is a tag that benchmarks do not use: "
            "remove it",
            node,
        )
    if node in counts:
        if not counts[node]:
            raise _error_at_node("an anchor within itself: write the values out", node)
        return counts[node]
    counts[node] = 0  # until all below it is counted
    children = list(node.value) if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        _check_keys(node)
        children = list(chain.from_iterable(node.value))
    counts[node] = 1 + sum(_count_values(child, counts, depth + 1) for child in children)
    if counts[node] > _MAX_VALUES:
        raise _error_at_node(
            f"more than {_MAX_VALUES:,} values when what is anchored is written out: "
            "make it smaller",
            node,
        )
    return counts[node]


def _check_keys(node: yaml.MappingNode) -> None:
    keys: set[str] = set()
    for key, _ in node.value:
        if key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
            raise _error_at_node("a key must be text: put it in quotes", key)
        if key.value in keys:
            raise _error_at_node(f"the key '{abbreviate(key.value)}' comes twice: remove one", key)
        keys.add(key.value)


# assigned, not added to: PyYAML's own also make dates, sets and bytes, which JSON lacks
_StrictConstructor.yaml_constructors = {
    f"{_TAG}null": _StrictConstructor.construct_yaml_null,
    f"{_TAG}bool": _StrictConstructor.construct_yaml_bool,
    f"{_TAG}int": _StrictConstructor.construct_integer,
    f"{_TAG}float": _StrictConstructor.construct_finite,
    f"{_TAG}str": _StrictConstructor.construct_text,
    f"{_TAG}seq": _StrictConstructor.construct_yaml_seq,
    f"{_TAG}map": _StrictConstructor.construct_yaml_map,
}


class _Loader(_StrictConstructor, yaml.SafeLoader):
    """Reads any file."""


class _ShippedLoader(_StrictConstructor, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads files of the package nine times as fast, where PyYAML has its parser in C.

    Of other files its errors say less, and it may go too deep for the stack.
    """


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"(?:~|null|)$", ["~", "n", ""]),
    ("bool", r"(?:true|false)$", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$",
        list("-+.0123456789"),
    ),
    ("merge", r"<<$", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)
_ShippedLoader.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def parse_yaml(text: str, source: str, *, is_shipped: bool = False) -> Any:
    """Read one YAML document: mappings, lists, texts, integers, floats, booleans and None.

    One that comes with the package is read faster.

    `InputError`, which names the source, if the text is not YAML, a key comes twice or is not
    text, a value is not what its tag says or too large, with line and column, counted from 1; or
    if it goes too deep.
    """
    try:
        return yaml.load(text, _ShippedLoader if is_shipped else _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{source}{position}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{source}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(
            f"{source}: too many levels, one within another; a benchmark has a dozen"
        ) from None


Tree = Mapping[str, Any]


def overlay(base: Tree, changes: Tree) -> dict[str, Any]:
    """Merge changes into settings, deeply; the schema checks the result.

    Lists and other values are replaced, and so are a component of another name and a sweep.
    """
    merged = dict(base)
    # a sweep is replaced as a whole, since the axes of two would be combined
    for key, value in changes.items():
        base_value = base.get(key)
        if (
            isinstance(value, Mapping)
            and isinstance(base_value, Mapping)
            and key != "sweep"
            and not _names_other_component(value, base_value)
        ):
            value = overlay(base_value, value)
        merged[key] = value
    return merged


def _names_other_component(changes: Tree, component: Tree) -> bool:
    if "name" in changes:
        return bool(changes["name"] != component.get("name"))
    # A mapping of components takes the place of one component.
    return "name" in component and any(
        isinstance(value, Mapping) and "name" in value for value in changes.values()
    )


def select_applicable(changes: Tree, settings: Tree) -> dict[str, Any]:
    """Select the changes of fields that the settings, defaults included, have.

    Values that are not mappings are leaves. A mapping with a name concerns components of that
    name.
    """
    selected: dict[str, Any] = {}
    for key, change in changes.items():
        if key not in settings:
            continue
        setting = settings[key]
        if not isinstance(change, Mapping):
            selected[key] = change
        elif isinstance(setting, Mapping) and change.get("name") in (None, setting.get("name")):
            inner = select_applicable(change, setting)
            if inner:
                selected[key] = inner
    return selected


def nest(keys: Sequence[str], value: Any) -> Any:
    """Nest a value under keys, the first outermost: a, b and 1 become ``{a: {b: 1}}``."""
    return reduce(lambda inner, key: {key: inner}, reversed(keys), value)


def remove_nested(settings: Tree, keys: Sequence[str]) -> dict[str, Any]:
    """Remove the value under keys, and the mappings that are empty without it."""
    first, *rest = keys
    if first not in settings or (rest and not isinstance(settings[first], Mapping)):
        return dict(settings)
    remaining = dict(settings)
    inner = remove_nested(settings[first], rest) if rest else {}
    if inner:
        remaining[first] = inner
    else:
        del remaining[first]
    return remaining


def iterate_leaves(settings: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of everything that is not a mapping."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from iterate_leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
