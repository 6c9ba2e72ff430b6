"""YAML text to plain Python values, strictly: YAML 1.2 scalars, text keys, no key twice."""

import re
from collections.abc import Hashable
from math import isfinite
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from bdl.errors import InputError


class _Loader(yaml.SafeLoader):
    """Reads ``1e-3`` as a number and ``no`` as text, as YAML 1.2 says and YAML 1.1 does not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; a key that is not text, or comes twice, is an error at its place."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise ConstructorError(None, None, "a key must be text: put it in quotes", key.start_mark)
            if key.value in seen:
                raise ConstructorError(None, None, f"the key '{key.value}' comes twice: remove one", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_finite(self, node: yaml.ScalarNode) -> float:
        """Read a number; one that is too large for a double is an error at its place."""
        value = self.construct_yaml_float(node)
        if not isfinite(value):
            raise ConstructorError(None, None, f"{node.value} is not a finite number", node.start_mark)
        return value


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_finite)
_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"(?:~|null|)$", ["~", "n", ""]),
    ("bool", r"(?:true|false)$", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def parse_yaml(text: str, source: str) -> Any:
    """Read one YAML document.

    Parameters
    ----------
    text
        The document.
    source
        Where it comes from, for the message.

    Returns
    -------
    object
        Mappings, lists, texts, integers, floats, booleans and None.

    Raises
    ------
    InputError
        If the text is not YAML, a key comes twice or is not text, with line and column, counted from 1; or if it goes
        too deep.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{source}{place}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{source}: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{source}: too many levels, one within another; a benchmark has a dozen") from None
