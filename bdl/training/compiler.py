"""PyTorch's compiler: of functions for all shapes, and of recorded operations."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

log = logging.getLogger(__name__)

_VECTOR_BITS = {"AVX2": 256, "AVX512": 512}
"""Width of a processor's vectors. The compiler's cache tells programs apart by it only where it
is a setting: a cache that two kinds of processor share would hand one the other's program,
which computes garbage there.
"""


def compiled(
    function: Callable[..., Any], options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a function of tensors for all shapes.

    If the compiler fails, say so once and run it as it is.

    `options` are those of `torch.compile`.
    """
    fast, broken = (
        torch.compile(function, dynamic=True, options=_options() | (options or {})),
        False,
    )

    def call(*args: Any) -> Any:
        nonlocal broken
        if not broken:
            try:
                return fast(*args)
            except torch._dynamo.exc.TorchDynamoException as error:
                broken = True
                complain(error)
        return function(*args)

    return call


def compiled_graph(
    graph: GraphModule, leaves: Sequence[Tensor]
) -> Callable[..., Sequence[Tensor]]:
    """Compile recorded operations for arguments like these.

    Raises whatever the compiler does, or the first call.

    On a CPU, C++ calls the kernels, since Python takes as long for that as the kernels of a small
    model.
    """
    from torch._dynamo.callback import CallbackTrigger, callback_handler  # imports the compiler

    options = _options() | {"cpp_wrapper": not any(leaf.is_cuda for leaf in leaves)}
    # Whoever listens to the compiler, as clocks of fits do, hears of this, too.
    with (
        torch.no_grad(),
        _unwarned(),
        callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "traced"),
    ):
        fast: Callable[..., Sequence[Tensor]] = torch._inductor.compile(
            graph, [*leaves], options=options
        )
        fast(*leaves)  # some faults show up in the first call
    return fast


@contextmanager
def _unwarned() -> Iterator[None]:
    """Compile without a warning for each decomposition of a matrix, to which C++ has no way but that through Python."""
    its = logging.getLogger("torch._inductor.ir")
    level = its.level
    its.setLevel(logging.ERROR)
    try:
        yield
    finally:
        its.setLevel(level)


def _options() -> dict[str, Any]:
    return {"cpp.simdlen": _VECTOR_BITS.get(torch.backends.cpu.get_cpu_capability())}


def complain(error: Exception) -> None:
    """Warn that something runs without the compiler."""
    log.warning("torch.compile failed, going on without it (slower): %s", line(error))


def line(error: Exception) -> str:
    """Return the first line of an error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
