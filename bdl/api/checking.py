"""Arguments of the interface for programs, checked against their annotations; errors are one line."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from pydantic import ConfigDict, ValidationError, validate_call

from bdl.errors import InputError
from bdl.spec.explain import explain

P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises `InputError` for arguments that its annotations do not allow, and for files."""
    validated = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> R:
        try:
            return validated(*given, **named)
        except ValidationError as error:
            raise InputError(f"{function.__name__}: {explain(error)}") from None
        except OSError as error:
            raise InputError(f"{function.__name__}: {error}") from error

    return called
