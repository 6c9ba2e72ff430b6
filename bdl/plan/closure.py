"""The code that decides a number, as a hash: a module and every module that it imports, directly or not.

Only the package itself, and the top-level package of a component from outside, are followed. A name that a package
merely passes on (``from bdl.posteriors import FullGaussian``) leads to the module that defines it, so that one family
of posteriors does not depend on the others. Comments, layout, docstrings and imports for type checkers do not count.
"""

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_PACKAGE = "bdl"


class _Module(NamedTuple):
    """Source of a module."""

    path: Path
    is_package: bool


class _Imported(NamedTuple):
    """What an import statement names: a module, or a name in it."""

    module: str
    name: str | None
    bound: str
    """Name that it has where it is imported."""


def code_hash(roots: Iterable[str]) -> str:
    """Hash the code of modules and of all that they import, SHA-256 (hex).

    Parameters
    ----------
    roots
        Names of modules that are imported already, or can be.
    """
    found = closure(roots)
    content = "\n".join(f"{Path(name).stem}\n{_code(path)}" for name, path in sorted(found.items()))
    return hashlib.sha256(content.encode()).hexdigest()


def closure(roots: Iterable[str]) -> dict[str, Path]:
    """Find the modules that these import, directly or not, themselves included.

    Parameters
    ----------
    roots
        As in `code_hash`.

    Returns
    -------
    dict
        Name of each module to its file.
    """
    found: dict[str, Path] = {}
    waiting = list(dict.fromkeys(roots))
    followed = {_PACKAGE, *(name.partition(".")[0] for name in waiting)}
    while waiting:
        name = waiting.pop()
        module = _module(name)
        if name in found or module is None:
            continue
        found[name] = module.path
        for imported in _imports(module.path):
            if imported.module.partition(".")[0] in followed:
                waiting.extend(_targets(imported))
    return found


def _targets(imported: _Imported) -> Iterator[str]:
    """Yield the module that an import leads to: what defines the name, rather than a package that passes it on."""
    module, name, _ = imported
    if name is None or name == "*":
        yield module
        return
    if _module(f"{module}.{name}") is not None:
        yield f"{module}.{name}"
        return
    source = _module(module)
    if source is not None and source.is_package:
        passed_on = [other for other in _imports(source.path) if other.bound == name]
        if passed_on:
            yield from _targets(passed_on[-1])
            return
    yield module


@lru_cache(maxsize=512)
def _module(name: str) -> _Module | None:
    """Find the source of a module, None if there is no such module, or none in Python."""
    loaded = sys.modules.get(name)
    origin = getattr(loaded, "__file__", None) if loaded is not None else _origin(name)
    if origin is None or not origin.endswith(".py"):
        return None
    path = Path(origin)
    return _Module(path, path.name == "__init__.py")


def _origin(name: str) -> str | None:
    try:
        spec = find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    return spec.origin if spec else None


@lru_cache(maxsize=512)
def _imports(path: Path) -> tuple[_Imported, ...]:
    return tuple(_imported(_runtime_nodes(_parsed(path))))


def _imported(nodes: Iterator[ast.AST]) -> Iterator[_Imported]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield _Imported(alias.name, None, alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield _Imported(node.module, alias.name, alias.asname or alias.name)


def _runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk through what runs: all but blocks under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for otherwise in node.orelse:
                yield otherwise
                yield from _runtime_nodes(otherwise)
            continue
        yield node
        yield from _runtime_nodes(node)


@lru_cache(maxsize=512)
def _code(path: Path) -> str:
    """Normalise a module's code: without docstrings, comments and layout."""
    tree = _parsed(path)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    """Tell whether a statement is a bare text, as docstrings are."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))
