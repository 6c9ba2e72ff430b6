"""The one exception that means "the user can mend this"."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(Exception):
    """Bad input, told in one line that says what is wrong and how to mend it.

    The command line prints the message without a traceback and exits with code 2.
    """

    def __str__(self) -> str:
        return " ".join(super().__str__().splitlines())


def short(text: str) -> str:
    """Shorten what a message repeats of the input to 80 characters, from its middle."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 20]} ... {text[-15:]}"


_SHOWN = 80


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Build the error for a name that is not registered, with the nearest names.

    Parameters
    ----------
    kind
        What was looked up, for example ``"method"``.
    name
        The name that was given.
    known
        The names that exist.

    Returns
    -------
    InputError
        For the caller to raise.
    """
    names, name = sorted(known), short(name)
    near = get_close_matches(name, names, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} '{name}': {hint}")


def in_one_line(error: BaseException) -> str:
    """Return an exception as one line: the message of an `InputError`, else the type and the message's first line."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, InputError) else f"{type(error).__name__}: {lines[0]}"
