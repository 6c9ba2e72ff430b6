"""Data sets and metrics as a benchmark file has them: ``yacht``, ``{name: ece, bins: 20}``."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
)
from pydantic_core import CoreSchema, core_schema

from bdl.errors import InputError, abbreviate
from bdl.metrics import METRICS, read_metric_info
from bdl.registry import Label, Registry
from bdl.spec.components import (
    complete_settings,
    describe_component,
    resolve_settings,
    select_nondefault_settings,
)
from bdl.spec.fields import is_checked

if TYPE_CHECKING:
    from bdl.metrics import MetricInfo


class NamedComponent(Label):
    """A label of a benchmark file, with the registered component that it stands for.

    In the file it is a name, or a mapping of a name and settings. The label is that of its key
    ``label``, else that of the component's attribute `called`, else the name and the values of the
    settings in the file, joined by ``_``.
    """

    schema_description: ClassVar[str]

    @classmethod
    def registry(cls) -> Registry:
        """Return the registry of its kind."""
        raise NotImplementedError

    def build(self) -> Any:
        """Make the component; errors as in `bdl.registry.Registry.build`."""
        return self.registry().build(self.name, self.settings)

    @property
    def file_form(self) -> Any:
        """Its form in a file: the name, or a mapping of name, every setting and the label."""
        if self == self.name and not self.settings:
            return self.name
        return {"name": self.name, **self.settings, "label": str(self)}

    @property
    def identity(self) -> Any:
        """Its form in a file without the settings that have their default value.

        A setting that is added later leaves the identity of labels that never had it.
        """
        if self == self.name and not self.nondefault_settings:
            return self.name
        return {"name": self.name, **self.nondefault_settings, "label": str(self)}

    @property
    def nondefault_settings(self) -> dict[str, Any]:
        """The settings that differ from their defaults, which identify the component."""
        return select_nondefault_settings(self.registry(), self.name, self.settings)

    @classmethod
    def read(cls, raw: Any, *, checked: bool = False) -> Self:
        """Read a label in the form of a file, which may have been checked before.

        `ValueError` if there is no such component, or a setting or the label is wrong.
        """
        if isinstance(raw, cls):
            return raw
        content: dict[str, Any] = {}
        if isinstance(raw, str):
            content = {"name": raw}
        elif isinstance(raw, dict):
            content = dict(raw)
        name, label = content.pop("name", None), content.pop("label", None)
        if not isinstance(name, str):
            raise ValueError("should be a name, or a mapping with a name and settings")
        registry = cls.registry()
        settings = complete_settings(registry, name, content) if checked else None
        if settings is None:
            settings = cls._resolve(name, content)
            if label is None and settings and hasattr(registry.get(name), "display_name"):
                label = registry.build(name, settings).display_name
        # in the order of the component's fields: the order in a file does not decide the label
        settings_texts = [_format_setting(content[key]) for key in settings if key in content]
        text = label or "_".join([cls.stem(name), *settings_texts])
        if not checked:  # results of before keep their labels
            cls.check_label(text, name)
        return cls(text, name, settings)

    @classmethod
    def _resolve(cls, name: str, content: dict[str, Any]) -> dict[str, Any]:
        """Check the settings of a component; return all of them, in the order of its fields."""
        registry = cls.registry()
        try:
            if isinstance(registry.get(name), type):
                return resolve_settings(registry, name, content)
            registry.build(name, content)
        except InputError as error:
            raise ValueError(str(error)) from None
        return {}

    @classmethod
    def stem(cls, name: str) -> str:
        """Return the beginning of a component's label."""
        return name

    @classmethod
    def check_label(cls, label: Any, name: str) -> None:
        """Raise `ValueError` if a component cannot have the label."""
        if not isinstance(label, str):
            raise ValueError(f"label: should be text (got {abbreviate(label)})")

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        serialization = core_schema.plain_serializer_function_ser_schema(
            lambda label, info: label.identity if info.exclude_defaults else label.file_form,
            info_arg=True,
        )
        return core_schema.with_info_plain_validator_function(
            lambda raw, info: cls.read(raw, checked=is_checked(info)), serialization=serialization
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe the names, and each component that has settings."""
        label = {"label": {"type": "string", "description": "What rows and tables call it."}}
        registry, mappings = cls.registry(), []
        for name in registry.names():
            if isinstance(registry.get(name), type):
                component = describe_component(registry, name, handler)
                mappings.append(component | {"properties": component["properties"] | label})
        external = {
            "type": "string",
            "pattern": ":",
            "description": "module:Class or path/to/file.py:Class",
        }
        return {
            "description": cls.schema_description,
            "anyOf": [{"type": "string", "enum": registry.names()}, *mappings, external],
        }


class DatasetName(NamedComponent):
    """A data set of a benchmark; `build` returns the function that loads it."""

    schema_description = "A data set: its name, or its name and settings."

    @classmethod
    def registry(cls) -> Registry:
        """Return the data sets."""
        # imported here since it imports NumPy, which files that are not checked do without
        from bdl.data import DATASETS

        return DATASETS

    @classmethod
    def stem(cls, name: str) -> str:
        """Return the name.

        Of ``path/to/file.py:function`` the file, and the function if its name is another.
        """
        location, _, attribute = name.rpartition(":")
        if not location:
            return name
        file = location.rpartition("/")[2].removesuffix(".py").rpartition(".")[2]
        return file if file == attribute else f"{file}_{attribute}"

    @classmethod
    def check_label(cls, label: Any, name: str) -> None:
        """Raise `ValueError` unless the label can be part of the name of a file."""
        super().check_label(label, name)
        if "/" in label or "\\" in label:
            raise ValueError(f"label: '{abbreviate(label)}' has / or \\ in it: give another label")
        if not label.isprintable():
            raise ValueError(
                f"label: '{abbreviate(label)}' has a tab or another character that does not print: "
                "give another label"
            )
        if len(label.encode()) > _MAX_LABEL_BYTES:
            raise ValueError(
                f"label: '{abbreviate(label)}' is longer than {_MAX_LABEL_BYTES} bytes: "
                "give another label"
            )


_MAX_LABEL_BYTES = 150
"""Names of files take 255, and labels are a part of them."""
ROW_COLUMNS = frozenset(
    {
        *("dataset", "entry", "method", "point", "stage", "split", "trial", "fold"),
        *("status", "reason", "seconds", "width", "device", "compiled", "updates", "files"),
        *("packages", "kept", "certificate", "origin", "traceback", "axis", "at", "metric"),
        *("value", "statistic", "seed"),
    }
)
"""Columns of rows beside their scores, which no score can have the name of."""


class MetricName(NamedComponent):
    """A metric of a benchmark; `build` returns the score itself."""

    schema_description = "A metric: its name, or its name and settings."

    @classmethod
    def registry(cls) -> Registry:
        """Return the metrics."""
        return METRICS

    @property
    def info(self) -> "MetricInfo":
        """Kind, direction and meaning of its numbers."""
        return read_metric_info(self.name)

    @classmethod
    def stem(cls, name: str) -> str:
        """Return the name.

        Of ``path/to/file.py:Class`` the class in lower case, fit for columns and file names.
        """
        return name.rpartition(":")[2].lower() if ":" in name else name

    @classmethod
    def check_label(cls, label: Any, name: str) -> None:
        """Raise `ValueError` unless the label begins with the name, for readers of columns."""
        super().check_label(label, name)
        stem = cls.stem(name)
        if label in ROW_COLUMNS or label.startswith("hyper_"):
            raise ValueError(
                f"label: '{abbreviate(label)}' is a column of every row: call it otherwise, such "
                f"as {stem}_score"
            )
        if label != stem and not label.startswith(f"{stem}_"):
            raise ValueError(
                f"label: '{abbreviate(label)}' should be {stem}, or begin with {stem}_"
            )


def _format_setting(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(map(_format_setting, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_steering_scores() -> list[str]:
    """List the scores that can steer a search.

    They are scores of predictions or of the posterior, of which less is better.
    """
    return [name for name in METRICS.names() if _can_steer(read_metric_info(name))]


def _can_steer(info: "MetricInfo") -> bool:
    is_scored = info.kind in ("predictive", "posterior") and info.direction == "lower"
    return is_scored and info.judges_predictions


def _check_steering(metric: MetricName, info: ValidationInfo) -> MetricName:
    if not is_checked(info) and not _can_steer(metric.info):
        raise ValueError(
            f"'{metric}' cannot steer a search: choose one of {', '.join(list_steering_scores())}"
        )
    return metric


ScoreName = Annotated[
    MetricName,
    AfterValidator(_check_steering),
    Field(json_schema_extra=lambda schema: schema.update(examples=list_steering_scores())),
]

# References to data sets and metrics of the same file are labels; the benchmark checks them.
DatasetLabel = Annotated[
    str,
    Field(json_schema_extra=lambda schema: schema.update(examples=DatasetName.registry().names())),
]
MetricLabel = Annotated[
    str, Field(json_schema_extra=lambda schema: schema.update(examples=METRICS.names()))
]
