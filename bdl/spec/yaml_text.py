"""YAML text to plain Python values, strictly: YAML 1.2 scalars, text keys, no key twice."""

import re
from collections.abc import Hashable
from typing import Any, ClassVar

import yaml
from yaml.constructor import ConstructorError

from bdl.errors import InputError


class _Loader(yaml.SafeLoader):
    """Reads ``1e-3`` as a number and ``no`` as text, as YAML 1.2 says and YAML 1.1 does not."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build a mapping; a key that is not text, or comes twice, is an error at its place."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise ConstructorError(None, None, "a key must be text: put it in quotes", key.start_mark)
            if key.value in seen:
                raise ConstructorError(
                    None, None, f"the key '{key.value}' comes twice: remove one", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("null", r"(?:~|null|)$", ["~", "n", ""]),
    ("bool", r"(?:true|false)$", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
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
        If the text is not YAML, a key comes twice or is not text; with line and column, counted from 1.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{source}{place}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{source}: {' '.join(str(error).split())}") from None
