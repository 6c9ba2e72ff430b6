"""Named components, imported only when they are used.

A registry maps names to ``"module:attribute"`` strings, so listing names costs nothing. Third parties
add names through an entry-point group; a single file is named directly as ``path/to/file.py:attribute``.
"""

import importlib
import importlib.util
import json
import sys
from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cached_property, lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from zlib import crc32

from bdl.errors import InputError, unknown

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Registry:
    """Components of one kind, by name.

    Parameters
    ----------
    kind
        Singular noun for messages: ``"method"``, ``"dataset"``, ``"model"``, ``"metric"``.
    builtin
        Name to ``"module:attribute"``.
    contracts
        Protocols, ``"module:attribute"``; every component follows one of them, if there are any.
    bases
        Base classes, ``"module:attribute"``; every component is derived from one of them, if there are any.

    Notes
    -----
    Entry points of the group ``bdl.<kind>s`` join the built-in names; a built-in name cannot be replaced.
    """

    def __init__(
        self,
        kind: str,
        builtin: dict[str, str],
        contracts: tuple[str, ...] = (),
        bases: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.builtin = builtin
        self.contracts = contracts
        self.bases = bases

    @cached_property
    def targets(self) -> dict[str, str]:
        """All names and where they live."""
        plugins = {point.name: point.value for point in entry_points(group=f"bdl.{self.kind}s")}
        return plugins | self.builtin

    def names(self) -> list[str]:
        """List the registered names."""
        return list(self.targets)

    def get(self, name: str) -> Any:
        """Import the component called `name`.

        Parameters
        ----------
        name
            A registered name, or ``module:attribute``, or ``path/to/file.py:attribute``.

        Raises
        ------
        InputError
            If there is no such component.
        """
        target = name if ":" in name else self.targets.get(name)
        if target is None:
            raise unknown(self.kind, name, self.targets)
        location, _, attribute = target.rpartition(":")
        module = _load_file(self.kind, Path(location)) if location.endswith(".py") else _load(self.kind, location)
        try:
            return getattr(module, attribute)
        except AttributeError:
            raise InputError(f"{self.kind} '{name}': {location} defines no '{attribute}'") from None

    def adapter(self, name: str) -> "TypeAdapter[Any]":
        """Return what checks the settings of a component against the annotations of its dataclass.

        Raises
        ------
        InputError
            If there is no such component, it is not a dataclass, or lacks a part of its contract.
        """
        component = self.get(name)
        if not (isinstance(component, type) and is_dataclass(component)):
            raise InputError(f"{self.kind} '{name}' is not a dataclass: give a frozen dataclass")
        if lacking := self.lacking(component):
            raise InputError(f"{self.kind} '{name}' lacks {lacking}")
        return _adapter(component)

    def build(self, name: str, settings: Mapping[str, Any]) -> Any:
        """Make a component: an instance of a registered dataclass, or else what is registered.

        Parameters
        ----------
        name
            As in `get`.
        settings
            Settings as JSON values, a list for a tuple.

        Raises
        ------
        InputError
            If there is no such component, or the settings are not what it takes.
        """
        component = self.get(name)
        if not isinstance(component, type):
            if settings:
                raise InputError(f"{self.kind} '{name}' has no settings: remove {', '.join(settings)}")
            return component
        adapter = self.adapter(name)
        from pydantic import ValidationError  # not wanted by those who only list names

        try:
            # Through JSON, strict means strict about 1.0 and true for 1, and still takes a list for a tuple.
            return adapter.validate_json(json.dumps(dict(settings)), strict=True)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            place = ".".join(map(str, problem["loc"])) or "settings"
            raise InputError(f"{self.kind} '{name}': {place}: {problem['msg']}") from None

    def lacking(self, component: type) -> str | None:
        """Describe what a dataclass lacks of the contract that it is nearest to; None if it follows one."""
        if self.bases:
            return self._unfinished(component)
        known = {*dir(component), *vars(component).get("__dataclass_fields__", ())}
        gaps = [(sorted(_members(self.kind, contract) - known), contract) for contract in self.contracts]
        missing, contract = min(gaps, key=lambda gap: len(gap[0]), default=([], ""))
        return f"{', '.join(missing)}; see {contract}" if missing else None

    def _unfinished(self, component: type) -> str | None:
        """Describe what a class lacks of the base class that it is derived from; None if nothing."""
        for base in self.bases:
            module, _, name = base.partition(":")
            if issubclass(component, getattr(_load(self.kind, module), name)):
                missing = sorted(cast(ABCMeta, component).__abstractmethods__)
                return f"{', '.join(missing)}; see {base}" if missing else None
        return f"a base class: derive it from {' or '.join(self.bases)}"


class Label(str):
    """What rows, tables and file names call a component with settings, for example ``fa_100_10``.

    It is text, equal to any text that reads the same, which knows the component that it stands for.

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

    def __getnewargs__(self) -> tuple[str, str, dict[str, Any]]:  # type: ignore[override]  # has more than its text
        return str(self), self.name, self.settings

    @property
    def key(self) -> str:
        """Canonical JSON of the text, the name and the settings: labels that read the same may differ in these."""
        return json.dumps([str(self), self.name, self.settings], sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=256)
def _adapter(component: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(component)


def _members(kind: str, contract: str) -> set[str]:
    module, _, protocol = contract.partition(":")
    return {name for name in vars(getattr(_load(kind, module), protocol)) if not name.startswith("_")}


def _load(kind: str, module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(f"{kind}: cannot import '{module}' ({error}); is the package installed?") from None


def _load_file(kind: str, path: Path) -> Any:
    """Import a single file once per process; its absolute path names the module."""
    path = path.resolve()
    if not path.is_file():
        raise InputError(f"{kind}: no such file: {path}")
    name = f"bdl_user_{path.stem}_{crc32(str(path).encode()):08x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise InputError(f"{kind}: {path} cannot be imported: {type(error).__name__}: {error}") from error
    return sys.modules[name]
