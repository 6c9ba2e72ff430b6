"""Named components, imported only when they are used, and the benchmarks that come with the package.

A registry maps names to ``"module:attribute"`` strings, so listing names costs nothing. Third
parties add names through an entry-point group; a single file is named directly as
``path/to/file.py:attribute``.
"""

import importlib
import json
import sys
import traceback
from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, cast
from zlib import crc32

from bdl.errors import InputError, unknown

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(eq=False)
class Registry:
    """Components of one kind, by name.

    Parameters
    ----------
    kind
        Singular noun for messages: ``"method"``, ``"dataset"``, ``"model"``, ``"metric"``.
    builtin
        Name to ``"module:attribute"``.
    contract
        Protocol that every component follows, ``"module:attribute"``; empty for none.
    bases
        Base classes, ``"module:attribute"``; every component is derived from one of them, if there
        are any.

    Notes
    -----
    Entry points of the group ``bdl.<kind>s`` join the built-in names; a built-in name cannot be
    replaced.
    """

    kind: str
    builtin: dict[str, str]
    contract: str = ""
    bases: tuple[str, ...] = ()

    @cached_property
    def targets(self) -> dict[str, str]:
        """All names and where they live."""
        plugins = {point.name: point.value for point in entry_points(group=f"bdl.{self.kind}s")}
        return plugins | self.builtin

    def names(self) -> list[str]:
        """List the registered names."""
        return list(self.targets)

    def get(self, name: str) -> Any:
        """Import a component: a registered name, or ``module:attribute``, or ``path/to/file.py:attribute``.

        `InputError` if there is no such component.
        """
        target = name if ":" in name else self.targets.get(name)
        if target is None:
            raise unknown(self.kind, name, self.targets)
        location, _, attribute = target.rpartition(":")
        module = (
            _load_file(self.kind, Path(location))
            if location.endswith(".py")
            else _load(self.kind, location)
        )
        try:
            return getattr(module, attribute)
        except AttributeError:
            raise InputError(
                f"{self.kind} '{name}': {location} defines no '{attribute}'"
            ) from None

    def adapter(self, name: str) -> "TypeAdapter[Any]":
        """Return what checks the settings of a component against the annotations of its dataclass.

        `InputError` if there is no such component, it is not a dataclass, or lacks a part of its
        contract.
        """
        component = self.get(name)
        if not (isinstance(component, type) and is_dataclass(component)):
            raise InputError(f"{self.kind} '{name}' is not a dataclass: give a frozen dataclass")
        if lacking := self.lacking(component):
            raise InputError(f"{self.kind} '{name}' lacks {lacking}")
        return _adapter(component)

    def build(self, name: str, settings: Mapping[str, Any]) -> Any:
        """Make a component: an instance of a registered dataclass, or else what is registered.

        The name is as in `get`, and settings are JSON values, a list for a tuple. `InputError` if
        there is no such component, or the settings are not what it takes.
        """
        component = self.get(name)
        if not isinstance(component, type):
            if settings:
                raise InputError(
                    f"{self.kind} '{name}' has no settings: remove {', '.join(settings)}"
                )
            return component
        self.adapter(name)
        from pydantic import ValidationError  # not wanted by those who only list names

        # One that cannot change is made once: a plan asks for the same few thousands of times.
        frozen = getattr(component, "__dataclass_params__").frozen  # noqa: B009  which type checkers do not know
        make = _made if frozen else _made.__wrapped__
        try:
            return make(component, json.dumps(dict(settings)))
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(map(str, problem["loc"])) or "settings"
            raise InputError(f"{self.kind} '{name}': {place}: {problem['msg']}") from None

    def lacking(self, component: type) -> str | None:
        """Describe what a dataclass lacks of the contract; None if it follows it."""
        if self.contract:
            return _lacking(self.kind, self.contract, component)
        for base in self.bases:
            module, _, name = base.partition(":")
            if issubclass(component, getattr(_load(self.kind, module), name)):
                missing = sorted(cast(ABCMeta, component).__abstractmethods__)
                return f"{', '.join(missing)}; see {base}" if missing else None
        return f"a base class: derive it from {' or '.join(self.bases)}" if self.bases else None


class Label(str):
    """What rows, tables and file names call a component with settings, for example ``fa_100_10``.

    It is text, equal to any text that reads the same, which knows the component that it stands
    for.

    Parameters
    ----------
    text
        How it reads.
    name
        The component's registered name; `text` by default.
    settings
        Every setting as a JSON value, defaults included.
    """

    name: str
    settings: dict[str, Any]

    def __new__(cls, text: str, name: str = "", settings: Mapping[str, Any] | None = None) -> Self:
        """Make the text and keep the component beside it."""
        label = super().__new__(cls, text)
        label.name, label.settings = name or str(text), dict(settings or {})
        return label

    # has more than its text
    def __getnewargs__(self) -> tuple[str, str, dict[str, Any]]:  # type: ignore[override]
        return str(self), self.name, self.settings

    @cached_property
    def key(self) -> str:
        """Canonical JSON of the text, the name and the settings: labels that read the same may differ in these."""
        return json.dumps(
            [str(self), self.name, self.settings], sort_keys=True, separators=(",", ":")
        )


@lru_cache(maxsize=256)
def _adapter(component: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(component)


@lru_cache(maxsize=512)
def _made(component: type, settings: str) -> Any:
    # Through JSON, strict means strict about 1.0 and true for 1, and still takes a list for a
    # tuple.
    return _adapter(component).validate_json(settings, strict=True)


@lru_cache(maxsize=512)
def _lacking(kind: str, contract: str, component: type) -> str | None:
    module, _, protocol = contract.partition(":")
    wanted = {
        name for name in vars(getattr(_load(kind, module), protocol)) if not name.startswith("_")
    }
    known = {*dir(component), *vars(component).get("__dataclass_fields__", ())}
    missing = sorted(
        wanted - known | wanted & getattr(component, "__abstractmethods__", frozenset())
    )
    return f"{', '.join(missing)}; see {contract}" if missing else None


def outside_file(component: object) -> tuple[str, str] | None:
    """Return the name of the file of a component that lives outside the package, and the digest of its content.

    The component is a class or function, an instance of a class, or the name of a module that is
    imported. The name is without the folder, and the digest the SHA-256 (hex) of the bytes that
    were imported. None for a component of the package itself, and where there is no file.
    """
    name = (
        component
        if isinstance(component, str)
        else getattr(component, "__module__", type(component).__module__)
    )
    module = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    if name.partition(".")[0] == __package__ or module is None or path is None:
        return None
    return Path(path).name, getattr(module, _DIGEST, None) or sha256(
        Path(path).read_bytes()
    ).hexdigest()


def outside_place(error: BaseException) -> str | None:
    """Return the file and the line, in a component that was given as a file, where an error comes from; None if none.

    It is the innermost such place of the traceback.
    """
    files = {
        module.__file__
        for module in list(sys.modules.values())
        if _DIGEST in getattr(module, "__dict__", ())
    }
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else None


def _load(kind: str, module: str) -> Any:
    try:
        return sys.modules.get(module) or importlib.import_module(
            module
        )  # the first is ten times as fast
    except ModuleNotFoundError as error:
        raise InputError(
            f"{kind}: cannot import '{module}' ({error}); is the package installed?"
        ) from None


_DIGEST = "__bdl_digest__"
"""Name under which a module that was given as a file has the SHA-256 (hex) of its content."""


def _load_file(kind: str, path: Path) -> Any:
    """Import a single file once per process, and again when its content has changed.

    Its absolute path names it.
    """
    path = path.resolve()
    if not path.is_file():
        raise InputError(f"{kind}: no such file: {path}")
    name = f"bdl_user_{path.stem}_{crc32(str(path).encode()):08x}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{kind}: cannot read {path}: {error.strerror}") from None
    digest = sha256(content).hexdigest()
    known = sys.modules.get(name)
    if known is not None and getattr(known, _DIGEST) == digest:
        return known
    module = ModuleType(name)
    module.__file__ = str(path)
    setattr(module, _DIGEST, digest)
    sys.modules[name] = module  # dataclasses look for it there
    try:  # what was hashed, rather than a cache of bytecode
        exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise InputError(
            f"{kind}: {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def shipped() -> dict[str, Path]:
    """Find the files of benchmarks by name, in the installed package or in the checkout that it runs from."""
    package = Path(str(resources.files("bdl")))
    folder = package / "benchmarks"
    if not folder.is_dir():
        folder = package.parent / "benchmarks"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
