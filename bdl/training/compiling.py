"""When to compile, and how to carry on where it is not possible."""

import itertools
import logging
import os
import shutil
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger(__name__)

_MODELS_PER_CACHE = 64
"""Compiled variants of one function before the compiler gives up and runs it eagerly (its default is 8)."""

# Measured on two cores (scripts/bench_training.py): an eager update costs about 3 ms of launches and 25 ns a
# parameter of each model-minibatch, a compiled one a fifth of that; compiling a program takes 10 s.
_EAGER_LAUNCH, _EAGER_PARAMETER, _COMPILE = 3e-3, 25e-9, 10.0


def compiler_found() -> bool:
    """Return whether the C++ compiler that `torch.compile` needs on a CPU is installed."""
    return shutil.which(os.environ.get("CXX", "g++")) is not None or shutil.which("clang++") is not None


def worthwhile(updates: int, width: int, dim: int) -> bool:
    """Return whether a program runs long enough to repay its compilation.

    Parameters
    ----------
    updates
        Updates the program will make in all its calls.
    width
        Model-minibatches in an update, R x L.
    dim
        Parameters of a model, D.
    """
    eager = updates * (_EAGER_LAUNCH + _EAGER_PARAMETER * width * dim)
    return compiler_found() and eager > 2 * _COMPILE


def compiled(
    function: Callable[..., Any], *, dynamic: bool = False, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a function; if the compiler fails, say so once and run it eagerly.

    Parameters
    ----------
    function
        A function of tensors.
    dynamic
        Compile once for all shapes rather than once a shape.
    options
        Settings of the compiler, as `torch.compile` takes them.
    """
    torch._dynamo.config.recompile_limit = _MODELS_PER_CACHE
    fast, broken = torch.compile(_apart(function), dynamic=dynamic, options=options), False

    def call(*args: Any) -> Any:
        nonlocal broken
        if not broken:
            try:
                return fast(*args)
            except torch._dynamo.exc.TorchDynamoException as error:
                broken = True
                reason = str(error).strip().splitlines()[0]
                log.warning("torch.compile failed, going on without it (slower): %s", reason)
        return function(*args)

    return call


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in code of its own.

    The compiler keeps its variants by code object, and every mapped step is the same code of `vmap`: it would look
    for the hyper-parameters of one method in the arguments of another, and fail.
    """

    def call(*args: Any) -> Any:
        return function(*args)

    call.__code__ = call.__code__.replace(co_name=f"call_{next(_PROGRAMS)}")
    return call


_PROGRAMS = itertools.count()
