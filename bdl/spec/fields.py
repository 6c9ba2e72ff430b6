"""The kinds of values that a benchmark file holds."""

from collections.abc import Hashable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bdl.spec.explain import unknown_field

T = TypeVar("T")


class Settings(BaseModel):
    """A mapping in a benchmark file: immutable, no unknown keys, no silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, raw: Any) -> Any:
        """Name the allowed keys, which pydantic's own message does not."""
        for key in raw if isinstance(raw, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(unknown_field(key, cls.model_fields))
        return raw


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _unique(values: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise ValueError(f"'{twice[0]}' comes twice: remove one")
    return values


Items = Annotated[tuple[T, ...], BeforeValidator(_as_tuple)]
NonEmpty = Annotated[Items[T], Field(min_length=1)]
Unique = Annotated[NonEmpty[T], AfterValidator(_unique)]

Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Text = Annotated[str, Field(min_length=1)]
