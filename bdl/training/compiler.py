"""Calls of PyTorch's compiler: for functions of all shapes, and for recorded operations.

Its import takes seconds, which a run that compiles nothing saves.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor
from torch.fx import GraphModule

from bdl.training.programs import ProgramCache

log = logging.getLogger(__name__)

_VECTOR_BITS = {"AVX2": 256, "AVX512": 512}
"""Width of a processor's vectors, by its instruction set.

The compiler's cache distinguishes programs by the width only where it is a setting: a cache that
two kinds of processor share would otherwise hand one the other's program, which computes garbage.
"""

_running_eagerly = False
"""Whether functions run as they are, for now."""


_open_listeners: "list[CompilationListener]" = []


class CompilationListener:
    """A context manager that hears of compilations, the outermost alone."""

    def __init__(self, on_start: Callable[..., None], on_end: Callable[..., None]) -> None:
        self._on_start, self._on_end = on_start, on_end
        self._registered = False

    def __enter__(self) -> Self:
        """Begin to listen, from the import of the compiler on if that is still to come."""
        _open_listeners.append(self)
        if "torch._dynamo" in sys.modules:
            self.register()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to listen."""
        _open_listeners.remove(self)
        if self._registered:
            from torch._dynamo.callback import callback_handler

            callback_handler.remove_start_callback(self._on_start)
            callback_handler.remove_end_callback(self._on_end)
            self._registered = False

    def register(self) -> None:
        """Register with the compiler, once."""
        from torch._dynamo.callback import callback_handler

        if not self._registered:
            callback_handler.register_start_callback(self._on_start)
            callback_handler.register_end_callback(self._on_end)
            self._registered = True


def _register_open_listeners() -> None:
    """Register listeners that began before the compiler was imported."""
    for listener in _open_listeners:
        listener.register()


@contextmanager
def running_eagerly() -> Iterator[None]:
    """Run functions as they are in a block, compiled or not."""
    global _running_eagerly
    before, _running_eagerly = _running_eagerly, True
    try:
        yield
    finally:
        _running_eagerly = before


def is_running_eagerly() -> bool:
    """Return whether functions run as they are, compiled or not."""
    return _running_eagerly


def compile_function(
    function: Callable[..., Any],
    options: dict[str, Any] | None = None,
    inner_graphs: list[Any] | None = None,
) -> Callable[..., Any]:
    """Compile a function of tensors for all shapes.

    If the compiler fails, warn once and run the function as it is. `options` are those of
    `torch.compile`. What is inside the compiler's layers joins `inner_graphs`.
    """
    options = _inductor_options() | (options or {})

    def compile_program(graph: GraphModule, leaves: Sequence[Any]) -> Any:
        program, graphs = _compile_layers(graph, leaves, options)
        if inner_graphs is not None:
            inner_graphs.extend(graphs)
        return program

    compiled: Callable[..., Any] | None = None
    compiler_failed = False

    def call(*args: Any) -> Any:
        nonlocal compiled, compiler_failed
        if not compiler_failed and not _running_eagerly:
            if compiled is None:  # imports the compiler
                compiled = torch.compile(function, dynamic=True, backend=compile_program)
                _register_open_listeners()
            try:
                return compiled(*args)
            except torch._dynamo.exc.TorchDynamoException as error:
                compiler_failed = True
                warn_uncompiled(error)
        return function(*args)

    return call


def compile_graph(graph: GraphModule, leaves: Sequence[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Compile recorded operations for arguments of these shapes, types and devices.

    Errors of the compiler and of the first call are raised as they are. On a CPU, C++ calls the
    kernels, since Python takes as long for that as the kernels of a small model, and a program
    that an earlier process compiled is loaded.
    """
    on_cpu = not any(leaf.is_cuda for leaf in leaves)
    options = _inductor_options() | {"cpp_wrapper": on_cpu}
    if not on_cpu:
        return _compile(graph, leaves, options)[0]
    cache = ProgramCache(graph, leaves, options)
    with torch.no_grad():
        if program := cache.load():
            program(*leaves)  # some faults show up in the first call
            return program
        compiled, inner_graphs = _compile(graph, leaves, options)
        return cache.store(compiled, next(iter(inner_graphs), None), leaves)


def _compile(
    graph: GraphModule, leaves: Sequence[Tensor], options: dict[str, Any]
) -> tuple[Callable[..., Sequence[Tensor]], list[Any]]:
    """Compile operations; return the program, and what is inside the compiler's layers."""
    from torch._dynamo.callback import CallbackTrigger, callback_handler  # imports the compiler

    _register_open_listeners()
    # the compiler reports nothing by itself where it is called so, and stopwatches of fits listen
    callbacks = callback_handler.install_callbacks(CallbackTrigger.DYNAMO, "traced")
    with torch.no_grad(), _silenced_inductor(), callbacks:
        compiled, inner_graphs = _compile_layers(graph, [*leaves], options)
        compiled(*leaves)  # some faults show up in the first call
    return compiled, inner_graphs


def _compile_layers(
    graph: GraphModule, leaves: Sequence[Any], options: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any]]:
    """Compile a graph; return the program, and what is inside the compiler's layers."""
    import torch._inductor.compile_fx as inductor
    from torch._functorch import config

    inner_graphs = list[Any]()

    def compile_inner_graph(*args: Any, **kwargs: Any) -> Any:
        inner_graphs.append(inductor.compile_fx_inner(*args, **kwargs))
        return inner_graphs[-1]

    # a cache of whole programs would not call the function for the inner graph
    with config.patch(enable_autograd_cache=False):
        compiled: Any = inductor.compile_fx(
            graph, leaves, inner_compile=compile_inner_graph, config_patches=options
        )
    return compiled, inner_graphs


@contextmanager
def _silenced_inductor() -> Iterator[None]:
    """Silence the compiler's warnings in a block.

    There would be one for each decomposition of a matrix, which C++ can only call through Python.
    """
    inductor_log = logging.getLogger("torch._inductor.ir")
    level = inductor_log.level
    inductor_log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        inductor_log.setLevel(level)


def _inductor_options() -> dict[str, Any]:
    return {"cpp.simdlen": _VECTOR_BITS.get(torch.backends.cpu.get_cpu_capability())}


def warn_uncompiled(error: Exception) -> None:
    """Warn that something runs without the compiler."""
    log.warning("torch.compile failed, going on without it (slower): %s", first_line(error))


def first_line(error: Exception) -> str:
    """Return the first line of an error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
