"""The one exception that means "the user can mend this"."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(Exception):
    """Bad input, told in one line that says what is wrong and how to mend it.

    The command line prints the message without a traceback and exits with code 2.
    """

    def __str__(self) -> str:
        return " ".join(super().__str__().splitlines())


def short(value: object) -> str:
    """Write what a message repeats of the input, shortened to 80 characters from its middle."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-15:]}"


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error, for the caller to raise, for a name of a kind such as ``"method"`` that is not among the known.

    It has the nearest names.
    """
    names, name = sorted(known), short(name)
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} '{name}': {hint}")


def in_one_line(error: BaseException) -> str:
    """Return an exception as one line: the message of an `InputError`, else the type and the message's first line."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, InputError) else f"{type(error).__name__}: {lines[0]}"
