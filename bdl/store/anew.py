"""Stored fits that have to be made again, and the command that does so."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bdl.errors import InputError
from bdl.spec import Variant


class Unusable(InputError):
    """Stored fits are not what is asked for.

    Parameters
    ----------
    what
        What is wrong.
    option
        Of `bdl-bench run`: what starts them anew.
    """

    def __init__(self, what: str, option: str) -> None:
        super().__init__(f"{what}; start anew with {option}")
        self.what, self.option = what, option


class Damaged(InputError):
    """The file of a posterior is missing or damaged.

    Parameters
    ----------
    what
        What is wrong.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; run again, which makes this fit alone")
        self.what = what


@contextmanager
def mended(asked: Variant, results: Path) -> Iterator[None]:
    """Let a refusal of stored fits end in the command that starts them anew, in the words of the one that was given."""
    try:
        yield
    except Unusable as error:
        again = asked.command("run", results, error.option)
        raise InputError(f"{error.what}; start anew, with a copy of the store, by: {again}") from None
    except Damaged as error:
        again = asked.command("run", results)
        raise InputError(f"{error.what}; this makes its fit again, and no other: {again}") from None
