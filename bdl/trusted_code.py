"""Which code may be imported because a file of results asks for it.

It may be the file of a stranger: the package's own components are imported, and what the user of
this process has named.
"""

import ast
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from bdl.errors import InputError

_TRUSTED: set[str] = set()
"""Places of code that the user of this process has named."""

SHIPPED_COMPONENTS = tuple(
    f"bdl.{package}."
    for package in (
        "data",
        "guests",
        "methods",
        "metrics",
        "models",
        "posteriors",
        "references",
        "training",
    )
)
"""Packages of components, as the names of their modules begin."""


def trust(target: str) -> None:
    """Trust code that the user names, a target as in `require_trusted`, whichever results ask for it."""
    _TRUSTED.add(_place_of_code(target.rpartition(":")[0]))


def require_trusted(target: str, source: str) -> None:
    """Refuse code that a file of results asks for, unless it is the package's or the user named it.

    Results may be those of a stranger. `target` is ``module:attribute`` or
    ``path/to/file.py:attribute``; a component of the package is defined in one of its modules.
    `InputError`, which names the source, otherwise.
    """
    location, _, attribute = target.rpartition(":")
    if not location.endswith(".py") and location.startswith(SHIPPED_COMPONENTS):
        if _defines(location, attribute):
            return
    elif _place_of_code(location) in _TRUSTED:
        return
    raise InputError(
        f"{source} asks for code from outside the package, {target}: if you trust it, give the "
        "benchmark file that names it to table or report; verify and compare of two runs take none"
    )


@lru_cache(maxsize=64)  # a table reads several records that name the same code
def _defines(module: str, name: str) -> bool:
    """Return whether the source of a module defines a function or class; it is not imported."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return False
    if spec is None or spec.origin is None:
        return False
    definitions = ast.parse(Path(spec.origin).read_text("utf-8")).body
    return any(
        isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        for node in definitions
    )


def _place_of_code(location: str) -> str:
    return str(Path(location).resolve()) if location.endswith(".py") else location
