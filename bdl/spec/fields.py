"""The kinds of values that a benchmark file holds."""

from collections.abc import Hashable
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, Le
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from bdl.errors import short
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

MOST, LARGEST, SMALLEST = 10**9, 1e100, 1e-100
"""Of anything that is counted, and of real numbers: beyond them nothing is meant."""


def check_size(value: T) -> T:
    """Refuse a number that cannot be meant; counts are checked by their type.

    Raises
    ------
    ValueError
        If it is an integer beyond `MOST`, or a real number beyond `LARGEST` or below `SMALLEST` but for 0.
    """
    if isinstance(value, int) and abs(value) > MOST:
        raise ValueError(f"{short(str(value))} cannot be meant: integers go to {MOST:,}")
    if isinstance(value, float) and value and not SMALLEST <= abs(value) <= LARGEST:
        raise ValueError(f"{value:g} cannot be meant: numbers go from {SMALLEST:g} to {LARGEST:g} in size")
    return value


Count = Annotated[int, Ge(1), Le(MOST)]
Index = Annotated[int, Ge(0), Le(2**63 - 1)]
Real = Annotated[float, AfterValidator(check_size)]
NonNegative = Annotated[Real, Ge(0)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Text = Annotated[str, Field(min_length=1)]
