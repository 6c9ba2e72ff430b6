"""Arguments of the interface for programs, checked against their annotations; errors are one line."""

import re
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from pydantic import ConfigDict, ValidationError, validate_call

from bdl.errors import InputError
from bdl.spec.fields import explain

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
            told = re.sub(r"^\d+", lambda place: names.get(int(place[0]), place[0]), explain(error))
            raise InputError(f"{function.__name__}: {told}") from None
        except OSError as error:
            raise InputError(f"{function.__name__}: {error}") from error

    return called
