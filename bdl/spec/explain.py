"""Validation errors in one line: where, what is wrong, what is allowed."""

import json
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from pydantic import ValidationError
from pydantic_core import InitErrorDetails

from bdl.errors import short

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
        shown = not cause and isinstance(value, str | int | float | None) and detail["type"] != "missing"
        place = ".".join(short(str(part)) for part in path)
        yield (f"{place}: " if place else "") + text + (f" (got {short(json.dumps(value))})" if shown else "")
