"""Named components, imported only when they are used, and the shipped benchmarks.

What files and tables need to know of a shipped component is declared beside it, in
``declared.json``: it is known without the import of the component, and of PyTorch with it.

A registry maps names to ``"module:attribute"`` strings, so listing names costs nothing. Third
parties add names through an entry-point group; a single file is named directly as
``path/to/file.py:attribute``.
"""

import importlib
import inspect
import json
import sys
import traceback
from abc import ABCMeta
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import resources
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast
from zlib import crc32

from bdl.errors import InputError, summarise_error, unknown_name_error
from bdl.trusted_code import SHIPPED_COMPONENTS, trust

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Declaration(NamedTuple):
    """Settings, facts and description of a shipped component, known without its import."""

    settings: Mapping[str, Mapping[str, Any]]
    """JSON schema of each setting, with its default if it has one, in the order of the fields."""
    facts: Mapping[str, Any]
    """Class attributes by name, as JSON values."""
    description: Sequence[str]
    """Lines by which ``bdl-bench describe`` describes it."""


@lru_cache(maxsize=1)
def _read_declarations() -> Mapping[str, Declaration]:
    """Read the declarations of the package, by kind and name: ``method:vifa``."""
    content = json.loads((resources.files("bdl") / "declared.json").read_text("utf-8"))
    return {name: Declaration(**declaration) for name, declaration in content.items()}


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
        plugins = {
            point.name: point.value
            for point in _read_entry_points().select(group=f"bdl.{self.kind}s")
        }
        return plugins | self.builtin

    def names(self) -> list[str]:
        """List the registered names."""
        return list(self.targets)

    def get(self, name: str) -> Any:
        """Import a component.

        The name is a registered one, or ``module:attribute``, or ``path/to/file.py:attribute``.
        `InputError` if there is no such component.
        """
        target = name if ":" in name else self.targets.get(name)
        if target is None:
            raise unknown_name_error(self.kind, name, self.targets)
        location, _, attribute = target.rpartition(":")
        if location.endswith(".py"):
            module = _load_file(self.kind, Path(location))
        else:
            module = _load(self.kind, location)
        trust(target)
        try:
            return getattr(module, attribute)
        except AttributeError:
            raise InputError(
                f"{self.kind} '{name}': {location} defines no '{attribute}'"
            ) from None

    def declaration(self, name: str) -> Declaration | None:
        """Return what is declared of a shipped component; None for any other component."""
        is_shipped = name in self.builtin or name.startswith(SHIPPED_COMPONENTS)
        return _read_declarations().get(f"{self.kind}:{name}") if is_shipped else None

    def fact(self, name: str, attribute: str) -> Any:
        """Return a class attribute of a component, of a shipped one by its declaration.

        Errors as in `get`.
        """
        declaration = self.declaration(name)
        if declaration is not None and attribute in declaration.facts:
            return declaration.facts[attribute]
        return getattr(self.get(name), attribute)

    def adapter(self, name: str) -> "TypeAdapter[Any]":
        """Return the validator of a component's settings, by the annotations of its dataclass.

        `InputError` if there is no such component, it is not a dataclass, or lacks a
        member of its contract.
        """
        component = self.get(name)
        if not (isinstance(component, type) and is_dataclass(component)):
            raise InputError(f"{self.kind} '{name}' is not a dataclass: give a frozen dataclass")
        if undeclared := _list_undeclared_settings(component):
            raise InputError(
                f"{self.kind} '{name}': its settings ({', '.join(undeclared)}) are not read: "
                f"{decorator_advice(component)}"
            )
        if missing := self.missing_members(component):
            raise InputError(f"{self.kind} '{name}' lacks {missing}")
        return _adapter(component)

    def build(self, name: str, settings: Mapping[str, Any]) -> Any:
        """Build a component: an instance of a registered dataclass, or else what is registered.

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

        # An instance that cannot change is built once: a plan needs the same few over and over.
        # The file that a setting names may be another one the next time.
        frozen = getattr(component, "__dataclass_params__").frozen  # noqa: B009  which type checkers do not know
        text = json.dumps(dict(settings))
        is_constant = frozen and ".py:" not in text
        build = _build_validated if is_constant else _build_validated.__wrapped__
        try:
            return build(component, text)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            setting = ".".join(map(str, problem["loc"])) or "settings"
            raise InputError(f"{self.kind} '{name}': {setting}: {problem['msg']}") from None

    def missing_members(self, component: type) -> str | None:
        """Name the members of the contract that a dataclass lacks; None if it follows it."""
        if self.contract:
            return _missing_members(self.kind, self.contract, component)
        for base in self.bases:
            module, _, name = base.partition(":")
            if issubclass(component, getattr(_load(self.kind, module), name)):
                members = sorted(cast(ABCMeta, component).__abstractmethods__)
                return f"{', '.join(members)}; see {base}" if members else None
        return f"a base class: derive it from {' or '.join(self.bases)}" if self.bases else None


@lru_cache(maxsize=1)
def _read_entry_points() -> EntryPoints:
    """Read the entry points of all installed packages, which takes a twentieth of a second."""
    # without names the new interface is not told from the old one by types
    return cast(EntryPoints, entry_points())


class Label(str):
    """The name of a component with settings in rows, tables and file names, like ``fa_100_10``.

    It is text, equal to any text that reads the same, which knows its component.

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
        """Build the text, and keep the component with it."""
        label = super().__new__(cls, text)
        label.name, label.settings = name or str(text), dict(settings or {})
        return label

    # by default a copy or a pickle of a string has its text alone
    def __getnewargs__(self) -> tuple[str, str, dict[str, Any]]:  # type: ignore[override]
        return str(self), self.name, self.settings

    @cached_property
    def key(self) -> str:
        """Canonical JSON of the text, the name and the settings.

        Labels that read the same may differ in the latter two.
        """
        return json.dumps(
            [str(self), self.name, self.settings], sort_keys=True, separators=(",", ":")
        )


def decorator_advice(component: type) -> str:
    """Return where a class lacks its decorator, which its bases have; empty if it has one."""
    if "__dataclass_params__" in vars(component):
        return ""
    name = component.__name__
    return f"@dataclass(frozen=True) is missing above class {name} ({_locate_source(component)})"


def _locate_source(definition: Any) -> str:
    """Return the file and the line of a class or function; its module if there is no source."""
    try:
        _, line = inspect.getsourcelines(definition)
        return f"{inspect.getsourcefile(definition)}, line {line}"
    except (OSError, TypeError):
        return str(getattr(definition, "__module__", definition))


def _list_undeclared_settings(component: type) -> list[str]:
    """List the annotated attributes of a class that lack of a decorator keeps from being fields."""
    if "__dataclass_params__" in vars(component):
        return []
    annotations = inspect.get_annotations(component).items()
    return [name for name, annotation in annotations if "ClassVar" not in str(annotation)]


@lru_cache(maxsize=256)
def _adapter(component: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(component)


@lru_cache(maxsize=512)
def _build_validated(component: type, settings: str) -> Any:
    # Through JSON, strict means strict about 1.0 and true for 1, and still takes a list for a
    # tuple.
    return _adapter(component).validate_json(settings, strict=True)


@lru_cache(maxsize=512)
def _missing_members(kind: str, contract: str, component: type) -> str | None:
    module, _, protocol = contract.partition(":")
    members = {
        name for name in vars(getattr(_load(kind, module), protocol)) if not name.startswith("_")
    }
    defined = {*dir(component), *vars(component).get("__dataclass_fields__", ())}
    abstract = members & getattr(component, "__abstractmethods__", frozenset())
    missing = sorted(members - defined | abstract)
    return f"{', '.join(missing)}; see {contract}" if missing else None


def outside_file(component: object) -> tuple[str, str] | None:
    """Return the file name of a component outside the package, and the digest of the file.

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
    digest = getattr(module, _DIGEST, None) or sha256(Path(path).read_bytes()).hexdigest()
    return Path(path).name, digest


def locate_outside_error(error: BaseException) -> str | None:
    """Return the innermost file and line of a component that an error comes from; None without."""
    files = {
        module.__file__
        for module in list(sys.modules.values())
        if _DIGEST in getattr(module, "__dict__", ())
    }
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files
    ]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else None


def locate_definition(component: type, function: str) -> str:
    """Return the file and the line where a class defines a function.

    Those of the class if it is from outside the package, and inherits the function from it.
    """
    definer = next(kind for kind in component.__mro__ if function in vars(kind))
    inherits = outside_file(component) is not None and outside_file(definer) is None
    return _locate_source(component if inherits else inspect.unwrap(vars(definer)[function]))


def _load(kind: str, module: str) -> Any:
    try:
        # looking it up is ten times as fast as importing it once more
        return sys.modules.get(module) or importlib.import_module(module)
    except ModuleNotFoundError as error:
        reason = f"({error}); is the package installed?"
    except Exception as error:
        if module.partition(".")[0] == __package__ or isinstance(error, InputError):
            raise
        # code of others, whatever it raises, and names such as ".module"
        reason = f"({summarise_error(error)})"
    raise InputError(f"{kind}: cannot import '{module}' {reason}")


_DIGEST = "__bdl_digest__"
"""Name under which a module that was given as a file has the SHA-256 (hex) of its content."""


def fingerprint_file(target: str) -> str:
    """Return the digest of the file in ``path/to/file.py:attribute`` as it is now.

    Empty for other names, and for a file that cannot be read.
    """
    location = target.rpartition(":")[0]
    if not location.endswith(".py"):
        return ""
    try:
        return sha256(Path(location).read_bytes()).hexdigest()
    except OSError:
        return ""


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
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, _DIGEST) == digest:
        return loaded
    module = ModuleType(name)
    module.__file__ = str(path)
    setattr(module, _DIGEST, digest)
    sys.modules[name] = module  # dataclasses look for it there
    try:  # runs the text that was hashed, never a cache of bytecode, which may be older
        exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise InputError(
            f"{kind}: {path} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return module


def shipped_benchmarks() -> dict[str, Path]:
    """List the files of the shipped benchmarks by name.

    They are in the installed package, or in the checkout that it runs from.
    """
    package = Path(str(resources.files("bdl")))
    folder = package / "benchmarks"
    if not folder.is_dir():
        folder = package.parent / "benchmarks"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def packaged_results() -> Path:
    """Return the folder of the published rows that an installed package has among its files.

    A checkout has them in its folder of results, and nothing there.
    """
    return Path(str(resources.files("bdl"))) / "results"
