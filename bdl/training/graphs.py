"""Graphs of launches: the operations of an update on a GPU, launched as one.

A kernel of a small model ends sooner than the processor launches it. CUDA records the launches of
a call once, with the addresses that they read and write, and makes them again as one graph. So the
arguments and the results of the call have buffers: each update copies its arguments into them,
launches the graph, and leaves the new state where the next one reads it. The kernels are those of
plain launches, and so are the bits. Nothing waits for the device meanwhile.
"""

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule

from bdl.training.compiler import first_line

log = logging.getLogger(__name__)

_WARM_UP_CALLS = 3
"""Calls before the launches are recorded: libraries and the interpreter allocate in the first."""

_WAITING = re.compile(
    r"linalg_(?!vector_norm|vecdot|cross|cholesky_ex|solve_triangular)|geqrf|nonzero|lstsq"
)
"""Names of operations that wait for the device, which a graph cannot have.

Decompositions report whether they failed, but for Cholesky's without that check.
"""


class LaunchRecorder(Protocol):
    """Records launches, and makes them again."""

    def records(self, leaves: Sequence[Tensor]) -> bool:
        """Return whether operations on these tensors are launches that can be recorded."""

    def warm_up(self, function: Callable[[], None]) -> None:
        """Call a function some times before its launches are recorded."""

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the launches of a function; return a function that makes them again."""


class CudaRecorder:
    """PyTorch's graphs of CUDA."""

    def records(self, leaves: Sequence[Tensor]) -> bool:
        """Return whether all tensors are on a GPU."""
        return bool(leaves) and all(leaf.is_cuda for leaf in leaves)

    def warm_up(self, function: Callable[[], None]) -> None:
        """Call a function on a stream of its own, as PyTorch asks for."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_CALLS):
                function()
        torch.cuda.current_stream().wait_stream(stream)

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the launches of a function, which are not made meanwhile."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            function()
        replay: Callable[[], None] = graph.replay
        return replay


recorder: LaunchRecorder = CudaRecorder()
"""Records the launches of this process; tests put another in its place."""


def has_waiting_operations(graph: GraphModule) -> bool:
    """Return whether any operation of a graph waits for the device."""
    operations = (node for node in graph.graph.nodes if node.op == "call_function")
    return any(_WAITING.search(str(node.target)) for node in operations)


class LaunchGraph:
    """The launches of one kind of update, with buffers of its arguments.

    Parameters
    ----------
    run
        The update: from tensors, those of the state first, to those of the new state.
    state, arguments, shared
        Tensors of the state, of one update, and of all updates of a chain, by which the buffers
        are made.

    Raises
    ------
    ValueError
        If an argument cannot have a buffer with its strides.
    RuntimeError
        If the launches cannot be recorded.
    """

    def __init__(
        self,
        run: Callable[..., Sequence[Tensor]],
        state: Sequence[Tensor],
        arguments: Sequence[Tensor],
        shared: Sequence[Tensor],
    ) -> None:
        self._state = [_buffer_like(leaf) for leaf in state]
        self._arguments = [_buffer_like(leaf) for leaf in arguments]
        self._shared = [_buffer_like(leaf) for leaf in shared]

        def update() -> None:
            results = run(*self._state, *self._arguments, *self._shared)
            # one that is part of a buffer would be overwritten before it is copied
            buffers = {leaf.untyped_storage().data_ptr() for leaf in self._state}
            separate = [
                leaf.clone() if leaf.untyped_storage().data_ptr() in buffers else leaf
                for leaf in results
            ]
            _copy(self._state, separate)

        recorder.warm_up(update)
        self._replay = recorder.record(update)

    def chain(
        self,
        state: Sequence[Tensor],
        call_arguments: Sequence[Sequence[Tensor]],
        shared: Sequence[Tensor],
    ) -> list[Tensor]:
        """Make one update after the other; return the last state, in tensors of its own."""
        _copy(self._state, state)
        _copy(self._shared, shared)
        for arguments in call_arguments:
            _copy(self._arguments, arguments)
            self._replay()
        return [leaf.clone() for leaf in self._state]


def record_launches(
    run: Callable[..., Sequence[Tensor]],
    state: Sequence[Tensor],
    arguments: Sequence[Tensor],
    shared: Sequence[Tensor],
) -> LaunchGraph | None:
    """Record the launches of an update (`LaunchGraph`); None, and a line in the log, if it fails.

    The update is launched operation by operation then.
    """
    try:
        return LaunchGraph(run, state, arguments, shared)
    except TimeoutError:  # the fit's time is over
        raise
    except (RuntimeError, ValueError) as error:  # PyTorch's, of CUDA: a RuntimeError
        log.warning(
            "launches are not recorded as a graph, going on without it (slower): %s",
            first_line(error),
        )
        return None


def _buffer_like(leaf: Tensor) -> Tensor:
    buffer = torch.empty_like(leaf)
    if buffer.stride() != leaf.stride():
        raise ValueError(f"a tensor with strides {leaf.stride()} has no buffer like it")
    return buffer.copy_(leaf)


def _copy(buffers: Sequence[Tensor], leaves: Sequence[Tensor]) -> None:
    """Copy tensors into buffers, in one launch for each type where there is such a launch."""
    if buffers:
        foreach_copy: Any = torch._foreach_copy_
        foreach_copy([*buffers], [*leaves])
