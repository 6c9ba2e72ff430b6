"""Components as a benchmark file names them: ``{name: vifa, latent_dim: 1}``.

They are models, priors, likelihoods, methods, references and learning rates.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializationInfo,
    ValidationInfo,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from bdl.errors import InputError
from bdl.methods import METHODS
from bdl.models import LIKELIHOODS, MODELS, PRIORS
from bdl.references import REFERENCES
from bdl.registry import Registry, decorator_advice
from bdl.spec.fields import check_size, describe_unknown_field, error_at, is_checked
from bdl.spec.values import iterate_leaves
from bdl.training.schedule import RATES

if TYPE_CHECKING:
    from bdl.methods.base import Method
    from bdl.models.base import Model
    from bdl.models.likelihoods import Likelihood
    from bdl.models.priors import Prior
    from bdl.references.base import Reference
    from bdl.training.schedule import Rate
else:
    # The types are for the reader and the type checker; importing them would import torch.
    Method = Likelihood = Model = Prior = Rate = Reference = Any

T = TypeVar("T")


class Component(BaseModel, Generic[T]):
    """A registered frozen dataclass by name, and its settings.

    In a file the settings are keys next to the name. They are checked against the type annotations
    of the dataclass, and the defaults are filled in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    registry: ClassVar[Registry]

    name: str
    """Registered name, ``module:Class`` or ``path/to/file.py:Class``."""
    settings: dict[str, Any]
    """Every setting, defaults included, as JSON values."""

    def build(self) -> T:
        """Return the component, an instance of the registered dataclass, which is made once."""
        return self._instance

    @cached_property
    def _instance(self) -> T:
        component: T = self.registry.build(self.name, self.settings)
        return component

    def __getstate__(self) -> dict[Any, Any]:
        """Return the fields alone: another process builds the component anew, from its file."""
        state = super().__getstate__()
        return state | {
            "__dict__": {name: getattr(self, name) for name in type(self).model_fields}
        }

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, raw: Any, info: ValidationInfo) -> Any:
        if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
            raise ValueError(
                f"should be a mapping with a name, one of: {', '.join(cls.registry.names())}"
            )
        name = raw["name"]
        settings = {key: value for key, value in raw.items() if key != "name"}
        completed = complete_settings(cls.registry, name, settings) if is_checked(info) else None
        if completed is None:
            completed = resolve_settings(cls.registry, name, settings)
        return {"name": name, "settings": completed}

    @model_serializer
    def _flatten(self, info: SerializationInfo) -> dict[str, Any]:
        settings = (
            select_nondefault_settings(self.registry, self.name, self.settings)
            if info.exclude_defaults
            else self.settings
        )
        return {"name": self.name, **settings}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each registered component with its settings, and any other by its location."""
        registered = [
            describe_component(cls.registry, name, handler) for name in cls.registry.names()
        ]
        name = {
            "type": "string",
            "pattern": ":",
            "description": "module:Class or path/to/file.py:Class",
        }
        external = {"type": "object", "properties": {"name": name}, "required": ["name"]}
        return {
            "anyOf": [*registered, external],
            "description": f"A {cls.registry.kind} and its settings.",
        }


class ModelComponent(Component[Model]):
    """A model."""

    registry = MODELS


class LikelihoodComponent(Component[Likelihood]):
    """A likelihood."""

    registry = LIKELIHOODS


class MethodComponent(Component[Method]):
    """A method."""

    registry = METHODS

    @property
    def source(self) -> str:
        """What it learns from: minibatches, observations of a stream, or rows."""
        source: str = METHODS.fact(self.name, "source")
        return source

    @property
    def course(self) -> bool:
        """Whether it has posteriors before the last one."""
        course: bool = METHODS.fact(self.name, "course")
        return course


class ReferenceComponent(Component[Reference]):
    """A reference posterior."""

    registry = REFERENCES


class PriorComponent(Component[Prior]):
    """A prior; a mapping without a name is a Gaussian."""

    registry = PRIORS

    @model_validator(mode="before")
    @classmethod
    def _gaussian(cls, raw: Any) -> Any:
        return {"name": "gaussian"} | raw if isinstance(raw, dict) else raw

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe each prior; the name of the first may be left out."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        gaussian = describe_component(cls.registry, "gaussian", handler)
        unnamed = gaussian | {
            "required": [name for name in gaussian["required"] if name != "name"]
        }
        return schema | {"anyOf": [unnamed, *schema["anyOf"][1:]]}


class RateComponent(Component[Rate]):
    """A schedule of the learning rate in the course of a fit."""

    registry = RATES


def resolve_settings(registry: Registry, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Check the settings of a component, and fill in the defaults.

    Retired settings, which stored specs have, are left out.

    `ValueError` if there is no such component or setting, or a value is wrong; pydantic's
    `ValidationError` for the latter.
    """
    try:
        adapter, allowed = registry.adapter(name), list_settings(registry, name)
        retired = getattr(registry.get(name), "retired", {})
        settings = {
            key: value
            for key, value in settings.items()
            if key not in retired or value != retired[key]
        }
        for key in settings:
            if key not in allowed:
                message = describe_unknown_field(
                    key, allowed, f"setting of {registry.kind} '{name}'"
                )
                advice = decorator_advice(registry.get(name))
                raise ValueError(f"{message}; {advice}" if advice else message)
        # Through JSON, strict means strict about 1.0 and true for 1, and still takes a list for a
        # tuple.
        component = adapter.validate_json(json.dumps(settings), strict=True)
    except InputError as error:
        raise ValueError(str(error)) from None
    resolved: dict[str, Any] = adapter.dump_python(component, mode="json")
    for path, value in iterate_leaves(resolved):
        for leaf in _flatten_list(value):
            try:
                check_size(leaf)
            except ValueError as error:
                raise error_at(tuple(path.split(".")), error) from None
    return resolved


def complete_settings(
    registry: Registry, name: str, settings: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Fill in the declared defaults of settings that were checked before.

    None if the component is not a shipped one, or has other settings than is declared.
    """
    declaration = registry.declaration(name)
    if declaration is None:
        return None
    retired = declaration.facts.get("retired", {})
    schemas = declaration.settings
    completed = {key: schema["default"] for key, schema in schemas.items() if "default" in schema}
    for key, value in settings.items():
        if key in schemas:
            completed[key] = _as_declared(value, schemas[key])
        elif key not in retired or value != retired[key]:
            return None
    # in the order of the fields, as the component itself would write them
    return {key: completed[key] for key in schemas} if len(completed) == len(schemas) else None


def _as_declared(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a whole number of a file as the float that the setting is."""
    if isinstance(value, list):
        item_schemas = schema.get("prefixItems") or [schema.get("items", {})] * len(value)
        pairs = zip(value, item_schemas, strict=False)
        return [_as_declared(item, item_schema) for item, item_schema in pairs]
    types = {option.get("type") for option in (schema, *schema.get("anyOf", ()))}
    is_float = "number" in types and "integer" not in types
    return float(value) if is_float and type(value) is int else value


def select_nondefault_settings(
    registry: Registry, name: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings that differ from their defaults, which identify a component.

    A setting that is added or removed therefore leaves the identity of components that never had
    it.
    """
    if not settings:
        return {}
    declaration = registry.declaration(name)
    # but not where the component has just gained or lost a setting, and it is not declared yet
    if declaration is not None and settings.keys() == declaration.settings.keys():
        return {
            key: value
            for key, value in settings.items()
            if value != declaration.settings[key].get("default", MISSING)
        }
    adapter = registry.adapter(name)
    fields_by_name = {field.name: field for field in fields(registry.get(name)) if field.init}
    required = {
        key: settings[key]
        for key, field in fields_by_name.items()
        if field.default is field.default_factory is MISSING
    }
    defaults = adapter.dump_python(
        adapter.validate_json(json.dumps(required), strict=True), mode="json"
    )
    return {
        key: value for key, value in settings.items() if key in required or value != defaults[key]
    }


def _flatten_list(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for element in value:
            yield from _flatten_list(element)
    else:
        yield value


def list_settings(registry: Registry, name: str) -> list[str]:
    """List the settings of a registered dataclass, in its order."""
    return [field.name for field in fields(registry.get(name)) if field.init]


def describe_component(
    registry: Registry, name: str, handler: GetJsonSchemaHandler
) -> dict[str, Any]:
    """Return the JSON schema of a component as a mapping of its name and its settings."""
    schema = handler.resolve_ref_schema(handler(registry.adapter(name).core_schema))
    return schema | {
        "properties": {"name": {"const": name}} | schema.get("properties", {}),
        "required": ["name", *schema.get("required", [])],
        "additionalProperties": False,
    }
