"""Stored fits that have to be made again, and the command that does so."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bdl.errors import InputError
from bdl.spec import Variant


class Unusable(InputError):
    """Stored fits are not what is asked for, or damaged.

    Parameters
    ----------
    what
        What is wrong.
    option
        Of `bdl-bench run`: what starts them anew.
    """

    def __init__(self, what: str, option: str = "--fresh") -> None:
        super().__init__(f"{what}; start anew with {option}")
        self.what, self.option = what, option


@contextmanager
def mended(asked: Variant, results: Path) -> Iterator[None]:
    """Let a refusal of stored fits end in the command that starts them anew, in the words of the one that was given."""
    try:
        yield
    except Unusable as error:
        again = asked.command("run", results, error.option)
        raise InputError(f"{error.what}; start anew, with a copy of the store, by: {again}") from None
