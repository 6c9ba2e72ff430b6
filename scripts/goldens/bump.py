"""Raise a version where it stands in the source."""

import ast
import importlib
from pathlib import Path
from typing import Any

from bdl import versions
from bdl.errors import InputError
from goldens.case import CONSTANTS, REGISTRIES, version


def bump(owner: str) -> tuple[Path, int]:
    """Raise the version of a component, ``kind:name``, or of one of `CONSTANTS`, by one, in its source file.

    Returns
    -------
    tuple
        The file, and the new version.

    Raises
    ------
    InputError
        If the component is neither a class nor a function.
    """
    number = version(owner) + 1
    if owner in CONSTANTS:
        file = Path(str(versions.__file__))
        _replace(
            file,
            [f"{owner.upper()}_VERSION = {number - 1}\n"],
            [f"{owner.upper()}_VERSION = {number}\n"],
        )
        return file, number
    kind, _, name = owner.partition(":")
    module, _, attribute = REGISTRIES[kind].targets[name].partition(":")
    file = Path(str(importlib.import_module(module).__file__))
    source = file.read_text("utf-8")
    file.write_text(raised(source, owner, attribute, number), "utf-8")
    return file, number


def _replace(file: Path, old: list[str], new: list[str]) -> None:
    text = file.read_text("utf-8")
    for before, after in zip(old, new, strict=True):
        if before not in text:
            raise InputError(f"{file} does not say {before.strip()}: raise the version by hand")
        text = text.replace(before, after)
    file.write_text(text, "utf-8")


def raised(source: str, owner: str, attribute: str, number: int) -> str:
    """Write a version into the source of a module.

    Parameters
    ----------
    source
        Text of the module.
    owner
        ``kind:name``, for messages.
    attribute
        Class or function.
    number
        The version.
    """
    lines, tree = source.splitlines(keepends=True), ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == attribute:
            return _of_function(lines, tree, node, number)
        if isinstance(node, ast.ClassDef) and node.name == attribute:
            return _of_class(lines, tree, node, number)
    raise InputError(
        f"{owner} is neither a class nor a function of its module: raise its version by hand"
    )


def _of_class(lines: list[str], tree: ast.Module, node: ast.ClassDef, number: int) -> str:
    named = any(
        getattr(base, "id", "") == "NamedTuple" for base in node.bases
    )  # whose annotations would be fields
    line = f"    version = {number}\n" if named else f"    version: ClassVar[int] = {number}\n"
    for inner in node.body:
        targets: list[Any] = (
            [inner.target] if isinstance(inner, ast.AnnAssign) else getattr(inner, "targets", [])
        )
        if any(getattr(target, "id", "") == "version" for target in targets):
            lines[inner.lineno - 1 : inner.end_lineno] = [line]
            return "".join(lines)
    lines.insert(node.body[0].end_lineno or node.lineno, f"\n{line}")
    return "".join(lines) if named else _with_import(lines, tree)


def _with_import(lines: list[str], tree: ast.Module) -> str:
    """Import `ClassVar`, beside what is imported from typing already."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    for node in imports:
        if node.module == "typing":
            names = sorted({*(alias.name for alias in node.names), "ClassVar"})
            lines[node.lineno - 1 : node.end_lineno] = [f"from typing import {', '.join(names)}\n"]
            return "".join(lines)
    lines.insert((imports[0].lineno if imports else 2) - 1, "from typing import ClassVar\n")
    return "".join(lines)


def _of_function(lines: list[str], tree: ast.Module, node: ast.FunctionDef, number: int) -> str:
    line = f"{node.name}.version = {number}  # type: ignore[attr-defined]\n"
    for other in tree.body:
        target = other.targets[0] if isinstance(other, ast.Assign) else None
        if isinstance(target, ast.Attribute) and ast.unparse(target) == f"{node.name}.version":
            lines[other.lineno - 1] = line
            return "".join(lines)
    lines.insert(node.end_lineno or node.lineno, f"\n\n{line}")
    return "".join(lines)
