"""Values of a benchmark file: their kinds, one text for each content, points and names, errors in one line."""

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
    model_validator,
    validate_call,
)
from pydantic_core import InitErrorDetails

from bdl.errors import InputError, short, unknown


def canonical(content: Any) -> str:
    """Write JSON values without spaces, the keys of mappings sorted.

    `ValueError` if a number is not finite.
    """
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256(content: Any) -> str:
    """Hash the canonical JSON of a content, SHA-256 (hex)."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


class Point(Mapping[str, Any]):
    """Path of each axis to its JSON value there, in the order of the axes.

    Immutable, equal if the values are.
    """

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        self._texts = {path: canonical(value) for path, value in values.items()}

    @property
    def text(self) -> str:
        """Canonical JSON, ``{}`` without a sweep."""
        return canonical(dict(self))

    @property
    def texts(self) -> dict[str, str]:
        """Path of each axis to the canonical JSON of its value, as tables have it."""
        return dict(self._texts)

    def __getitem__(self, path: str) -> Any:
        return json.loads(self._texts[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self.text)


Path = tuple[str | int, ...]

_PLAIN = {
    "missing": "is missing",
    "tuple_type": "should be a list",
    "dict_type": "should be a mapping",
    "mapping_type": "should be a mapping",
    "model_type": "should be a mapping",
    "too_short": "should not be empty",
}


def unknown_field(name: str, allowed: Iterable[str], kind: str = "field") -> str:
    """Describe that a key does not exist, which ones do, and which one may be meant."""
    names = list(allowed)
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"unknown {kind} '{short(name)}'{hint}; allowed: {', '.join(names) or 'none'}"


def within(place: Path, error: ValueError) -> ValidationError:
    """Describe that a problem lies at a place below the value that is being checked."""
    detail = InitErrorDetails(type="value_error", loc=place, input=None, ctx={"error": error})
    return ValidationError.from_exception_data("within", [detail])


def explain(error: ValidationError) -> str:
    """Return the first problem with its dotted path, and how many more there are."""
    first, *more = _problems(error, ())
    return f"{first} (and {len(more)} more)" if more else first


def _problems(error: ValidationError, start: Path) -> Iterator[str]:
    for detail in error.errors(include_url=False):
        path = start + tuple(part for part in detail["loc"] if part != "[key]")
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            yield from _problems(cause, path)
            continue
        text = str(cause) if cause else _PLAIN.get(detail["type"], detail["msg"])
        value = detail["input"]
        shown = (
            not cause
            and isinstance(value, str | int | float | None)
            and detail["type"] != "missing"
        )
        place = ".".join(short(part) for part in path)
        yield (
            (f"{place}: " if place else "")
            + text
            + (f" (got {short(json.dumps(value))})" if shown else "")
        )


def keep(kind: str, wanted: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """Select those of the known names, in their order, that are wanted, by name or by a pattern such as ``vifa*``.

    All are if none is wanted. `InputError`, with the kind of the names, if nothing is called so.
    """
    known = tuple(known)
    found = set(known) if not wanted else set[str]()
    for name in wanted:
        own = {name} & {*known} or {each for each in known if fnmatchcase(each, name)}
        if not own:
            raise unknown(kind, name, known)
        found |= own
    return tuple(name for name in known if name in found)


T = TypeVar("T")


class Settings(BaseModel):
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
                raise ValueError(unknown_field(key, cls.model_fields))
        return raw


def _unique(values: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise ValueError(f"'{twice[0]}' comes twice: remove one")
    return values


Items = Annotated[
    tuple[T, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]
NonEmpty = Annotated[Items[T], Field(min_length=1)]
Unique = Annotated[NonEmpty[T], AfterValidator(_unique)]

MOST, LARGEST, SMALLEST = 10**9, 1e100, 1e-100
"""Of anything that is counted, and of real numbers: beyond them nothing is meant."""


def check_size(value: T) -> T:
    """Refuse a number that cannot be meant by a `ValueError`; counts are checked by their type."""
    if isinstance(value, int) and abs(value) > MOST:
        raise ValueError(f"{short(value)} cannot be meant: integers go to {MOST:,}")
    if isinstance(value, float) and value and not SMALLEST <= abs(value) <= LARGEST:
        raise ValueError(
            f"{value:g} cannot be meant: numbers go from {SMALLEST:g} to {LARGEST:g} in size"
        )
    return value


Count = Annotated[int, Ge(1), Le(MOST)]
Index = Annotated[int, Ge(0), Le(2**63 - 1)]
Real = Annotated[float, AfterValidator(check_size)]
NonNegative = Annotated[Real, Ge(0)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
Text = Annotated[str, Field(min_length=1)]


P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises `InputError` for arguments that its annotations do not allow, and for files."""
    validated = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)
    names = dict(enumerate(signature(function).parameters))

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> R:
        try:
            return validated(*given, **named)
        except ValidationError as error:
            # an argument that is given by its place is called by its name
            told = re.sub(
                r"^\d+", lambda place: names.get(int(place[0]), place[0]), explain(error)
            )
            raise InputError(f"{function.__name__}: {told}") from None
        except OSError as error:
            raise InputError(f"{function.__name__}: {error}") from error

    return called
