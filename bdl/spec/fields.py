"""Types of the values in a benchmark file, their canonical JSON, and errors in one line."""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import wraps
from inspect import signature
from typing import Annotated, Any, ParamSpec, TypeVar

from annotated_types import Ge, Le
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
    validate_call,
)
from pydantic_core import InitErrorDetails

from bdl.errors import InputError, abbreviate, unknown_name_error


def to_canonical_json(content: Any) -> str:
    """Write JSON values without spaces, the keys of mappings sorted.

    `ValueError` if a number is not finite.
    """
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(content: Any) -> str:
    """Hash the canonical JSON of a content, SHA-256 (hex)."""
    return hashlib.sha256(to_canonical_json(content).encode()).hexdigest()


class SweepPoint(Mapping[str, Any]):
    """A point of a sweep: path of each axis to its JSON value, in the order of the axes.

    Immutable; points are equal if their values are.
    """

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        self._texts = {path: to_canonical_json(value) for path, value in values.items()}

    @property
    def text(self) -> str:
        """Canonical JSON, ``{}`` without a sweep."""
        return to_canonical_json(dict(self))

    @property
    def texts(self) -> dict[str, str]:
        """Path of each axis to the canonical JSON of its value, which tables show."""
        return dict(self._texts)

    def __getitem__(self, path: str) -> Any:
        return json.loads(self._texts[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SweepPoint) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self.text)


FieldPath = tuple[str | int, ...]

_MESSAGES = {
    "missing": "is missing",
    "tuple_type": "should be a list",
    "dict_type": "should be a mapping",
    "mapping_type": "should be a mapping",
    "model_type": "should be a mapping",
    "too_short": "should not be empty",
}


def describe_unknown_field(name: str, allowed: Iterable[str], kind: str = "field") -> str:
    """Describe that a key does not exist, which keys do, and which one may be meant."""
    names = list(allowed)
    matches = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" (did you mean {matches[0]}?)" if matches else ""
    return f"unknown {kind} '{abbreviate(name)}'{hint}; allowed: {', '.join(names) or 'none'}"


def error_at(path: FieldPath, error: ValueError) -> ValidationError:
    """Return an error with its path below the value that is being checked."""
    detail = InitErrorDetails(type="value_error", loc=path, input=None, ctx={"error": error})
    return ValidationError.from_exception_data("within", [detail])


def explain(error: ValidationError) -> str:
    """Return the first problem with its dotted path, and how many more there are."""
    first, *rest = _iterate_problems(error, ())
    return f"{first} (and {len(rest)} more)" if rest else first


def _iterate_problems(error: ValidationError, start: FieldPath) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        path = start + tuple(key for key in detail["loc"] if key != "[key]")
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            yield from _iterate_problems(cause, path)
            continue
        text = str(cause) if cause else _MESSAGES.get(detail["type"], detail["msg"])
        value = detail["input"]
        # errors of this package quote the value themselves; that of a missing field is the
        # mapping around it
        shows_value = (
            not cause
            and isinstance(value, str | int | float | None)
            and detail["type"] != "missing"
        )
        dotted_path = ".".join(abbreviate(key) for key in path)
        yield (
            (f"{dotted_path}: " if dotted_path else "")
            + text
            + (f" (got {abbreviate(json.dumps(value))})" if shows_value else "")
        )


def select_names(kind: str, patterns: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Select names, in their order, by exact names or patterns such as ``vifa*``.

    All are selected if there is no pattern. `InputError`, with the kind of the names, if a pattern
    matches none.
    """
    names = tuple(names)
    selected = set(names) if not patterns else set[str]()
    for pattern in patterns:
        # An exact name comes first: names may have characters that patterns read otherwise.
        matches = {pattern} & {*names} or {name for name in names if fnmatchcase(name, pattern)}
        if not matches:
            raise unknown_name_error(kind, pattern, names)
        selected |= matches
    return tuple(name for name in names if name in selected)


T = TypeVar("T")


CHECKED_CONTEXT = {"checked": True}
"""Context of the validation of what was checked before, when it was run or shipped.

Fields are validated, but not against each other, and shipped components are not imported: their
settings are completed by what is declared of them.
"""


def is_checked(info: ValidationInfo) -> bool:
    """Return whether a validation is of what was checked before."""
    return bool(info.context and info.context.get("checked"))


class SpecSection(BaseModel):
    """A mapping in a benchmark file: immutable, no unknown keys, no silent conversions."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, raw: Any) -> Any:
        """Name the allowed keys, which pydantic's own message does not."""
        for key in raw if isinstance(raw, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(describe_unknown_field(key, cls.model_fields))
        return raw


def _check_unique(values: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    repeated = [value for value in values if values.count(value) > 1]
    if repeated:
        # a component of a benchmark, whose name may come from a file or settings
        cure = ", or give one a label" if hasattr(repeated[0], "registry") else ""
        raise ValueError(f"'{repeated[0]}' comes twice: remove one{cure}")
    return values


Items = Annotated[
    tuple[T, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]
NonEmpty = Annotated[Items[T], Field(min_length=1)]
Unique = Annotated[NonEmpty[T], AfterValidator(_check_unique)]

MAX_INTEGER, MAX_REAL, MIN_REAL = 10**9, 1e100, 1e-100
"""Bounds of counts, and of the size of real numbers: a number beyond them is a mistake."""


def check_size(value: T) -> T:
    """Raise `ValueError` for a number that is too large or too small to be meant."""
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ValueError(f"{abbreviate(value)} cannot be meant: integers go to {MAX_INTEGER:,}")
    if isinstance(value, float) and value and not MIN_REAL <= abs(value) <= MAX_REAL:
        raise ValueError(
            f"{value:g} cannot be meant: numbers go from {MIN_REAL:g} to {MAX_REAL:g} in size"
        )
    return value


Count = Annotated[int, Ge(1), Le(MAX_INTEGER)]
Index = Annotated[int, Ge(0), Le(2**63 - 1)]
Real = Annotated[float, AfterValidator(check_size)]
NonNegative = Annotated[Real, Ge(0)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Text = Annotated[str, Field(min_length=1)]


P = ParamSpec("P")
R = TypeVar("R")


def validate_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that checks its arguments by their annotations.

    It raises `InputError` for arguments that these do not allow, and for an `OSError`.
    """
    validated = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)
    names = dict(enumerate(signature(function).parameters))

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return validated(*args, **kwargs)
        except ValidationError as error:
            # pydantic gives the position of a positional argument, and people know its name
            message = re.sub(
                r"^\d+", lambda match: names.get(int(match[0]), match[0]), explain(error)
            )
            raise InputError(f"{function.__name__}: {message}") from None
        except OSError as error:
            raise InputError(f"{function.__name__}: {error}") from error

    return wrapper
