"""Errors of stored fits that have to be made again, and the command that makes them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bdl.errors import InputError
from bdl.spec import Request


class UnusableFits(InputError):
    """Stored fits are not those of the request; an option of `bdl-bench run` starts them anew."""

    def __init__(self, refusal: str, option: str) -> None:
        super().__init__(f"{refusal}; start anew with {option}")
        self.refusal, self.option = refusal, option


class DamagedPosterior(InputError):
    """The file of a posterior is missing or damaged."""

    def __init__(self, refusal: str) -> None:
        super().__init__(f"{refusal}; run again, which makes this fit alone")
        self.refusal = refusal


@contextmanager
def with_rerun_hint(request: Request, results: Path) -> Iterator[None]:
    """Let a refusal of stored fits end in the command of this request that starts them anew."""
    try:
        yield
    except UnusableFits as error:
        command = request.format_command("run", results, error.option)
        raise InputError(
            f"{error.refusal}; start anew, with a copy of the store, by: {command}"
        ) from None
    except DamagedPosterior as error:
        command = request.format_command("run", results)
        raise InputError(
            f"{error.refusal}; this makes its fit again, and no other: {command}"
        ) from None
