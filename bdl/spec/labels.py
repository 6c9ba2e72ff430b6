"""Data sets and metrics as a benchmark file names them: ``yacht``, or ``{name: ece, bins: 20}``."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from bdl.errors import InputError, short
from bdl.metrics import METRICS
from bdl.registry import Label, Registry
from bdl.spec.components import describe_component, given, names_of_settings, resolve

if TYPE_CHECKING:
    from bdl.metrics import MetricInfo


class NamedComponent(Label):
    """A label as a field of a benchmark file: a registered name, or a mapping of a name and settings.

    The label is what ``label`` says, else what the component is `called`, else the name and the
    values of the settings that are given, joined by ``_``.
    """

    about: ClassVar[str]

    @classmethod
    def registry(cls) -> Registry:
        """Return the registry of its kind."""
        raise NotImplementedError

    def build(self) -> Any:
        """Make the component; errors as in `bdl.registry.Registry.build`."""
        return self.registry().build(self.name, self.settings)

    @property
    def plain(self) -> Any:
        """What a file says for it: the name, or the name with every setting and the label."""
        if self == self.name and not self.settings:
            return self.name
        return {"name": self.name, **self.settings, "label": str(self)}

    @property
    def identity(self) -> Any:
        """What identifies it: as `plain`, without the settings that have their default value.

        A setting that is added later leaves the identity of what never had it.
        """
        if self == self.name and not self.given:
            return self.name
        return {"name": self.name, **self.given, "label": str(self)}

    @property
    def given(self) -> dict[str, Any]:
        """The settings that differ from their defaults, which identify the component."""
        return given(self.registry(), self.name, self.settings)

    @classmethod
    def read(cls, raw: Any) -> Self:
        """Check what a file says.

        `ValueError` if there is no such component, or a setting or the label is wrong.
        """
        if isinstance(raw, cls):
            return raw
        said = (
            {"name": raw} if isinstance(raw, str) else dict(raw) if isinstance(raw, dict) else {}
        )
        name, label = said.pop("name", None), said.pop("label", None)
        if not isinstance(name, str):
            raise ValueError("should be a name, or a mapping with a name and settings")
        registry, settings, order = cls.registry(), dict[str, Any](), list[str]()
        try:
            if isinstance(registry.get(name), type):
                settings, order = resolve(registry, name, said), names_of_settings(registry, name)
            else:
                registry.build(name, said)
        except InputError as error:
            raise ValueError(str(error)) from None
        if label is None and order and hasattr(registry.get(name), "called"):
            label = registry.build(name, settings).called
        text = label or "_".join(
            [cls.stem(name), *(_shown(said[key]) for key in order if key in said)]
        )
        cls.check_label(text, name)
        return cls(text, name, settings)

    @classmethod
    def stem(cls, name: str) -> str:
        """Return what the label of a component begins with."""
        return name

    @classmethod
    def check_label(cls, label: Any, name: str) -> None:
        """Raise `ValueError` if a component cannot be called so."""
        if not isinstance(label, str):
            raise ValueError(f"label: should be text (got {short(label)})")

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(
            lambda label, info: label.identity if info.exclude_defaults else label.plain,
            info_arg=True,
        )
        return core_schema.no_info_plain_validator_function(cls.read, serialization=serialization)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe the names, and each component that has settings."""
        label = {"label": {"type": "string", "description": "What rows and tables call it."}}
        registry, mappings = cls.registry(), []
        for name in registry.names():
            if isinstance(registry.get(name), type):
                described = describe_component(registry, name, handler)
                mappings.append(described | {"properties": described["properties"] | label})
        other = {
            "type": "string",
            "pattern": ":",
            "description": "module:Class or path/to/file.py:Class",
        }
        return {
            "description": cls.about,
            "anyOf": [{"type": "string", "enum": registry.names()}, *mappings, other],
        }


class DatasetName(NamedComponent):
    """A data set of a benchmark; `build` gives what loads it when it is called."""

    about = "A data set: its name, or its name and settings."

    @classmethod
    def registry(cls) -> Registry:
        """Return the data sets."""
        from bdl.data import (
            DATASETS,
        )  # imports NumPy, which files that are not checked can do without

        return DATASETS

    @classmethod
    def stem(cls, name: str) -> str:
        """Return the name.

        Of ``path/to/file.py:function`` the file, and the function if it is called otherwise.
        """
        location, _, attribute = name.rpartition(":")
        file = location.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
        return name if not location else file if file == attribute else f"{file}_{attribute}"


class MetricName(NamedComponent):
    """A metric of a benchmark; `build` gives the score itself."""

    about = "A metric: its name, or its name and settings."

    @classmethod
    def registry(cls) -> Registry:
        """Return the metrics."""
        return METRICS

    @property
    def info(self) -> "MetricInfo":
        """What its numbers mean."""
        info: MetricInfo = METRICS.get(self.name).info
        return info

    @classmethod
    def stem(cls, name: str) -> str:
        """Return the name.

        Of ``path/to/file.py:Class`` the class in lower case, fit for columns and file names.
        """
        return name.rpartition(":")[2].lower() if ":" in name else name

    @classmethod
    def check_label(cls, label: Any, name: str) -> None:
        """Raise `ValueError` unless the label begins with the name, which says what a column has."""
        super().check_label(label, name)
        stem = cls.stem(name)
        if label != stem and not label.startswith(f"{stem}_"):
            raise ValueError(f"label: '{short(label)}' should be {stem}, or begin with {stem}_")


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(_shown, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def steers() -> list[str]:
    """List the scores that a search can go by: those of predictions or of the posterior of which less is better."""
    return [name for name in METRICS.names() if _can_steer(METRICS.get(name).info)]


def _can_steer(info: "MetricInfo") -> bool:
    return info.kind in ("predictive", "posterior") and info.direction == "lower"


def _steering(metric: MetricName) -> MetricName:
    if not _can_steer(metric.info):
        raise ValueError(f"'{metric}' cannot steer a search: choose one of {', '.join(steers())}")
    return metric


ScoreName = Annotated[
    MetricName,
    AfterValidator(_steering),
    Field(json_schema_extra=lambda schema: schema.update(examples=steers())),
]

# Where a file refers to data sets and metrics that it has, they are plain labels; the benchmark
# checks them.
DatasetLabel = Annotated[
    str,
    Field(json_schema_extra=lambda schema: schema.update(examples=DatasetName.registry().names())),
]
MetricLabel = Annotated[
    str, Field(json_schema_extra=lambda schema: schema.update(examples=METRICS.names()))
]
