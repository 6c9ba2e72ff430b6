"""The one exception that means "the user can mend this"."""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class InputError(Exception):
    """Bad input; the message is one line that says what is wrong and how to mend it.

    The command line prints the message without a traceback and exits with code 2.
    """

    def __str__(self) -> str:
        return escape_unprintable(" ".join(super().__str__().splitlines()))


def escape_unprintable(text: str) -> str:
    """Return a text with escapes such as ``\\x1f`` in place of characters that cannot be printed.

    Those would steer a terminal, or stand for bytes that are no text.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


def abbreviate(value: object) -> str:
    """Shorten what a message repeats of the input to 80 characters, from its middle."""
    text = escape_unprintable(str(value))
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-15:]}"


def with_plural(number: int, noun: str) -> str:
    """Write a number before a noun, with an s for several."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unknown_name_error(kind: str, name: str, names: Iterable[str]) -> InputError:
    """Build the error for a name that is not among those of a kind such as ``"method"``.

    It suggests the nearest names; the caller raises it.
    """
    known_names, name = sorted(names), abbreviate(name)
    near = get_close_matches(name, known_names, n=3, cutoff=0.4)
    hint = f"known: {', '.join(known_names)}" if known_names else "there is none"
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    return InputError(f"unknown {kind} '{name}': {hint}")


def summarise_error(error: BaseException) -> str:
    """Return an exception as one line.

    That is the message of an `InputError`, else the type and the message's first line.
    """
    lines = str(error).strip().splitlines() or [""]
    line = escape_unprintable(lines[0])
    return line if isinstance(error, InputError) else f"{type(error).__name__}: {line}"


def parse_json(text: str | bytes) -> Any:
    """Read JSON; `ValueError` if it is none, or has more levels than Python can follow.

    The reader of the standard library ends in a `RecursionError` at a thousand brackets, which
    callers that read files of others would have to know of.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it has too many levels, one within another") from None
